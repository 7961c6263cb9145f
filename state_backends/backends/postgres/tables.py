"""Create, extend, copy, swap and drop the table, the view and the changelog of one state.

A state whose declaration needs another shape is copied, a chunk per transaction, into shadow tables. Readers go on with
the old table until the swap, which is part of the caller's transaction. The caller holds the pipeline, so no batch is
written meanwhile; killed in the middle it leaves the old state whole, and the next attempt starts over.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import LiteralString

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres import privileges, user_indexes
from tidegauge.state_backends.backends.postgres.live_view import replace_view, shows_all
from tidegauge.state_backends.committed import rows_and_ledger
from tidegauge.state_backends.errors import SpecMismatchError
from tidegauge.state_backends.schema.dependents import check_dependents
from tidegauge.state_backends.schema.roles import as_owner
from tidegauge.state_backends.schema.tables import (
    add_column,
    create_changelog,
    define,
    drop_changelog,
    extend_changelog,
)
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas
from tidegauge.state_backends.spec.types import type_of

# Room for more versions of every row on its page, so that updates stay HOT (99.9 % measured at 50) and pages are seldom
# pruned: merging a third of the rows per batch took a tenth less time at 40 than at 50.
FILL_FACTOR = 40

# PostgreSQL names the primary key and the BRIN index after the table; timers.py does so too.
INDEX_SUFFIXES = ("pkey", "txid_idx", "due_idx")
# The index of txids summarises what is on a page when the table is vacuumed; until then a revert reads the new pages.
INSERTED_BEFORE_VACUUM = 0.02  # of the table; PostgreSQL's default is a fifth
STORAGE = sql.SQL("WITH (fillfactor = {}, autovacuum_vacuum_insert_scale_factor = {})").format(
    sql.Literal(FILL_FACTOR), sql.Literal(INSERTED_BEFORE_VACUUM)
)

# Rows that are copied per transaction: about 0.2 s of work here.
CHUNK_ROWS = 50_000

ROW_CONSTRAINTS: dict[str, LiteralString] = {
    "removed": "NOT NULL DEFAULT false",
    "updated_at": "NOT NULL",
    "txid": "NOT NULL",
}


def create(conn: psycopg.Connection, table: StateTable) -> None:
    """Create the state's table, view and changelog. A relation of that name that is there already is an error."""
    with conn.transaction():
        create_rows(conn, table)
        replace_view(conn, table)


def create_missing(conn: psycopg.Connection, table: StateTable) -> None:
    """Create the state's table, view and changelog unless the table exists, whatever its columns are."""
    with conn.transaction():
        # The lock of a registration: of two creators, the second sees the first one's table.
        conn.execute("LOCK TABLE tidegauge.state IN SHARE ROW EXCLUSIVE MODE")
        if not _exists(conn, table):
            create(conn, table)


def create_rows(conn: psycopg.Connection, table: StateTable) -> None:
    """Create the state's table and changelog, without the view."""
    with as_owner(conn, table.schemas[0]):
        conn.execute(_create_table(table))
        for name in _partitions(table):
            conn.execute(_create_partition(table, name))
        if table.keeps_txid:
            conn.execute(_create_txid_index(table))
        if table.spec.changelog:
            create_changelog(conn, table)


def drop_rows(conn: psycopg.Connection, table: StateTable) -> None:
    """Drop the state's table and changelog, if they exist, without the view."""
    conn.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(table.name, table.changelog))


def drop(conn: psycopg.Connection, table: StateTable) -> None:
    """Drop the state's view and every table of it. Raises DependentObjectsError."""
    relations = [table.live_view, table.name, table.changelog]
    check_dependents(
        conn, table.spec.name, relations, "its tables are dropped", "drop that first, or retire with --keep"
    )
    conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(table.live_view))
    conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table.name))
    if table.spec.changelog:
        drop_changelog(conn, table)
    for each in (table.shadow(), table.kept()):
        drop_rows(conn, each)


def rename(conn: psycopg.Connection, old: StateTable, new: StateTable) -> None:
    """Rename the state's tables, partitions, indexes and changelog, and its view, which stays for those built on it."""
    names = _partition_names(old.spec.name, old.spec.partitions)
    renamed = dict(zip(names, _partition_names(new.spec.name, new.spec.partitions), strict=True))
    for name, other in {**renamed, old.spec.name: new.spec.name}.items():
        _rename_table(conn, old.schemas[0], name, other)
    if old.spec.changelog:
        _rename_table(conn, old.schemas[1], old.spec.name, new.spec.name)
    view = sql.Identifier(new.spec.name)
    conn.execute(sql.SQL("ALTER VIEW {} RENAME TO {}").format(old.live_view, view))
    replace_view(conn, new)


