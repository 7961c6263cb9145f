"""Swap (blue/green): a pipeline's states are fed a second time in shadow tables, which then replace those served.

The shadow pipeline has its own ledger, under the pipeline's name with the suffix `@reprocess`. Its txids begin far
above those of the pipeline, which may go on meanwhile, so that readers only see txids rise. One transaction swaps all.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta

import psycopg

from tidegauge.state_backends.changelog import Changelog
from tidegauge.state_backends.errors import SpecMismatchError, SwapError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.ledger.state_lock import StateWork, check_owner, state_lock, state_locks
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.evolution import UNSAID
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import Phase, in_swap_transaction
from tidegauge.state_backends.schema.table_locks import TableLocks
from tidegauge.state_backends.spec.state_spec import StateSpec

# Batches that the pipeline may commit while its shadow is fed: 57 days at two a second.
ROOM = 10_000_000


def shadow_name(pipeline: str) -> str:
    """Return the name of the shadow pipeline: of its ledger, driver status and locks."""
    return f"{pipeline}@reprocess"


class Swap:
    """The shadow of one pipeline's states.

    conn: a psycopg connection in autocommit mode, of the process that feeds the shadow. That process owns the shadow
    (see `owning`). A migration fills the same tables, so it is refused during a reprocess, and a reprocess during it.
    """

    def __init__(self, conn: psycopg.Connection, pipeline: str) -> None:
        self.pipeline = pipeline
        self.name = shadow_name(pipeline)
        self._conn = conn
        self._works: dict[str, StateWork] = {}

    @property
    def exists(self) -> bool:
        return self._conn.execute("SELECT FROM tidegauge.pipeline WHERE name = %s", [self.name]).fetchone() is not None

    @contextmanager
    def owning(self, specs: Iterable[StateSpec]) -> Iterator[None]:
        """Own the shadow tables of these states until the end of the context; nothing else fills or drops them then.

        Calls may be nested: the outermost one owns them. Raises StateBusyError, which names the other work.
        """
        with ExitStack() as locks:
            # In one order, so that of two that begin at once one gets them all.
            for name in sorted({spec.name for spec in specs} - self._works.keys()):
                self._works[name] = locks.enter_context(state_lock(self._conn, name, "reprocess"))
                locks.callback(self._works.pop, name)
            yield

    def begin(self, specs: Sequence[StateSpec], *, spout: str, description: str = "", checkpoint: str = "") -> None:
        """Create the shadow's ledger and tables, or continue with existing ones.

        Overrides of ttl and changelog apply if they were set before. checkpoint: Spark's folder, to show to people.
        Raises SpecMismatchError if existing ones were begun for other declarations, if a state is another pipeline's,
        or if a state of the pipeline is, or is to be, in a backend without shadows. Raises StateBusyError, and
        DependentObjectsError if objects that users have created on the tables would be lost.
        """
        with self.owning(specs), self._conn.transaction():
            self._check_owners(specs)
            self._check_backends(specs)
            self._check_replaceable(specs)
            if self.exists:
                self._check_same(self._as_begun(specs))
                return
            self._register(spout, description)
            reprocess.begin(self._conn, self.pipeline, checkpoint)
            for spec in map(Catalog(self._conn).with_overrides, specs):
                BACKENDS.tables_of(spec).create_shadow(self._conn, spec)
                self._conn.execute(
                    "INSERT INTO tidegauge.successor_state (name, pipeline, definition) VALUES (%s, %s, %s::jsonb)",
                    [spec.name, self.name, json.dumps(definition(spec))],
                )

    def swap(
        self, specs: Sequence[StateSpec], guarantees: Mapping[str, str], *, keep_old: timedelta = timedelta()
    ) -> None:
        """Put the shadow in the pipeline's place: states, ledger, batches, dead letters, all or nothing.

        It fences off a driver of the pipeline. Readers see all of the old states, then all of the new ones.
        keep_old: for how long the replaced states can be put back (see Kept); zero drops them at once. Nothing is kept
        if the pipeline had a state in a backend without shadows, because it could not be put back as a whole.
        Raises SwapError if there is no shadow, or if the pipeline's txids have reached those of the shadow;
        StateBusyError if another work has the tables of a state; TablesBusyError if they are read for minutes;
        DependentObjectsError as `begin` does.
        """
        states = [spec.name for spec in specs]
        with self.owning(specs), state_locks(self._conn, states, "swap"):
            in_swap_transaction(
                self._conn,
                states,
                lambda locks: self._swap(specs, guarantees, locks, keep_old),
            )

    def abort(self) -> None:
        """Drop the shadow, if there is one. The pipeline stays as it was.

        Raises SwapError if it has been swapped in but the checkpoint was not moved yet, StateBusyError.
        """
        with self.owning(self._specs()), self._conn.transaction():
            record = reprocess.current(self._conn, self.pipeline)
            if record is not None and record.phase == Phase.SWAPPED:
                raise SwapError(
                    f"pipeline {self.pipeline!r}: its reprocess replaced the states at "
                    f"{record.swapped_at:%Y-%m-%d %H:%M:%S %Z}, so it cannot be aborted any more; start the pipeline, "
                    "which moves the new checkpoint into place"
                )
            if not self.exists:
                return
            for spec in self._specs():
                BACKENDS.tables_of(spec).drop_shadow(self._conn, spec)
            self._conn.execute("DELETE FROM tidegauge.pipeline WHERE name = %s", [self.name])
            reprocess.enter(self._conn, self.pipeline, Phase.FEEDING, Phase.ABORTED)

    def _register(self, spout: str, description: str) -> None:
        self._conn.execute(
            "INSERT INTO tidegauge.pipeline (name, spout, description, reprocesses, committed_txid, committed_time, "
            "fed_after) SELECT %(name)s, %(spout)s, %(description)s, %(pipeline)s, b.base, b.time, b.base FROM ("
            "SELECT (coalesce(max(p.committed_txid), 0) / %(room)s + 1) * %(room)s AS base, "
            "max(p.committed_time) AS time FROM tidegauge.pipeline p WHERE p.name = %(pipeline)s) b",
            {
                "name": self.name,
                "spout": spout,
                "description": description,
                "pipeline": self.pipeline,
                "room": ROOM,
            },
        )

    def _check_owners(self, specs: Sequence[StateSpec]) -> None:
        owners = self._conn.execute(
            "SELECT name, pipeline FROM tidegauge.state WHERE name = ANY(%s) AND pipeline <> %s",
            [[spec.name for spec in specs], self.pipeline],
        )
        for state, owner in owners:
            raise SpecMismatchError(
                f"state {state!r}: fed by pipeline {owner!r}, so pipeline {self.pipeline!r} cannot feed it; choose "
                "another name"
            )

    def _check_backends(self, specs: Sequence[StateSpec]) -> None:
        for spec in [*specs, *self._overtaken(specs)]:
            if BACKENDS[spec.backend].tables is None:
                raise SpecMismatchError(
                    f"state {spec.name!r}: lives in {spec.backend}, which has no tables that can be swapped; reprocess "
                    f"pipeline {self.pipeline!r} with that state declared in postgres"
                )

    def _overtaken(self, specs: Sequence[StateSpec]) -> list[StateSpec]:
        """Return the pipeline's states besides `specs`. The new ledger does not fit them."""
        replaced = {spec.name for spec in specs}
        return [spec for spec in Catalog(self._conn).specs(self.pipeline) if spec.name not in replaced]

    def _check_replaceable(self, specs: Sequence[StateSpec]) -> None:
        for held in Catalog(self._conn).specs(self.pipeline):
            for spec in specs:
                if spec.name == held.name:
                    BACKENDS.tables_of(spec).check_replaceable(self._conn, held, spec)

    def _check_same(self, specs: Sequence[StateSpec]) -> None:
        begun: dict[str, str] = dict(
            self._conn.execute(
                "SELECT name, definition::text FROM tidegauge.successor_state WHERE pipeline = %s", [self.name]
            ).fetchall()
        )
        declared = {spec.name: UNSAID | definition(spec) for spec in specs}
        if {name: UNSAID | json.loads(text) for name, text in begun.items()} != declared:
            raise SpecMismatchError(
                f"pipeline {self.pipeline!r}: its reprocess was begun for other declarations of "
                f"{', '.join(sorted(begun.keys() | declared.keys()))}; abort it and begin again, or restore them"
            )

    def _specs(self) -> list[StateSpec]:
        return Catalog(self._conn).shadow_specs(self.name)

    def _as_begun(self, specs: Sequence[StateSpec]) -> list[StateSpec]:
        """Return the declarations with the changelog setting that was begun; later overrides wait for a new driver."""
        logged = {spec.name: spec.changelog for spec in self._specs()}
        return [replace(spec, changelog=logged.get(spec.name, spec.changelog)) for spec in specs]

    def _swap(
        self, specs: Sequence[StateSpec], guarantees: Mapping[str, str], locks: TableLocks, keep_old: timedelta
    ) -> None:
        # The ledger's row before the tables, because tasks that write the tables hold it.
        base, open_txid = self._fence_off()
        locks.take()
        self._check_backends(specs)
        self._revert_open_batch(specs, open_txid)
        kept = Kept(self._conn, self.pipeline)
        kept.drop()
        keep = bool(keep_old) and self._can_keep(specs)
        if keep:
            kept.keep(specs, keep_old)
        for declared in sorted(specs, key=lambda spec: spec.name):
            self._replace(declared, guarantees[declared.name], keep=keep)
        self._hand_over(base)
        reprocess.enter(self._conn, self.pipeline, Phase.FEEDING, Phase.SWAPPED)
        notify(self._conn, self.pipeline)

    def _fence_off(self) -> tuple[int, int | None]:
        """Raise the pipeline's fence; return its committed and its open txid."""
        old = self._conn.execute(
            "UPDATE tidegauge.pipeline SET fence = fence + 1 WHERE name = %s RETURNING committed_txid, open_txid",
            [self.pipeline],
        ).fetchone()
        new = self._conn.execute(
            "SELECT committed_txid, open_txid, committed_batch_id FROM tidegauge.pipeline WHERE name = %s FOR UPDATE",
            [self.name],
        ).fetchone()
        if old is None or new is None:
            raise SwapError(f"pipeline {self.pipeline!r}: no reprocess is under way; begin one with --reprocess")
        if new[1] is not None:
            raise SwapError(f"pipeline {self.pipeline!r}: batch {new[1]} of its reprocess is open; finish it")
        if old[0] and new[2] < 0:
            raise SwapError(
                f"pipeline {self.pipeline!r}: its reprocess has read nothing, so the states would be empty; make "
                "sure that it reads the whole input, or abort it"
            )
        if old[0] >= new[0]:
            raise SwapError(
                f"pipeline {self.pipeline!r}: it has committed batch {old[0]} and its reprocess only {new[0]}; abort "
                "the reprocess and begin again"
            )
        return old

    def _revert_open_batch(self, specs: Sequence[StateSpec], open_txid: int | None) -> None:
        """Revert what the pipeline's open batch wrote to states that have no shadow."""
        if open_txid is None:
            return
        for spec in self._overtaken(specs):
            BACKENDS[spec.backend].rows(self._conn, spec).revert(open_txid)
            if spec.changelog:
                Changelog(self._conn, spec).revert(open_txid)

    def _can_keep(self, specs: Sequence[StateSpec]) -> bool:
        """Return whether every replaced state is in a backend that can keep it."""
        replaced = {spec.name for spec in specs}
        old = [spec for spec in Catalog(self._conn).specs(self.pipeline) if spec.name in replaced]
        return all(BACKENDS[spec.backend].tables for spec in old)

    def _replace(self, declared: StateSpec, guarantee: str, *, keep: bool) -> None:
        check_owner(self._conn, declared.name, self._works[declared.name].token)
        (spec,) = self._as_begun([declared])
        catalog = Catalog(self._conn)
        old = catalog.get(spec.name) if spec.name in catalog.names() else None
        BACKENDS.tables_of(spec).swap(self._conn, old, spec, keep=keep)
        catalog.record_swap(self.pipeline, spec, declared, guarantee)

    def _hand_over(self, base: int) -> None:
        names = {"old": self.pipeline, "new": self.name, "base": base}
        for statement in HAND_OVER:
            self._conn.execute(statement, names)


