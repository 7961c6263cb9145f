"""Compact states now: remove what neither replays nor readers need."""

from webapp.states.management.maintenance_command import MaintenanceCommand
from webapp.states.models import MaintenanceRun


class Command(MaintenanceCommand):
    help = "Remove what neither replays nor readers need: old changelog entries, tombstones, unused space"
    kind = MaintenanceRun.Kind.COMPACTION
