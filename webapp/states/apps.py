from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from webapp.core import pooler


class StatesConfig(AppConfig):
    name = "webapp.states"
    verbose_name = "Tidegauge"

    def ready(self) -> None:
        from webapp.core.checks import https
        from webapp.core.roles import regrant

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
