"""Make the database role as which the console runs SQL."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.schema import sql_role
from tidegauge.webapp.commands.management.commands.roles import checked_password

VARIABLE = "TIDEGAUGE_SQL_PASSWORD"


class Command(BaseCommand):
    help = (
        "Create or repair the role as which the console runs SQL over the live views, and print the address for "
        f"TIDEGAUGE_SQL_URL. DATABASE_URL must name a superuser, or a role with CREATEROLE that owns the live views. "
        f"{VARIABLE}: its password; unset: it keeps the one that it has."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import readers

        password = checked_password("the role for SQL", os.environ.get(VARIABLE, ""))
        with readers.own_connection() as conn:
            try:
                name = sql_role.make(conn, password)
            except TidegaugeError as error:
                raise CommandError(str(error)) from error
            self.stdout.write(f"postgresql://{name}:..@{conn.info.host}:{conn.info.port}/{conn.info.dbname}")
