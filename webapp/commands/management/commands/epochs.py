"""List the ledger's epochs."""

from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "List the epochs of the ledger, newest first: when and why each was made."
    requires_migrations_checks = True

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries

        for epoch in queries.epochs():
            self.stdout.write(f"{epoch['epoch']} since {epoch['made_at']:%Y-%m-%d %H:%M:%S %Z}: {epoch['reason']}")
