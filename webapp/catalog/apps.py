from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from tidegauge.webapp.core import pooler


class StatesConfig(AppConfig):
    name = "tidegauge.webapp.catalog"
    label = "states"  # tables, permissions and pages of the admin are named after it
    verbose_name = "Tidegauge"

    def ready(self) -> None:
        from tidegauge.webapp.accounts import restrictable
        from tidegauge.webapp.catalog.queries import state_names
        from tidegauge.webapp.catalog.roles import regrant
        from tidegauge.webapp.core.checks import https

        restrictable.register("states", state_names)
        checks.register(https, checks.Tags.security)
        connection_created.connect(prepare)
        # Once for all apps, because the signal is sent after all migrations, when the tables of every app exist.
        post_migrate.connect(regrant, sender=self)


def prepare(connection: Any, **_: Any) -> None:
    """Apply the settings that the library relies on to each new connection of Django, in place of the role's own."""
    try:
        pooler.prepare(connection.connection)
    except BaseException:
        # Closed, because Django would otherwise use the unprepared connection for the next request.
        connection.close()
        raise
