"""Run the events process: server-sent events."""

from argparse import ArgumentParser
from typing import Any

from tidegauge.webapp.commands.management.server_command import ServerCommand, add_address
from tidegauge.webapp.serving import process_commands


class Command(ServerCommand):
    help = "Run the events process: server-sent events. Variables such as GRANIAN_UDS set more options of granian."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_address(parser, 8001)

    def command(self, options: dict[str, Any]) -> list[str]:
        return process_commands.events(options["port"], host=options["host"])
