"""Asked: the keys of a question, each beside the version of its row that a reader sees, and what became of it.

Shared by lookups, which answer key by key, and by combine, which folds them into one. Both give a FROM clause with the
keys as `k`, their versions as `v`, nulls where there is none, and `r.status`: `found`, `missing` or `expired`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from psycopg import sql

from tidegauge.state_backends.committed import (
    NOW,
    REACH,
    THEN,
    TTL,
    answer_now,
    answer_then,
    committed_columns,
    exists_at_commit,
    live_sql,
    row_then,
)
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.reader.groups import fold_all
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column
from tidegauge.state_backends.spec.table import StateTable, commas


def asked_now(table: StateTable) -> sql.Composed:
    """Return the clause at the committed batch, over the rows `s` and `p` of state and ledger."""
    status = sql.SQL(
        "CASE WHEN t.{first} IS NULL OR NOT {exists} OR v.removed THEN 'missing' WHEN {live} THEN 'found' "
        "ELSE 'expired' END"
    ).format(first=sql.Identifier(next(iter(table.key))), exists=exists_at_commit(table), live=live_sql("v", TTL, NOW))
    return sql.SQL(
        "{keys} LEFT JOIN {table} t ON {same} CROSS JOIN LATERAL (SELECT {picked}) v "
        "CROSS JOIN LATERAL (SELECT {status} AS status) r"
    ).format(
        keys=table.unnest(with_ordinality=True),
        table=table.name,
        same=table.same_key("k", "t"),
        picked=committed_columns(table, table.version),
        status=status,
    )


def asked_then(table: StateTable) -> sql.Composed:
    """Return the clause as of an earlier batch, over `s` and the ledger then; REACH of `v` is from where it is told."""
    status = sql.SQL(
        "CASE WHEN coalesce(v.removed, true) THEN 'missing' WHEN {} THEN 'found' ELSE 'expired' END"
    ).format(live_sql("v", TTL, THEN))
    return sql.SQL(
        "{keys} LEFT JOIN LATERAL {version} v ON true CROSS JOIN LATERAL (SELECT {status} AS status) r"
    ).format(keys=table.unnest(with_ordinality=True), version=row_then(table), status=status)


# Combined: the values of many keys as one, folded by the aggregators themselves. Trident's DRPC aggregate.
#
# The database picks the versions, as for a lookup, and sends them column by column; Python folds, since SQL can
# neither fold a sketch nor a measure of a user's own. So counts add, distinct counts are unions, and quantiles merge.


# How many keys are in each; the stored columns follow, under names that no measure can meet.
STATUSES = ("found", "missing", "expired")


def combine_sql(table: StateTable, measures: Sequence[str]) -> sql.Composed:
    """Return the statement: COMMITTED_BATCH, the state's ttl, the time of the oldest version found, then what `folded`
    takes.
    """
    results = sql.SQL(
        "SELECT {gathered}, min(v.updated_at) FILTER (WHERE r.status = 'found') AS oldest FROM {asked}"
    ).format(gathered=_gathered(table.spec, measures), asked=asked_now(table))
    return answer_now(results, sql.SQL("s.ttl, f.oldest, {}").format(_shown(table.spec, measures)))


def combine_then_sql(table: StateTable, measures: Sequence[str]) -> sql.Composed:
    """Return the same as of an earlier batch, see `answer_then`."""
    results = sql.SQL("SELECT {gathered}, max(v.{reach}) AS {reach} FROM {asked}").format(
        gathered=_gathered(table.spec, measures), reach=REACH, asked=asked_then(table)
    )
    return answer_then(table, results, _shown(table.spec, measures))


def width(spec: StateSpec, measures: Sequence[str]) -> int:
    """Return how many columns `folded` takes."""
    return len(STATUSES) + len(spec.stored_columns(measures))


def folded(spec: StateSpec, measures: Sequence[str], row: Sequence[Any]) -> bytes:
    """Return the one result as a JSON array; no key found gives what an empty state gives."""
    found, missing, expired, *arrays = row
    stored = dict(zip(spec.stored_columns(measures), arrays, strict=True))
    value = {measure: _combined(measure, spec.measures[measure], stored, found) for measure in measures}
    parts = ", ".join(f"{json.dumps(measure)}: {_json(part)}" for measure, part in value.items())
    return f'[{{"keys": {found}, "missing": {missing}, "expired": {expired}, "value": {{{parts}}}}}]'.encode()


def _gathered(spec: StateSpec, measures: Sequence[str]) -> sql.Composed:
    counts = [
        sql.SQL("count(*) FILTER (WHERE r.status = {}) AS {}").format(sql.Literal(status), sql.Identifier(status))
        for status in STATUSES
    ]
    arrays = [
        # JSON travels as text: connections differ in how they load it.
        sql.SQL("array_agg(v.{}{} ORDER BY k.ordinality) FILTER (WHERE r.status = 'found') AS {}").format(
            sql.Identifier(name), sql.SQL("::text" if sql_type == "jsonb" else ""), sql.Identifier(f"c{place}")
        )
        for place, (name, sql_type) in enumerate(spec.stored_columns(measures).items())
    ]
    return commas([*counts, *arrays])


def _shown(spec: StateSpec, measures: Sequence[str]) -> sql.Composed:
    places = range(len(spec.stored_columns(measures)))
    return commas(sql.Identifier("f", name) for name in [*STATUSES, *(f"c{place}" for place in places)])


def _combined(measure: str, aggregator: Aggregator, stored: Mapping[str, list[Any] | None], found: int) -> Any:
    suffixes = list(aggregator.columns)
    if not found:
        return aggregator.finish(dict.fromkeys(suffixes))
    arrays = [
        loaded(stored[stored_column(measure, suffix)] or [], sql_type)
        for suffix, sql_type in aggregator.columns.items()
    ]
    values = [dict(zip(suffixes, parts, strict=True)) for parts in zip(*arrays, strict=True)]
    return aggregator.finish(fold_all(aggregator, values))


def loaded(array: list[Any], sql_type: str) -> list[Any]:
    """Return the values of a column that came as an array; JSON in it is text."""
    if sql_type != "jsonb":
        return array
    return [None if text is None else json.loads(text) for text in array]


def _json(value: Any) -> str:
    """Write a finished value as PostgreSQL does in a lookup's answer."""
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return json.dumps(_timestamp(value) if isinstance(value, datetime) else value)


def _timestamp(value: datetime) -> str:
    offset = value.isoformat()[-len("+00:00") :]
    return value.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + offset
