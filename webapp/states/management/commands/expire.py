from webapp.states.management.maintenance_command import MaintenanceCommand
from webapp.states.models import MaintenanceRun


class Command(MaintenanceCommand):
    help = "Free the rows whose time to live has run out"
    kind = MaintenanceRun.Kind.EXPIRY
