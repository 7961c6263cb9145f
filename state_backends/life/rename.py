"""Rename a state or a pipeline, wherever its name is stored, in one transaction. The old name then points to the new.

A state outside the ledger's database is first copied to its new name, because its keys cannot be renamed in one step.
The transaction then switches to the copy, and the old rows are dropped after it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import LiteralString

import psycopg
from psycopg.types.json import Jsonb

from tidegauge.state_backends.errors import LifeError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.life.copying import copy_state
from tidegauge.state_backends.life.settled import Position, at_rest, pipeline_of, position
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.definition import definition, from_definition
from tidegauge.state_backends.schema.former import Fate, Former, Kind
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.table_locks import locked_tables
from tidegauge.state_backends.spec.state_spec import NAME, NAME_RULE, StateSpec

Within = Callable[[psycopg.Connection], object]

# Other rows with the name of a state or pipeline. Its own row is copied before and deleted after, because they refer to
# it.
OF_STATE: list[LiteralString] = [
    "UPDATE tidegauge.maintenance_run SET state = %(new)s WHERE state = %(old)s",
    "UPDATE tidegauge.dead_letter SET state = %(new)s WHERE state = %(old)s AND pipeline = %(pipeline)s",
    *(
        f"UPDATE tidegauge.batch SET {column} = ({column} - %(old)s) || jsonb_build_object(%(new)s::text, "  # noqa: S608
        f"{column} -> %(old)s) WHERE pipeline = %(pipeline)s AND {column} ? %(old)s"
        for column in ("keys_written", "tasks", "ttls")
    ),
]
OF_PIPELINE: list[LiteralString] = [
    f"UPDATE tidegauge.{table} SET pipeline = %(new)s WHERE pipeline = %(old)s"  # noqa: S608  constants
    for table in (
        "batch", "driver", "pipeline_wish", "state", "dead_letter", "input_file", "first_input", "reprocess", "former",
    )
]  # fmt: skip
COPY = (
    "INSERT INTO tidegauge.{0} SELECT (jsonb_populate_record(r, jsonb_build_object('name', %(new)s::text))).* "
    "FROM tidegauge.{0} r WHERE r.name = %(old)s"
)


def rename_state(
    conn: psycopg.Connection, old: str, new: str, *, by: str = "", within: Within = lambda conn: None
) -> None:
    """Rename a state: its tables, changelog and view, catalog row, settings, batches and maintenance runs.

    conn: in autocommit mode. within: called in the transaction, to rename what callers store under the name. Safe to
    re-run after a crash. Drops the tables kept for rolling back the last reprocess, because they would come back under
    the old name. Raises UnknownStateError, SpecError for an invalid name, LifeError for one that is taken,
    PipelineHeldError, StateBusyError, SwapError.
    """
    # Not if an earlier call has switched, and was killed before it dropped the old rows.
    if not _is_renamed(conn, "state", old, new):
        spec = Catalog(conn).get(old)
        target = replace(spec, name=new)
        _check_free(conn, "state", old, new, Catalog(conn).names())
        pipeline = pipeline_of(conn, old)
        with at_rest(conn, [pipeline], [old, new]):
            _rename_state(conn, spec, target, position(conn, pipeline), by, within)
    _drop_old_rows(conn, old)


def _rename_state(
    conn: psycopg.Connection, spec: StateSpec, target: StateSpec, at: Position, by: str, within: Within
) -> None:
    backend = BACKENDS[spec.backend]
    is_here = backend.tables is not None
    if backend.tables:
        backend.tables.check_names(conn, target, [])
    else:
        copy_state(conn, spec, target, at)
    with locked_tables(conn, [spec.name]):
        Kept(conn, at.pipeline).drop()
        names = {"old": spec.name, "new": target.name, "pipeline": at.pipeline}
        conn.execute(COPY.format("state"), names)
        for statement in OF_STATE:
            conn.execute(statement, names)
        conn.execute("DELETE FROM tidegauge.state WHERE name = %s", [spec.name])
        backend.rename(conn, spec, target)
        if not is_here:
            backend.end_copy(conn, target, at.committed)
        _record(conn, "state", spec.name, target.name, at, by, unfinished=not is_here)
        conn.execute(
            "UPDATE tidegauge.former SET definition = %s WHERE kind = 'state' AND name = %s",
            [Jsonb(definition(replace(spec, changelog=False))), spec.name],
        )
        within(conn)
        notify(conn, at.pipeline)


def _drop_old_rows(conn: psycopg.Connection, old: str) -> None:
    found = former.former(conn, "state", old)
    if found is not None and found.unfinished:
        spec = from_definition(old, former.loaded(found), None)
        BACKENDS[spec.backend].drop(conn, spec)
        former.finish(conn, "state", old)


def rename_pipeline(conn: psycopg.Connection, old: str, new: str, *, by: str = "") -> None:
    """Rename a pipeline in the ledger, with its batches, states, dead letters and driver status.

    Its checkpoint stays where it is. Drops the tables kept for rolling back the last reprocess. Raises
    UnknownPipelineError, LifeError for a name that is invalid or taken, PipelineHeldError, StateBusyError, SwapError.
    """
    if _is_renamed(conn, "pipeline", old, new):
        return
    position(conn, old)
    if not NAME.fullmatch(new):
        raise LifeError(f"pipeline {new!r}: invalid name; {NAME_RULE}")
    found = conn.execute("SELECT name FROM tidegauge.pipeline ORDER BY name")
    _check_free(conn, "pipeline", old, new, [name for (name,) in found])
    with at_rest(conn, [old, new], Catalog(conn).names(old)), conn.transaction():
        at, names = position(conn, old), {"old": old, "new": new}
        Kept(conn, old).drop()
        conn.execute(COPY.format("pipeline"), names)
        for statement in OF_PIPELINE:
            conn.execute(statement, names)
        conn.execute("DELETE FROM tidegauge.pipeline WHERE name = %s", [old])
        _record(conn, "pipeline", old, new, at, by)
        notify(conn, new)


def _is_renamed(conn: psycopg.Connection, kind: Kind, old: str, new: str) -> bool:
    found = former.former(conn, kind, old)
    return found is not None and found.unfinished and (found.fate, found.detail) == (Fate.RENAMED, new)


def _check_free(conn: psycopg.Connection, kind: Kind, old: str, new: str, names: list[str]) -> None:
    """Raise LifeError unless the new name is free, or is the former name of what is renamed."""
    taken = former.former(conn, kind, new)
    if taken is not None and (taken.fate, taken.detail, taken.unfinished) == (Fate.RENAMED, old, False):
        return
    if new in names or taken is not None:
        raise LifeError(
            f"{kind} {new!r}: the name is taken"
            + (f": {taken}; choose another one, or free it with {taken.freed_by}" if taken else "; choose another one")
        )


def _record(
    conn: psycopg.Connection, kind: Kind, old: str, new: str, at: Position, by: str, unfinished: bool = False
) -> None:
    pipeline = new if kind == "pipeline" else at.pipeline
    former.forget(conn, kind, new)
    former.record(conn, Former(kind, old, Fate.RENAMED, pipeline, at.committed, new, unfinished=unfinished, by=by))
