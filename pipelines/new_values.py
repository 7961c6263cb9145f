"""New values: what a batch made of the keys it wrote, and what was there before, for the streams that go on from it.

One row per key: key, finished measures, and for an opaque state those of the version before, null where readers saw
none. PostgreSQL makes them where the rows are; rows of another store are finished here, to the same values.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from psycopg import sql

from state_backends.committed import finished, is_live, live_sql
from state_backends.row import Key, Versioned
from state_backends.spec import StateSpec
from state_backends.table import StateTable, commas
from state_backends.types import type_of

# Spark's decimal(38, 9).
NUMERIC_STEP = Decimal("1e-9")


def new_values_sql(table: StateTable) -> sql.Composed:
    """Return the statement for what a merge made of the keys in the temporary table `incoming`."""
    spec = table.spec
    parts: list[sql.Composable] = [_emitted(sql.Identifier("t", name), kind) for name, kind in spec.key.items()]
    for measure, aggregator in spec.measures.items():
        parts.append(_emitted(finished(measure, aggregator, "t"), aggregator.result_type))
    if table.keeps_previous:
        for measure, aggregator in spec.measures.items():
            before = _emitted(finished(measure, aggregator, "before"), aggregator.result_type)
            parts.append(sql.SQL("CASE WHEN before.was THEN {} END").format(before))
    return sql.SQL("SELECT {parts} FROM {table} t JOIN incoming i ON {same} {before}").format(
        parts=commas(parts),
        table=table.name,
        same=table.same_key("i", "t"),
        before=_before_sql(table) if table.keeps_previous else sql.SQL(""),
    )


def new_values(
    spec: StateSpec, keys: Sequence[Key], rows: Sequence[Versioned | None], batch_time: datetime
) -> Iterator[tuple[Any, ...]]:
    """Yield the same of rows that a merge has written. rows[i]: what is stored under keys[i]; None is left out."""
    nothing = (None,) * len(spec.measures)
    for key, row in zip(keys, rows, strict=True):
        if row is None:
            continue
        emitted = (*map(_plain, key, spec.key.values()), *_finished(spec, row.value))
        if spec.kind == "opaque":
            was = row.prev_txid is not None and row.prev_at is not None
            was = was and is_live(row.prev is None, row.prev_at, spec.ttl, batch_time)  # type: ignore[arg-type]
            emitted += _finished(spec, row.prev) if was else nothing
        yield emitted


def _finished(spec: StateSpec, value: Any) -> tuple[Any, ...]:
    measures = spec.finish(value)
    return tuple(_plain(measures[name], aggregator.result_type) for name, aggregator in spec.measures.items())


def _plain(value: Any, sql_type: str) -> Any:
    """Return what Arrow takes, as `_emitted` has PostgreSQL cast it."""
    if value is None:
        return None
    kind = type_of(sql_type)
    if kind.python is Decimal:
        return Decimal(value).quantize(NUMERIC_STEP)
    if not kind.is_text_in_spark:
        return value
    return json.dumps(value) if kind.python is object else str(value)


def _before_sql(table: StateTable) -> sql.Composed:
    return sql.SQL("CROSS JOIN LATERAL (SELECT {previous}, t.prev_txid IS NOT NULL AND {live} AS was) before").format(
        live=live_sql("t", sql.SQL("%(ttl)s::interval"), sql.Placeholder("batch_time"), "prev_"),
        previous=commas(
            sql.SQL("{} AS {}").format(sql.Identifier("t", f"prev_{name}"), sql.Identifier(name))
            for name in table.values
        ),
    )


def _emitted(expression: sql.Composable, sql_type: str) -> sql.Composable:
    """Cast what Arrow would not take as PostgreSQL gives it."""
    kind = type_of(sql_type)
    if kind.python is Decimal:
        return sql.SQL("({})::numeric(38, 9)").format(expression)
    return sql.SQL("({})::text").format(expression) if kind.is_text_in_spark else expression
