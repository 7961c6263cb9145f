"""The command `tidegauge`, which has every command of Django's `manage.py` under the same name.

Before a command that reads or writes data, it starts embedded servers, unless the environment names others.
"""

import ast
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import tidegauge
from tidegauge import init
from tidegauge.words import ONLY_A_QUESTION, check_words, own_apps

APPS = Path(__file__).with_name("webapp")

NEED_NO_SERVERS = {"help", "version", "check", "collectstatic", "diffsettings", "makemigrations", "spectacular"}

# Short names for commands.
SHORT = {"run": "run_pipeline"}

# Commands that are not in webapp: our own, and the commands of Django that are needed to run Tidegauge.
OTHERS = {
    "init": "Create a project with a pipeline, its test, settings and services.",
    "collectstatic": "Collect the static files for the web process.",
    "changepassword": "Give a user a new password.",
    "migrate": "Create or update the tables.",
}

OVERVIEW = """\
Tidegauge {version}: live aggregates that stay exact

usage: {program} COMMAND [options]

{commands}

`{program} COMMAND --help` shows the options of a command, `{program} help --commands` lists Django's commands as well.
"""


def main() -> None:
    """Run the command that `sys.argv` names."""
    words = sys.argv[1:]
    if words in ([], ["help"], ["--help"], ["-h"]):
        sys.stdout.write(overview(Path(sys.argv[0]).name))
    elif words == ["--version"]:
        sys.stdout.write(f"tidegauge {tidegauge.__version__}\n")
    elif words[0] == "init":
        init.main(words[1:])
    else:
        if words[0] == "help" and len(words) == 2 and not words[1].startswith("-"):
            words = [words[1], "--help"]
        _run([named(words[0]), *words[1:]])


def named(word: str) -> str:
    """Return the name of the command that was typed: a short name is replaced, and `create-admin` is `create_admin`."""
    return SHORT.get(word, name if (name := word.replace("-", "_")) in own_apps() else word)


def needs_servers(words: list[str]) -> bool:
    """Return whether the command reads or writes data."""
    return bool(words) and words[0] not in NEED_NO_SERVERS and not ONLY_A_QUESTION & set(words)


def overview(program: str) -> str:
    """Return the list of commands. It imports none of them, so that it works without any extra installed."""
    short = {name: f"The same as {command}." for name, command in SHORT.items()}
    commands = dict(sorted([*own_commands(), *OTHERS.items(), *short.items()]))
    width = max(map(len, commands))
    lines = (f"  {name:{width}}  {summary}" for name, summary in commands.items())
    return OVERVIEW.format(version=tidegauge.__version__, program=program, commands="\n".join(lines))


def own_commands() -> Iterator[tuple[str, str]]:
    """Yield the name of each command of webapp, and the first line of its docstring."""
    for file in APPS.glob("*/management/commands/[!_]*.py"):
        documentation = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        yield file.stem, documentation.partition("\n")[0]


def _run(words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
    # Python puts the script's own folder on the path. Add the working directory, because it has the user's modules.
    if not sys.flags.safe_path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    # Exit normally on SIGTERM, so that the embedded servers are stopped. Commands that handle SIGTERM set their own.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _execute(words)


def _execute(words: list[str]) -> None:
    from tidegauge.pipelines.errors import RuntimeSetupError
    from tidegauge.state_backends.errors import MissingPackageError
    from tidegauge.state_backends.extras import naming_the_extra

    try:
        with naming_the_extra():
            _read_env(Path(".env"))
            check_words(words)
            if needs_servers(words):
                from tidegauge.pipelines.embedded.servers import ensure_servers

                ensure_servers()
            from django.core.management import execute_from_command_line

            execute_from_command_line([sys.argv[0], *words])
    except (RuntimeSetupError, MissingPackageError) as error:
        sys.exit(f"tidegauge: {error}")
    except Exception as error:
        if said := _lacked_privilege(error) or _wrong_setting(error) or _earlier_tables(error):
            sys.exit(f"tidegauge: {said}")
        raise


def _lacked_privilege(error: BaseException | None) -> str:
    """Return the message if the database refused something to the role of `DATABASE_URL`; "" for other errors."""
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import InsufficientPrivilege

    while error is not None and not isinstance(error, InsufficientPrivilege):
        error = error.__cause__
    if error is None:
        return ""
    role = conninfo_to_dict(os.environ["DATABASE_URL"]).get("user", "")
    return (
        f"role {role!r} lacks a privilege ({error.diag.message_primary}); see docs/access.md for the role that "
        "this command needs, run `tidegauge roles --check` to list missing privileges, and `tidegauge roles` as "
        "superuser to grant them"
    )


def _wrong_setting(error: Exception) -> str:
    """Return the message if a setting is missing or wrong; "" for other errors."""
    from django.core.exceptions import ImproperlyConfigured

    return str(error) if isinstance(error, ImproperlyConfigured) else ""


def _earlier_tables(error: BaseException | None) -> str:
    """Return the message if a statement failed because the database is not migrated yet; "" for other errors."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor
    from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable

    while error is not None and not isinstance(error, UndefinedColumn | UndefinedFunction | UndefinedTable):
        error = error.__cause__
    if error is None:
        return ""
    connection.close()  # its transaction has failed
    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return ""
    return f"the tables are of an earlier version of Tidegauge: run `tidegauge migrate` ({error.diag.message_primary})"


def _read_env(file: Path) -> None:
    """Set the variables of a project's `.env` that the environment does not have."""
    if file.is_file():
        from environ import Env

        Env.read_env(file)
