"""Merge: fold a batch's partial aggregates into a state table, on the server, in one statement.

Where SQL cannot fold a measure, the values that the batch builds on are read, folded in Python, and written by the
same statement, which then only shifts the versions: the generic path.

Trident's opaque rule per row: written by this txid already (a replay) -> fold into the version before; by an older
one -> the current version becomes the previous one, then fold; by a newer one -> leave it alone, and the caller
raises. So it is with a row of this txid where nothing can have run before. A version that is no longer live at the
batch time counts as nothing. Transactional rows that carry this txid are skipped; non-transactional ones always fold. A
key whose count of rows becomes 0 is removed (see RowCount).
"""

from typing import LiteralString

from psycopg import sql

from tidegauge.state_backends.committed import live_sql
from tidegauge.state_backends.spec.state_spec import stored_column
from tidegauge.state_backends.spec.table import StateTable, columns, commas

TXID, CLOCK, TTL = sql.Placeholder("txid"), sql.Placeholder("batch_time"), sql.Placeholder("ttl")

# The newest batch whose rows may be there: `txid`, or the one before it where this is the first run of a task.
NEWEST = sql.Placeholder("newest")

# While the settings of the first statement are in force, until the second one, every row is looked up by its key. The
# planner knows nothing of the incoming rows, and might read the whole state for a few of them. Without jit, because to
# PostgreSQL 17 it costs so much to read the incoming rows in spite of the settings that it would compile the statement.
_PLANS = "FROM unnest('{enable_hashjoin,enable_mergejoin,enable_seqscan,jit}'::text[]) name"
BY_KEY: LiteralString = f"SELECT set_config(name, 'off', true) {_PLANS}"
AS_BEFORE: LiteralString = f"SELECT set_config(name, NULL, true) {_PLANS}"


def merge_sql(table: StateTable, *, in_order: bool = False) -> sql.Composed:
    """Return the statement; parameters txid, newest, batch_time and ttl, rows from the table `incoming`.

    in_order: whether they lie there in key order, in which two runs of a task must lock theirs.
    Run it while BY_KEY is in force. If another run of the task is inserting the same key, MERGE waits for it and fails
    with UniqueViolation: run it again then.
    """
    order = sql.SQL("") if in_order else sql.SQL("ORDER BY {}").format(columns(table.key))
    names = [*table.key, *table.values]
    written = [*names, "removed", "updated_at", *(["txid"] if table.keeps_txid else [])]
    return sql.SQL(
        "MERGE INTO {table} t USING (SELECT {incoming} FROM {rows} {order}) i ON {same} "
        "WHEN MATCHED AND {applies} THEN UPDATE SET {assignments} "
        "WHEN NOT MATCHED THEN INSERT ({written}) VALUES ({given}, {stamp})"
    ).format(
        table=table.name,
        incoming=columns(names),
        rows=table.incoming,
        order=order,
        same=table.same_key("i", "t"),
        applies=_applies(table),
        assignments=commas(_assignments(table)),
        written=columns(written),
        given=columns(names, "i"),
        stamp=commas([_is_empty(table, folds=False), CLOCK, *([TXID] if table.keeps_txid else [])]),
    )


def base_sql(table: StateTable) -> sql.Composed:
    """Return the query for what the batch builds on, by key: the number in the arrays of keys, the stored columns.

    Parameters as of merge_sql, and an array per key column, `key_0` and so on. The rows stay locked, in key order.
    """
    arrays = commas(
        sql.SQL("{}::{}[]").format(sql.Placeholder(f"key_{number}"), sql.SQL(sql_type))
        for number, sql_type in enumerate(table.key.values())
    )
    return sql.SQL(
        # Row by row through the primary key: a hash join would read the whole table for every few thousand rows.
        "SELECT k.ordinality, b.* "
        "FROM (SELECT * FROM unnest({arrays}) WITH ORDINALITY AS k ({names}) ORDER BY {key}) k "
        "CROSS JOIN LATERAL (SELECT {base} FROM {table} t WHERE {same} FOR UPDATE OF t) b"
    ).format(
        base=commas(_base(table, name) for name in table.values),
        arrays=arrays,
        names=columns([*table.key, "ordinality"]),
        table=table.name,
        same=table.same_key("k", "t"),
        key=columns(table.key),
    )


def _base(table: StateTable, name: str) -> sql.Composed:
    versions = sql.Identifier("t", name), sql.Identifier("t", f"prev_{name}")
    base = _chosen(table, *versions, sql.SQL("NULL"))
    return sql.SQL("({})::text").format(base) if table.values[name] == "jsonb" else base


