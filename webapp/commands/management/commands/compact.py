"""Compact states now: remove what neither replays nor readers need."""

from tidegauge.webapp.commands.management.maintenance_command import MaintenanceCommand


class Command(MaintenanceCommand):
    help = "Remove what neither replays nor readers need: old changelog entries, tombstones, unused space"
    kind = "compaction"
