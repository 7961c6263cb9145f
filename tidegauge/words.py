"""Checks a command line before servers start and Django loads its applications, because these take 2 s of CPU.

For this reason the module of a command loads neither models nor Spark. What its parser cannot check, such as options
that contradict each other, is checked by its method `check_options`.
"""

import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

APPS = Path(__file__).with_name("webapp")

ONLY_A_QUESTION = {"--help", "-h", "--version"}

# Commands of Django that are checked as well, each with the applications that its parser needs.
PARSED: dict[str, tuple[str, ...]] = {
    "collectstatic": (),
    "changepassword": ("django.contrib.contenttypes", "django.contrib.auth"),
    "createsuperuser": ("django.contrib.contenttypes", "django.contrib.auth"),
    "migrate": (),
}
OTHER_SETTINGS = ("--settings", "--pythonpath")  # not checked, because with these there may be other commands


def check_words(words: list[str]) -> None:
    """Exit as the command would if its words are invalid, or if they only ask for help."""
    from tidegauge.pipelines.embedded.addresses import are_known

    if words[0].startswith("-") or words[0] in ("help", "version"):
        return
    if any(word.startswith(OTHER_SETTINGS) for word in words):
        return
    if are_known() and not PARSED.get(words[0]):
        return _check(words)
    # Checked in a child, because a process reads the user's settings and modules only once, and they may depend on the
    # servers' addresses. If the child exits early, it has reported what is wrong, or printed the help.
    child = os.fork()
    if not child:
        from django.db import connections

        # Set here, because parsers ask for the names of the databases, and reading the settings creates a secret key.
        vars(connections)["settings"] = connections.configure_settings({})
        _check(words)
        sys.stderr.flush()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code or ONLY_A_QUESTION & set(words):
        sys.exit(code if code >= 0 else 128 - code)


def _check(words: list[str]) -> None:
    """Run a command without its work: it only parses its words, checks its options and reports errors."""
    from django.apps import apps
    from django.core.management import load_command_class

    name = words[0]
    own = own_apps()
    app = own[name] if name in own else installed_app(name)
    if name not in own and name not in PARSED:
        return
    if PARSED.get(name):
        apps.populate(PARSED[name])
    command: Any = load_command_class(app, name)
    check = getattr(command, "check_options", lambda options: None)
    command.handle = lambda *args, **options: check(options)
    command.requires_system_checks, command.requires_migrations_checks = [], False
    command.run_from_argv([sys.argv[0], *words])


def own_apps() -> dict[str, str]:
    """Return each command of webapp and the application that has it."""
    files = APPS.glob("*/management/commands/[!_]*.py")
    return {file.stem: f"tidegauge.webapp.{file.parents[2].name}" for file in files}


def installed_app(name: str) -> str:
    """Return the application that has a command, the first if several have; exit as Django does if none has."""
    from django.conf import settings
    from django.core import management

    from tidegauge.pipelines.embedded.addresses import are_known
    from tidegauge.pipelines.embedded.data_dir import data_dir

    if not are_known():
        data_dir()  # fails with one line if the folder of the servers and the secret key cannot be created
    apps = dict.fromkeys(management.find_commands(management.__path__[0]), "django.core")
    for app in reversed(settings.INSTALLED_APPS):
        with suppress(ModuleNotFoundError):
            for folder in getattr(find_spec(app), "submodule_search_locations", None) or ():
                apps |= dict.fromkeys(management.find_commands(str(Path(folder) / "management")), app)
    if name not in apps and os.environ["DJANGO_SETTINGS_MODULE"] == "tidegauge.webapp.settings":
        near = get_close_matches(name, apps)
        meant = f". Did you mean {near[0]}?" if near else ""
        sys.stderr.write(f"Unknown command: {name!r}{meant}\nType '{Path(sys.argv[0]).name} help' for usage.\n")
        sys.exit(1)
    return apps.get(name, "")
