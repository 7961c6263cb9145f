"""The command `tidegauge`, which has every command of Django's `manage.py` under the same name.

Commands that touch data get their servers first: embedded, unless the environment names some.
"""

import ast
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import tidegauge
from tidegauge import init
from tidegauge.words import ONLY_A_QUESTION, check_words

APPS = Path(__file__).with_name("webapp")

NEED_NO_SERVERS = {"help", "version", "check", "collectstatic", "diffsettings", "makemigrations", "spectacular"}

# Short names of commands.
SHORT = {"run": "run_pipeline"}

# Those that are not in webapp: ours, and the commands of Django that running Tidegauge takes.
OTHERS = {
    "init": "Write a project of your own: a pipeline, its test, settings, services.",
    "collectstatic": "Collect the static files for the web process.",
    "createsuperuser": "Create a user who may do everything.",
    "migrate": "Create the tables, or bring them up to date.",
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
        _run([SHORT.get(words[0], words[0]), *words[1:]])


def needs_servers(words: list[str]) -> bool:
    """Return whether the command line asks for something that reads or writes data."""
    return bool(words) and words[0] not in NEED_NO_SERVERS and not ONLY_A_QUESTION & set(words)


def overview(program: str) -> str:
    """Return the list of commands. It imports none, so it works whatever is installed."""
    short = {name: f"The same as {command}." for name, command in SHORT.items()}
    commands = dict(sorted([*own_commands(), *OTHERS.items(), *short.items()]))
    width = max(map(len, commands))
    lines = (f"  {name:{width}}  {summary}" for name, summary in commands.items())
    return OVERVIEW.format(version=tidegauge.__version__, program=program, commands="\n".join(lines))


def own_commands() -> Iterator[tuple[str, str]]:
    """Yield each command of webapp and the first line about it."""
    for file in APPS.glob("*/management/commands/[!_]*.py"):
        documentation = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        yield file.stem, documentation.partition("\n")[0]


def _run(words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
    # A script that pip has installed has its own folder there; modules are looked for where one types the command.
    if not sys.flags.safe_path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    # An orderly exit stops the embedded servers; a command that stops by itself on SIGTERM sets its own handler.
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
        if said := _lacked_privilege(error):
            sys.exit(f"tidegauge: {said}")
        raise


def _lacked_privilege(error: BaseException | None) -> str:
    """Return what to say where the database has refused something to the role of `DATABASE_URL`; "" for others."""
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import InsufficientPrivilege

    while error is not None and not isinstance(error, InsufficientPrivilege):
        error = error.__cause__
    if error is None:
        return ""
    role = conninfo_to_dict(os.environ["DATABASE_URL"]).get("user", "")
    return (
        f"role {role!r} lacks a privilege ({error.diag.message_primary}); docs/access.md says which role "
        "this command is for, `tidegauge roles --check` what the roles lack, and `tidegauge roles` as superuser mends "
        "it"
    )


def _read_env(file: Path) -> None:
    """Set what a project's `.env` has and the environment lacks."""
    if file.is_file():
        from environ import Env

        Env.read_env(file)
