"""Further states of a pipeline, as a test needs them."""

from collections.abc import Mapping
from typing import Any

import psycopg

from tidegauge.state_backends import Catalog, PostgresBackingMap, StateSpec, Versioned


def add_state(
    conn: psycopg.Connection, spec: StateSpec, rows: Mapping[Any, Any], pipeline: str = "flights", txid: int = 1
) -> None:
    """Register a further state of a pipeline and fill it, key to value, as of a batch."""
    Catalog(conn).register_states(pipeline, [spec], {spec.name: "exactly once"})
    PostgresBackingMap(conn, spec).multi_put(list(rows), [Versioned(value, txid) for value in rows.values()])
