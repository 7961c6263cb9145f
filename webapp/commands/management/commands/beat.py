"""Send the scheduled tasks, if no worker does."""

from typing import Any

from tidegauge.webapp.commands.management.server_command import ServerCommand
from tidegauge.webapp.serving import process_commands


class Command(ServerCommand):
    help = "Send the scheduled tasks to the workers, which all need --no-schedule then. Run it once."

    def command(self, options: dict[str, Any]) -> list[str]:
        return process_commands.beat()
