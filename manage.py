#!/usr/bin/env python
"""Tidemark's commands. Those that touch data get their servers first: embedded, unless the environment names some."""

import os
import signal
import sys

from pipelines.embedded import servers
from pipelines.errors import RuntimeSetupError

NEED_NO_SERVERS = {"help", "version", "check", "collectstatic", "diffsettings", "makemigrations", "spectacular"}
ONLY_A_QUESTION = {"--help", "-h", "--version"}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    # An orderly exit stops the embedded servers; a command that stops by itself on SIGTERM sets its own handler.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if needs_servers(sys.argv[1:]):
        try:
            servers.ensure()
        except RuntimeSetupError as error:
            sys.exit(f"tidemark: {error}")

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


def needs_servers(words: list[str]) -> bool:
    """Return whether the command line asks for something that reads or writes data."""
    return bool(words) and words[0] not in NEED_NO_SERVERS and not ONLY_A_QUESTION & set(words)


if __name__ == "__main__":
    main()
