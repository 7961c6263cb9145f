"""Check the whole installation, and say for each finding what to do."""

import json
import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from tidegauge.pipelines.errors import failure_reason
from tidegauge.webapp.commands.management.doctor import database, installation, redis_server, running
from tidegauge.webapp.commands.management.doctor.finding import ERROR, Finding

REDIS_URLS = ("REDIS_URL", "TIDEGAUGE_REDIS_URL")


class Command(BaseCommand):
    help = (
        "Check connections, versions, settings, roles, clocks, disk, Redis, pipelines, states, checkpoints, "
        "declarations and the worker. Changes nothing. The exit status is 1 after an error, and 0 after warnings."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one line of JSON per finding, facts included")

    def handle(self, *args: Any, **options: Any) -> None:
        wrong = 0
        for found in _findings():
            wrong += found.level == ERROR
            self.stdout.write(json.dumps(asdict(found)) if options["json"] else _line(found))
        if wrong:
            raise CommandError(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong")


def _line(found: Finding) -> str:
    remedy = f"\n{'':8}-> {found.remedy}" if found.remedy else ""
    return f"{found.level:7} {found.check}: {found.message}{remedy}"


def _findings() -> Iterator[Finding]:
    for check in (installation.check_settings, installation.check_versions, installation.check_disk):
        yield from _guarded(check.__name__.removeprefix("check_"), check)
    yield from _guarded("database", _of_database)


def _of_database() -> Iterator[Finding]:
    from tidegauge.webapp.catalog import readers

    try:
        conn = readers.own_connection("doctor")
    except ImproperlyConfigured as error:  # a connection pooler
        yield Finding("database", ERROR, str(error), "set DATABASE_DIRECT_URL to the address of the server itself")
        yield from _redis(holds_states=False)
        return
    except (psycopg.Error, DatabaseError) as error:
        yield Finding("database", ERROR, failure_reason(error), '`psql "$DATABASE_URL" -c "SELECT 1"`')
        yield from _redis(holds_states=False)
        return
    with conn:
        tables = list(_guarded("tables", partial(database.check_tables, conn)))
        before = (database.check_server, database.check_roles, database.check_clock, database.check_slots)
        for check in before:
            yield from _guarded(check.__name__.removeprefix("check_"), partial(check, conn))
        yield from tables
        if any(found.level == ERROR for found in tables):
            yield from _redis(holds_states=False)
            return
        yield from _guarded("redis", lambda: _redis(holds_states=_are_outside(conn)))
        for check in (
            running.check_pipelines, running.check_states, running.check_checkpoints, running.check_declarations,
            running.check_worker,
        ):  # fmt: skip
            yield from _guarded(check.__name__.removeprefix("check_"), partial(check, conn))


def _redis(*, holds_states: bool) -> Iterator[Finding]:
    urls = {name: url for name in REDIS_URLS if (url := os.environ.get(name))}
    of_states = "TIDEGAUGE_REDIS_URL" if "TIDEGAUGE_REDIS_URL" in urls else "REDIS_URL"
    for name, url in urls.items():
        yield from redis_server.check_redis(url, name, holds_states=holds_states and name == of_states)


def _are_outside(conn: psycopg.Connection) -> bool:
    """Return whether rows of a state are outside of the database."""
    from tidegauge.state_backends import BACKENDS
    from tidegauge.webapp.catalog import queries

    return any(BACKENDS[state.backend].tables is None for state in queries.states())


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds, and that it failed, so that the others still run."""
    try:
        yield from check()
    except Exception as error:
        yield Finding(
            name,
            ERROR,
            f"this cannot be checked: {failure_reason(error)}",
            "correct what it names: `tidegauge doctor` checks again",
        )
