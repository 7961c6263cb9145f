from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created

from state_backends import session


class StatesConfig(AppConfig):
    name = "webapp.states"
    verbose_name = "Tidemark"

    def ready(self) -> None:
        connection_created.connect(prepare)


def prepare(connection: Any, **_: Any) -> None:
    """Set what the library relies on in each new connection of Django, whatever the role's own settings are."""
    session.prepare(connection.connection)
