"""Shared by the commands `web`, `events`, `worker` and `beat`: run a program in place of this process."""

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from tidegauge.pipelines.embedded import servers
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, is_checkout
from tidegauge.webapp.commands.management.child_process import end_with_parent
from tidegauge.webapp.serving import process_commands


class ServerCommand(BaseCommand):
    requires_system_checks: list[str] = []  # the program runs them itself

    def command(self, options: dict[str, Any]) -> list[str]:
        """Return the program and its words. options: as parsed."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        _run(self.command(options))


def add_address(parser: ArgumentParser, port: int) -> None:
    parser.add_argument(
        "--host", default=process_commands.LOOPBACK, help="address to listen on; 0.0.0.0: all (default: %(default)s)"
    )
    parser.add_argument("--port", type=_port, default=port, help="(default: %(default)s)")


def positive(text: str) -> int:
    """Return a number of processes. Raises ArgumentTypeError."""
    if not (text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a number of processes; give 1 or more")
    return int(text)


def _port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 65_536):
        raise ArgumentTypeError(f"{text!r} is not a port; give a number from 1 to 65535")
    return int(text)


def _run(command: list[str]) -> NoReturn:
    """Replace this process by a program, so that signals reach it and a supervisor sees its exit code.

    If this process uses embedded servers, it waits for the program instead, because it has to stop them afterwards.
    """
    environ = {"GRANIAN_LOG_CONFIG": str(process_commands.LOG_CONFIG), **os.environ}
    if is_checkout():  # it is not installed, and the working folder may be another one
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    if not servers.are_used():
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(command[0], command, environ)  # noqa: S606 (no shell reads the words)
    # In a session of its own, because otherwise Ctrl-C would reach it twice.
    program = subprocess.Popen(command, env=environ, start_new_session=True, preexec_fn=end_with_parent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: program.send_signal(number))
    code = program.wait()
    sys.exit(code if code >= 0 else 128 - code)