def _rename_table(conn: psycopg.Connection, schema: str, old: str, new: str) -> None:
    conn.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql.Identifier(schema, old), sql.Identifier(new)))
    for suffix in INDEX_SUFFIXES:
        conn.execute(
            sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(
                sql.Identifier(schema, f"{old}_{suffix}"), sql.Identifier(f"{new}_{suffix}")
            )
        )


def move_rows(conn: psycopg.Connection, source: StateTable, target: StateTable) -> None:
    """Move a state's table and changelog into the schemas of `target`, from which they must have been dropped."""
    state, changelog = (sql.Identifier(schema) for schema in target.schemas)
    inside = [sql.Identifier(source.schemas[0], name) for name in _partitions(source)]
    for name in [source.name, *inside]:
        conn.execute(sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(name, state))
    if source.spec.changelog:
        conn.execute(sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(source.changelog, changelog))


def add_columns(conn: psycopg.Connection, old: StateTable, new: StateTable) -> None:
    """Add the value columns that `new` has and `old` lacks.

    Rows written before hold nulls there, which every fold takes as nothing.
    """
    names = [name for name in new.values if name not in old.values]
    with conn.transaction():
        for name in names:
            conn.execute(add_column(new.name, name, new.values[name]))
            if new.keeps_previous:
                conn.execute(add_column(new.name, f"prev_{name}", new.values[name]))
        if new.spec.changelog:
            extend_changelog(conn, new, names)
        replace_view(conn, new)


def _exists(conn: psycopg.Connection, table: StateTable) -> bool:
    return bool(conn.execute("SELECT to_regclass(%s) IS NOT NULL", [table.name.as_string()]).fetchall()[0][0])


def _create_table(table: StateTable) -> sql.Composed:
    body: list[sql.Composable] = [define(name, kind, "NOT NULL") for name, kind in table.key.items()]
    # Narrow columns last: each would be padded to eight bytes between the wide ones.
    row = sorted(table.row.items(), key=lambda column: 0 < type_of(column[1]).width < 8)
    body += [define(name, kind, ROW_CONSTRAINTS.get(name, "")) for name, kind in row]
    body.append(sql.SQL("PRIMARY KEY ({})").format(columns(table.key)))
    partitioned = table.spec.partitions > 1
    tail = sql.SQL("PARTITION BY HASH ({})").format(columns(table.key)) if partitioned else STORAGE
    return sql.SQL("CREATE TABLE {} ({}) {}").format(table.name, commas(body), tail)


def _create_txid_index(table: StateTable) -> sql.Composed:
    # A page whose greatest txid is the open batch's was written by it, so a revert reads these pages alone. An index
    # that summarises leaves updates HOT. PostgreSQL names it, as it shares its names with the states' tables. It is not
    # summarised as the table grows, which would be a request for each page.
    return sql.SQL("CREATE INDEX ON {} USING brin (txid) WITH (pages_per_range = 1)").format(table.name)


def _partitions(table: StateTable) -> list[str]:
    return _partition_names(table.spec.name, table.spec.partitions)


def _partition_names(state: str, partitions: int) -> list[str]:
    return [f"{state}_p{number}" for number in range(partitions)] if partitions > 1 else []


def leaf_tables(table: StateTable) -> list[str]:
    """Return the names of the tables that hold a state's rows: its partitions, or itself."""
    return _partitions(table) or [table.spec.name]


def _create_partition(table: StateTable, name: str) -> sql.Composed:
    return sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {}) {}").format(
        sql.Identifier(table.schemas[0], name),
        table.name,
        sql.Literal(table.spec.partitions),
        sql.Literal(_partitions(table).index(name)),
        STORAGE,
    )


def copy_rows(conn: psycopg.Connection, old: StateTable, new: StateTable) -> Iterator[int]:
    """Fill the shadow of `new` with the rows of `old`, a chunk per transaction. Yields the rows copied so far.

    A changelog that `old` lacks begins with what is committed; one that it has is copied as it is.
    """
    shadow = new.shadow()
    drop_rows(conn, shadow)
    create_rows(conn, shadow)
    copied = 0
    for rows in chain(_copy_state(conn, old, shadow), _copy_changelog(conn, old, shadow)):
        copied += rows
        yield copied


def _copy_state(conn: psycopg.Connection, old: StateTable, shadow: StateTable) -> Iterator[int]:
    return _copy(conn, old.name, shadow.name, list(old.key), [*old.key, *old.row])


def _copy_changelog(conn: psycopg.Connection, old: StateTable, shadow: StateTable) -> Iterator[int]:
    if not shadow.spec.changelog:
        return iter(())
    entry = [*old.key, *old.version, "txid"]
    if old.spec.changelog:
        return _copy(conn, old.changelog, shadow.changelog, [*old.key, "txid"], entry)
    return _copy(conn, rows_and_ledger(old), shadow.changelog, list(old.key), entry)


