"""Retire a state, or a pipeline with its states: keep them as they are, archive them, or drop them.

Unless it is kept, all that is in the ledger's database is removed in one transaction, after the archives were read
back. Rows in other stores are dropped after it; for a pipeline, the caller then drops its checkpoint and sources. Until
all of that is done, the record of the former name says that the retirement is unfinished; the next call finishes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

from tidegauge.state_backends.errors import LifeError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.life.archive import archive
from tidegauge.state_backends.life.settled import Position, at_rest, pipeline_of, position
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.definition import definition, from_definition
from tidegauge.state_backends.schema.former import Fate, Former, Kind
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.table_locks import locked_tables
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True)
class Retirement:
    """The retirement of a state, or of a pipeline with all its states.

    fate: kept, archived or dropped. folder: where the archives go. by: who requested it.
    """

    kind: Kind
    name: str
    fate: Fate
    folder: Path | None = None
    by: str = ""

    def run(self, conn: psycopg.Connection) -> Iterator[str]:
        """Retire it, and yield a line for each thing done. Safe to re-run after a crash.

        conn: in autocommit mode. For a pipeline, call `former.finish` once its sources and its checkpoint are dropped.
        Raises UnknownStateError, UnknownPipelineError, PipelineHeldError, StateBusyError, SwapError,
        DependentObjectsError, FindingError, LifeError.
        """
        pending = former.former(conn, self.kind, self.name)
        if pending is None or not pending.unfinished:
            yield from self._retire(conn)
        for state in self._unfinished(conn):
            BACKENDS[state.backend].drop(conn, state)
            former.finish(conn, "state", state.name)
            yield f"state {state.name!r}: dropped from {BACKENDS[state.backend].title}"

    def _retire(self, conn: psycopg.Connection) -> Iterator[str]:
        catalog = Catalog(conn)
        if self.kind == "state":
            catalog.get(self.name)  # called only because it raises for an unknown name
        at = position(conn, self.name if self.kind == "pipeline" else pipeline_of(conn, self.name))
        names = catalog.names(at.pipeline) if self.kind == "pipeline" else [self.name]
        with at_rest(conn, [at.pipeline], names):
            at, specs = position(conn, at.pipeline), [catalog.get(name) for name in names]
            self._check_again(conn)
            yield from self._archive(conn, specs, at)
            with locked_tables(conn, [] if self.fate == Fate.KEPT else names):
                self._settle(conn, specs, at)
        yield f"{self.kind} {self.name!r}: {self.fate} at batch {at.committed}"

    def _check_again(self, conn: psycopg.Connection) -> None:
        found = former.former(conn, self.kind, self.name)
        if found is not None and self.fate == Fate.KEPT:
            raise LifeError(f"{found}; there is nothing left to do")

    def _archive(self, conn: psycopg.Connection, specs: Sequence[StateSpec], at: Position) -> Iterator[str]:
        if self.fate != Fate.ARCHIVED:
            return
        assert self.folder is not None
        for spec in specs:
            written = archive(conn, spec, at, self.folder)
            files = ", ".join(f"{file['rows']} rows in {name}" for name, file in written["files"].items())
            yield f"state {spec.name!r}: archived in {str(self.folder / spec.name)!r}, {files}"

    def _settle(self, conn: psycopg.Connection, specs: Sequence[StateSpec], at: Position) -> None:
        """In the caller's transaction, remove what is not kept, and record what became of each name."""
        if self.fate == Fate.KEPT:
            conn.execute(
                "UPDATE tidegauge.state SET last_fed_txid = coalesce(last_fed_txid, %s) WHERE name = ANY(%s)",
                [at.committed, [spec.name for spec in specs]],
            )
        else:
            Kept(conn, at.pipeline).drop()
            for spec in specs:
                self._drop(conn, spec, at)
        if self.kind == "pipeline":
            self._record(conn, "pipeline", self.name, at, unfinished=True)
            if self.fate != Fate.KEPT:
                conn.execute("DELETE FROM tidegauge.pipeline WHERE name = %s", [self.name])
        elif self.fate == Fate.KEPT:
            self._record(conn, "state", self.name, at)
        notify(conn, at.pipeline)

    def _drop(self, conn: psycopg.Connection, spec: StateSpec, at: Position) -> None:
        is_here = BACKENDS[spec.backend].tables is not None
        if is_here:
            BACKENDS[spec.backend].drop(conn, spec)
        conn.execute("DELETE FROM tidegauge.state WHERE name = %s", [spec.name])
        self._record(conn, "state", spec.name, at, unfinished=not is_here)
        conn.execute(
            "UPDATE tidegauge.former SET definition = %s WHERE kind = 'state' AND name = %s",
            [Jsonb(definition(spec)), spec.name],
        )

    def _record(self, conn: psycopg.Connection, kind: Kind, name: str, at: Position, unfinished: bool = False) -> None:
        where = "" if self.folder is None else str((self.folder / name if kind == "state" else self.folder).absolute())
        found = Former(kind, name, self.fate, at.pipeline, at.committed, where, by=self.by, unfinished=unfinished)
        former.record(conn, replace(found, checkpoint_id=at.checkpoint_id))

    def _unfinished(self, conn: psycopg.Connection) -> list[StateSpec]:
        rows = conn.execute(
            "SELECT name FROM tidegauge.former WHERE kind = 'state' AND unfinished "
            "AND CASE WHEN %s = 'state' THEN name ELSE pipeline END = %s ORDER BY name",
            [self.kind, self.name],
        ).fetchall()
        found = [former.former(conn, "state", name) for (name,) in rows]
        return [from_definition(each.name, former.loaded(each), None) for each in found if each is not None]
