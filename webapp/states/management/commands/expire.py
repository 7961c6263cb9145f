"""Expire states now: remove the rows whose time to live has passed."""

from webapp.states.management.maintenance_command import MaintenanceCommand
from webapp.states.models import MaintenanceRun


class Command(MaintenanceCommand):
    help = "Remove the rows whose ttl has passed"
    kind = MaintenanceRun.Kind.EXPIRY