# Batches that fed the old tables keep their record. Their dead letters are deleted, because the reprocess has read that
# input again.
HAND_OVER = [
    "DELETE FROM tidegauge.dead_letter WHERE pipeline = %(old)s",
    "UPDATE tidegauge.dead_letter SET pipeline = %(old)s WHERE pipeline = %(new)s",
    "DELETE FROM tidegauge.batch WHERE pipeline = %(old)s AND txid > %(base)s",
    "UPDATE tidegauge.batch SET pipeline = %(old)s WHERE pipeline = %(new)s",
    "DELETE FROM tidegauge.input_file WHERE pipeline = %(old)s AND txid > %(base)s",
    "UPDATE tidegauge.input_file SET pipeline = %(old)s WHERE pipeline = %(new)s",
    "DELETE FROM tidegauge.first_input WHERE pipeline = %(old)s",
    "UPDATE tidegauge.first_input SET pipeline = %(old)s WHERE pipeline = %(new)s",
    "UPDATE tidegauge.state s SET oldest_txid = least((SELECT min(b.txid) FROM tidegauge.batch b "
    "WHERE b.pipeline = %(old)s AND b.txid > %(base)s), p.committed_txid) FROM tidegauge.pipeline p, "
    "tidegauge.successor_state n WHERE p.name = %(new)s AND n.pipeline = p.name AND s.name = n.name",
    "UPDATE tidegauge.pipeline o SET spout = n.spout, checkpoint_id = n.checkpoint_id, sources = n.sources, "
    "fed_after = n.fed_after, "
    "committed_txid = n.committed_txid, committed_attempt = n.committed_attempt, "
    "committed_batch_id = n.committed_batch_id, committed_time = n.committed_time, open_txid = NULL, "
    "open_attempt = NULL, open_batch_id = NULL, open_time = NULL "
    "FROM tidegauge.pipeline n WHERE o.name = %(old)s AND n.name = %(new)s",
    "UPDATE tidegauge.state s SET last_fed_txid = %(base)s WHERE s.pipeline = %(old)s AND s.last_fed_txid IS NULL "
    "AND NOT EXISTS (SELECT FROM tidegauge.successor_state n WHERE n.pipeline = %(new)s AND n.name = s.name)",
    "DELETE FROM tidegauge.pipeline WHERE name = %(new)s",
]