def _copy(
    conn: psycopg.Connection,
    source: sql.Composable,
    target: sql.Identifier,
    order: Sequence[str],
    copied: Sequence[str],
) -> Iterator[int]:
    last: Sequence[object] = ()
    while True:
        after = sql.SQL("({}) > ({})").format(columns(order, "t"), sql.SQL(", ").join([sql.Placeholder()] * len(last)))
        statement = sql.SQL(
            "WITH page AS MATERIALIZED (SELECT {copied} FROM {source} t WHERE {after} "
            "ORDER BY {order} LIMIT {rows}), "
            "copied AS (INSERT INTO {target} ({copied}) SELECT {copied} FROM page) "
            "SELECT count(*) OVER (), {order} FROM page ORDER BY {descending} LIMIT 1"
        ).format(
            copied=columns(copied),
            source=source,
            after=after if last else sql.SQL("true"),
            order=columns(order),
            rows=sql.Literal(CHUNK_ROWS),
            target=target,
            descending=sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in order),
        )
        row = conn.execute(statement, last).fetchone()
        if row is None:
            return
        rows, *last = row
        yield rows


def swap(conn: psycopg.Connection, old: StateTable | None, new: StateTable, *, keep: bool = False) -> None:
    """Put the shadow of `new` in place of `old`, None for a new state, with its view, its owner and its grants.

    keep: keep the tables of `old`, instead of those that were kept before.
    Runs inside the caller's transaction. Raises DependentObjectsError (see check_replaceable).
    """
    with _arriving(conn, new.shadow(), new):
        if old is not None and keep:
            drop_rows(conn, old.kept())
            move_rows(conn, old, old.kept())
        elif old is not None:
            drop_rows(conn, old)


def put_back(conn: psycopg.Connection, current: StateTable | None, old: StateTable | None) -> None:
    """Put the kept tables of `old` in place of `current`, with the view, the owner and the grants that those have.

    Either may be None. Runs inside the caller's transaction. Raises DependentObjectsError (see check_replaceable).
    """
    if old is None and current is not None:
        check_dependents(conn, current.spec.name, [current.live_view, current.name, current.changelog], "it goes")
        conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(current.live_view))
        drop_rows(conn, current)
    elif old is not None:
        with _arriving(conn, old.kept(), old):
            if current is not None:
                drop_rows(conn, current)


@contextmanager
def _arriving(conn: psycopg.Connection, source: StateTable, target: StateTable) -> Iterator[None]:
    """Move a state's tables to where others are, which go within the context.

    The view, the owner, the grants and the indexes of users stay.
    """
    # First, so that the view stands on what arrives when the tables below it go.
    replace_view(conn, source)
    names = target.name, target.changelog
    kept = [(name, privileges.read(conn, name)) for name in names]
    indexes = [user_indexes.read(conn, name, [f"{target.spec.name}_{own}" for own in INDEX_SUFFIXES]) for name in names]
    yield
    move_rows(conn, source, target)
    with as_owner(conn, target.schemas[0]):
        user_indexes.restore(conn, [text for definitions in indexes for text in definitions])
    for name, before in kept:
        privileges.restore(conn, name, before)


def relation_names(state: str, partitions: int) -> tuple[set[str], set[str]]:
    """Return the names of a state's tables, and those of the indexes that PostgreSQL names after them."""
    names = {state, *_partition_names(state, partitions)}
    return names, {f"{name}_{suffix}" for name in names for suffix in INDEX_SUFFIXES}


def check_names(spec: StateSpec, others: Mapping[str, int]) -> None:
    """Check that the names of a state's tables, partitions and indexes are free of those of other states.

    others: name to number of partitions of states in these tables; the state itself may be among them.
    Raises SpecMismatchError. Tables and indexes share their names in a schema.
    """
    own, indexes = relation_names(spec.name, spec.partitions)
    for other, partitions in others.items():
        theirs, their_indexes = relation_names(other, partitions)
        taken = own & theirs | own & their_indexes | indexes & theirs
        if taken and other != spec.name:
            raise SpecMismatchError(
                f"state {spec.name!r}: {min(taken)!r} would be the name of a table, partition or index of it and of "
                f"state {other!r}; choose another name"
            )


def check_replaceable(conn: psycopg.Connection, old: StateTable, new: StateTable) -> None:
    """Check that the tables of `old` can be replaced by those of `new` without a loss for users.

    Raises DependentObjectsError where views or triggers of users, or the like, stand on the tables themselves, or views
    on the live view where one of its columns changes its type or goes.
    """
    check_dependents(conn, old.spec.name, [old.name, old.changelog], "its tables are replaced")
    if not shows_all(old.spec, new.spec):
        check_dependents(conn, old.spec.name, [old.live_view], "its view gets columns of other types, or loses some")
