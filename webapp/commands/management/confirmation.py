"""Confirmation on a terminal, for commands that cannot be undone."""

import sys

from django.core.management.base import BaseCommand, CommandError


def confirm(command: BaseCommand, what: str, *, yes: bool) -> None:
    """Print what is about to be done and ask for a `yes`. Raises CommandError for another answer.

    yes: do not ask. It is required if nobody can answer, as in a script.
    """
    command.stdout.write(what)
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("nothing was done: there is no terminal to confirm it; run it with --yes", returncode=2)
    if input("Type yes to continue: ").strip() != "yes":
        raise CommandError("nothing was done")
