"""A clock that stands still for this process and for the sessions of its database, until it is moved.

In the database, functions of the schema `public` are found before PostgreSQL's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import time_machine
from django.db import connection

CLOCKS = ("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp")
CLOCK = """
CREATE OR REPLACE FUNCTION {}() RETURNS timestamptz LANGUAGE sql STABLE
RETURN (SELECT at FROM public.fixed_clock)
"""
DEFAULTS = """
SELECT format('ALTER TABLE %%I.%%I ALTER %%I SET DEFAULT public.now()', table_schema, table_name, column_name)
FROM information_schema.columns WHERE column_default = ANY(%s)
"""


class FixedClock:
    def __init__(self, traveller: time_machine.Traveller, now: datetime) -> None:
        self.now = now
        self._traveller = traveller

    def advance(self, by: timedelta) -> None:
        self.now += by
        self._traveller.move_to(self.now, tick=False)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE public.fixed_clock SET at = %s", [self.now])


@contextmanager
def fixed_clock(now: datetime) -> Iterator[FixedClock]:
    """Stop the clocks at `now`. The database stays changed, so it must be one that a test has to itself."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS public.fixed_clock (at timestamptz)")
        cursor.execute("TRUNCATE public.fixed_clock")  # where an earlier test has stopped the clocks, too
        cursor.execute("INSERT INTO public.fixed_clock VALUES (%s)", [now])
        for name in (*(f"public.{name}" for name in CLOCKS), "tidegauge.clock"):
            cursor.execute(CLOCK.format(name))
        cursor.execute(DEFAULTS, [[f"{name}()" for name in CLOCKS]])
        for [statement] in cursor.fetchall():
            cursor.execute(statement)
        cursor.execute(
            f'ALTER DATABASE "{connection.settings_dict["NAME"]}" SET search_path = "$user", public, pg_catalog'
        )
    connection.close()  # A path is read when a session begins.
    with time_machine.travel(now, tick=False) as traveller:
        yield FixedClock(traveller, now)
