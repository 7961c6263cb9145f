"""Run the web process: API, dashboard and admin."""

from argparse import ArgumentParser
from typing import Any

from tidegauge.webapp.commands.management.server_command import ServerCommand, add_address, positive
from tidegauge.webapp.serving import process_commands


class Command(ServerCommand):
    help = "Run the web process: API, dashboard and admin. Variables such as GRANIAN_UDS set more options of granian."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_address(parser, 8000)
        parser.add_argument("--workers", type=positive, default=2, help="how many processes (default: %(default)s)")

    def command(self, options: dict[str, Any]) -> list[str]:
        return process_commands.web(options["port"], host=options["host"], workers=options["workers"])
