"""Create the first person who may sign in and do everything."""

import os
import sys
from getpass import getpass
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

VARIABLE = "TIDEGAUGE_ADMIN_PASSWORD"


class Command(BaseCommand):
    help = f"Create a superuser. The password comes from {VARIABLE}, otherwise the command asks for it."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="admin", help="to sign in with (default: %(default)s)")
        parser.add_argument("--email", default="", help="where alerts may reach this person")

    def handle(self, *args: Any, **options: Any) -> None:
        from django.contrib.auth.models import User
        from django.contrib.auth.password_validation import validate_password
        from django.db import IntegrityError, transaction

        from tidegauge.webapp.accounts.audit.services import record

        if not settings.PASSWORD_SIGN_IN:
            raise CommandError("TIDEGAUGE_PASSWORD_SIGN_IN is 0, so nobody signs in by a password; see docs/access.md")
        name = options["name"]
        user = User(username=name, email=options["email"], is_staff=True, is_superuser=True)
        try:
            user.full_clean(exclude=["password"])
            password = _password()
            validate_password(password, user)
            user.set_password(password)
            with transaction.atomic():
                user.save(force_insert=True)
                record("user.create", f"user {user}", by="command create_admin", is_superuser=True)
        except (ValidationError, IntegrityError) as error:
            if User.objects.filter(username=name).exists():
                raise CommandError(
                    f"user {name!r} exists already; `tidegauge changepassword {name}` gives a new password"
                ) from error
            raise CommandError(
                " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
            ) from error
        self.stdout.write(f"user {user} may do everything; sign in at /login")


def _password() -> str:
    """Return the password. Raises CommandError if there is none, or if the two that were typed differ."""
    if given := os.environ.get(VARIABLE):
        return given
    if not sys.stdin.isatty():
        raise CommandError(f"no password: set {VARIABLE}, or run the command in a terminal, which asks for it")
    password = getpass("Password: ")
    if password != getpass("The same again: "):
        raise CommandError("the two passwords differ; nothing was created")
    return password
