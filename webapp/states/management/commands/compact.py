from webapp.states.management.maintenance_command import MaintenanceCommand
from webapp.states.models import MaintenanceRun


class Command(MaintenanceCommand):
    help = "Drop what neither a replay nor a reader could need: old changelog entries, tombstones, dead space"
    kind = MaintenanceRun.Kind.COMPACTION
