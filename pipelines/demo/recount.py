"""The recount: what the demo's states must hold, computed from the raw input in plain Python."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pipelines.demo.flights_input import Flight, read_flights
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns

Values = dict[tuple[Any, ...], tuple[Any, ...]]


def recount() -> dict[str, Values]:
    """Return state name to key to measures, in the order of their declarations."""
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
