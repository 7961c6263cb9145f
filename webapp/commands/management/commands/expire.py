"""Expire states now: remove the rows whose time to live has passed."""

from tidegauge.webapp.commands.management.maintenance_command import MaintenanceCommand


class Command(MaintenanceCommand):
    help = "Remove the rows whose ttl has passed"
    kind = "expiry"
