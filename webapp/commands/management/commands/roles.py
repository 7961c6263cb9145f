"""Set up the database roles that Tidegauge's processes connect as, or check them."""

import os
from argparse import ArgumentParser
from getpass import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.schema import role_setup
from tidegauge.state_backends.schema.roles import PARTS, PREFIX, Roles, of_database

# The processes that connect as each role, for the list of addresses.
USERS = {
    "owner": "migrate",
    "pipeline": "run_pipeline",
    "web": "the web and events processes",
    "worker": "Celery workers, commands of operators",
    "reader": "people with SQL",
}
SHORTEST_PASSWORD = 12


class Command(BaseCommand):
    help = (
        "Create or repair the roles that Tidegauge's processes connect as. DATABASE_URL must name a superuser, or the "
        "role that owns the database so far, with CREATEROLE. Passwords come from the environment: "
        + ", ".join(f"TIDEGAUGE_{part.upper()}_PASSWORD" for part in PARTS)
        + "; a role whose variable is unset keeps its password."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only say what the roles lack; exit 1 if anything")
        parser.add_argument("--ask", action="store_true", help="ask for passwords that are not in the environment")
        parser.add_argument(
            "--prefix", help=f"what the names begin with (default: {PREFIX}, or as the database was set up)"
        )
        parser.add_argument(
            "--changes", action="store_true", help="let pipelines read changes of tables (PostgresChanges)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import readers
        from tidegauge.webapp.catalog.roles import django_tables

        with readers.own_connection() as conn:
            known = of_database(conn)
            roles = Roles(options["prefix"]) if options["prefix"] else known or Roles()
            if known is not None and known != roles:
                raise CommandError(
                    f"--prefix {roles.prefix}: this database was set up with the roles of prefix {known.prefix!r}"
                )
            if options["check"]:
                return self._check(role_setup.findings(conn, roles, django_tables()))
            passwords = self._passwords(roles, ask=options["ask"])
            try:
                role_setup.set_up(conn, roles, django_tables(), passwords, changes=options["changes"])
            except TidegaugeError as error:
                raise CommandError(str(error)) from error
            place = f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}"
            for part in PARTS:
                self.stdout.write(f"postgresql://{roles[part]}@{place}  {USERS[part]}")
            self._warn(role_setup.without_password(conn, roles))

    def _check(self, found: list[str]) -> None:
        for line in found:
            self.stdout.write(line)
        if found:
            raise CommandError("the roles are not as they should be; run `roles` as a superuser to repair them")
        self.stdout.write("the roles are as they should be")

    def _passwords(self, roles: Roles, *, ask: bool) -> dict[str, str]:
        found = {part: os.environ.get(f"TIDEGAUGE_{part.upper()}_PASSWORD", "") for part in PARTS}
        for part in PARTS if ask else ():
            found[part] = found[part] or getpass(f"password of {roles[part]} (empty: keep it): ")
        return {part: checked_password(roles[part], password) for part, password in found.items() if password}

    def _warn(self, names: list[str] | None) -> None:
        for name in names or ():
            self.stderr.write(f"{name} has no password; set one, unless the server authenticates it in another way")


def checked_password(role: str, password: str) -> str:
    """Return the password, which may be empty. Raises CommandError if it is too short."""
    if password and len(password) < SHORTEST_PASSWORD:
        raise CommandError(
            f"the password of {role} has fewer than {SHORTEST_PASSWORD} characters; make one with "
            "`openssl rand -hex 24`"
        )
    return password