def newer_sql(table: StateTable) -> sql.Composed:
    """Return the query for one row of `incoming` of a batch after `newest`: its key as JSON, and that batch."""
    return sql.SQL(
        "SELECT json_build_array({key})::text, t.txid FROM {rows} i JOIN {table} t ON {same} "
        "WHERE t.txid > {newest} LIMIT 1"
    ).format(
        key=columns(table.key, "t"),
        rows=table.incoming,
        table=table.name,
        same=table.same_key("i", "t"),
        newest=NEWEST,
    )


def incoming_sql(table: StateTable) -> sql.Composed:
    """Return the query for the rows of `incoming` that are folded: key, partials, and the columns they are folded into.

    Parameters as of merge_sql.
    """
    return sql.SQL(
        "SELECT {key}, {partials}, b.* FROM {rows} i CROSS JOIN LATERAL (SELECT {base} FROM {table} t WHERE {same}) b"
    ).format(
        key=columns(table.key, "i"),
        partials=columns(table.spec.partial_columns, "i"),
        rows=table.incoming,
        base=commas(_base(table, name) for name in table.values),
        table=table.name,
        same=table.same_key("i", "t"),
    )


def _applies(table: StateTable) -> sql.Composable:
    if table.keeps_previous:
        return sql.SQL("t.txid <= {}").format(NEWEST)
    return sql.SQL("t.txid < {}").format(TXID) if table.keeps_txid else sql.SQL("true")


def _assignments(table: StateTable) -> list[sql.Composed]:
    assigned = {name: _folded(table, measure, suffix) for measure, suffix, name in _stored(table)}
    assigned |= {"removed": _is_empty(table, folds=True), "updated_at": CLOCK}
    if table.keeps_txid:
        assigned["txid"] = TXID
    if table.keeps_previous:
        assigned |= {f"prev_{name}": _shifted(name) for name in [*table.version, "txid"]}
    return [sql.SQL("{} = {}").format(sql.Identifier(name), value) for name, value in assigned.items()]


def _is_empty(table: StateTable, *, folds: bool) -> sql.Composable:
    """Return whether the key has no rows any more. folds: into row `t`, else there was none. A null counts nothing."""
    measure = table.spec.row_count
    if measure is None:
        return sql.SQL("false")
    count = sql.Identifier("i", measure)
    return sql.SQL("({} IS NOT NULL AND {} = 0)").format(count, _folded(table, measure, "") if folds else count)


def _stored(table: StateTable) -> list[tuple[str, str, str]]:
    return [
        (measure, suffix, stored_column(measure, suffix))
        for measure, aggregator in table.spec.measures.items()
        for suffix in aggregator.columns
    ]


def _shifted(name: str) -> sql.Composable:
    return sql.SQL("CASE WHEN t.txid = {} THEN {} ELSE {} END").format(
        TXID, sql.Identifier("t", f"prev_{name}"), sql.Identifier("t", name)
    )


def _folded(table: StateTable, measure: str, suffix: str) -> sql.Composable:
    fresh = sql.Identifier("i", stored_column(measure, suffix))
    if not table.spec.folds_in_sql:
        return fresh
    return _chosen(table, _fold(table, measure, suffix, ""), _fold(table, measure, suffix, "prev_"), fresh)


def _chosen(
    table: StateTable, current: sql.Composable, before: sql.Composable, nothing: sql.Composable
) -> sql.Composed:
    """Return `current` or `before`, whichever version of row `t` the batch builds on; `nothing` if none is live."""
    live = live_sql("t", TTL, CLOCK)
    if not table.keeps_previous:
        return sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(live, current, nothing)
    return sql.SQL(
        "CASE WHEN t.txid < {txid} THEN CASE WHEN {live} THEN {current} ELSE {nothing} END "
        "WHEN t.prev_txid IS NOT NULL AND {prev_live} THEN {before} ELSE {nothing} END"
    ).format(
        txid=TXID,
        live=live,
        current=current,
        prev_live=live_sql("t", TTL, CLOCK, "prev_"),
        before=before,
        nothing=nothing,
    )


def _fold(table: StateTable, measure: str, suffix: str, version: str) -> sql.Composed:
    aggregator = table.spec.measures[measure]
    names: dict[str, sql.Composable] = {}
    for part in aggregator.columns:
        column = stored_column(measure, part)
        tail = f"_{part}" if part else ""
        names[f"stored{tail}"] = sql.Identifier("t", f"{version}{column}")
        names[f"partial{tail}"] = sql.Identifier("i", column)
    return sql.SQL(aggregator.fold_sql[suffix]).format(**names)
