from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from tidegauge.webapp.core import pooler


class StatesConfig(AppConfig):
    name = "tidegauge.webapp.catalog"
    label = "states"  # of its tables, permissions and pages in the admin
    verbose_name = "Tidegauge"

    def ready(self) -> None:
        from tidegauge.webapp.accounts import restrictable
        from tidegauge.webapp.catalog.queries import state_names
        from tidegauge.webapp.catalog.roles import regrant
        from tidegauge.webapp.core.checks import https

        restrictable.register("states", state_names)
        checks.register(https, checks.Tags.security)
        connection_created.connect(prepare)
        # Once for all apps: by then their tables exist.
        post_migrate.connect(regrant, sender=self)


def prepare(connection: Any, **_: Any) -> None:
    """Set what the library relies on in each new connection of Django, whatever the role's own settings are."""
    try:
        pooler.prepare(connection.connection)
    except BaseException:
        # Django would use it for the next request as it is.
        connection.close()
        raise
