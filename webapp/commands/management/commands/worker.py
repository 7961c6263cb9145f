"""Run the worker: maintenance, alerts, webhooks, and their schedule."""

from argparse import ArgumentParser
from typing import Any

from tidegauge.webapp.commands.management.server_command import ServerCommand, positive
from tidegauge.webapp.serving import process_commands


class Command(ServerCommand):
    help = "Run a Celery worker, which also sends the scheduled tasks. Further workers need --no-schedule."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--concurrency", type=positive, default=2, help="tasks at once (default: %(default)s)")
        parser.add_argument(
            "--no-schedule",
            action="store_true",
            help="do not send the scheduled tasks, because another worker or `beat` does; two would send each twice",
        )

    def command(self, options: dict[str, Any]) -> list[str]:
        return process_commands.worker(concurrency=options["concurrency"], schedule=not options["no_schedule"])
