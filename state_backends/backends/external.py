"""What every store outside the ledger's database has in common.

Its writes share no transaction with the ledger, so it guards itself (guard.py): the ledger tells it which attempt may
write before the attempt does, and which batch is committed once it is. The two are compared before a batch is opened,
committed and shown (comparison.py). A changelog is in PostgreSQL whatever the store.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg

from tidegauge.state_backends.backends.comparison import compare, ledger_side, mend
from tidegauge.state_backends.backends.external_session import ExternalSession
from tidegauge.state_backends.backends.guard import Attempt, GuardedMap
from tidegauge.state_backends.changelog import Changelog
from tidegauge.state_backends.errors import BackendSetupError, FindingError, SpecMismatchError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.maintenance import Horizon, Step, clock, note_expired
from tidegauge.state_backends.protocols import LoopRows, StateArchive
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.reader.scanning import ScanningReader
from tidegauge.state_backends.repair.rebuilding import rebuild
from tidegauge.state_backends.schema.tables import create_changelog, drop_changelog, extend_changelog, rename_changelog
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable


class Upkeep(Protocol):
    """Pages of stored rows, to be freed. A page is handed back as it came; `len(page.rows)` is its size."""

    def pages(self) -> Iterator[Any]:
        """Yield all rows in pages."""

    def expire(self, page: Any, settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        """Free the rows whose ttl has run out at `clock`, written by batch `settled` or before; None: by any."""

    def drop_tombstones(self, page: Any, settled: int | None) -> int:
        """Free the rows that batch `settled` or an earlier one removed; None: whichever did."""

    def clear(self) -> None:
        """Delete the state: rows, order and guard. No driver feeds it and no reader reads it. Repeatable."""

    def sizes(self) -> tuple[int, int]:
        """Return how many rows there are, and about how many bytes they take."""


class ExternalBackend(ABC):
    """See Backend. A store gives its rows, and what looks after them; the rest is here."""

    title: str
    has_partitions = False
    tables = None
    archive: StateArchive | None = None
    timeout_seconds: float | None = 60.0  # a call that takes longer has met a stuck server

    @abstractmethod
    def guarded(self, spec: StateSpec) -> GuardedMap:
        """Return the rows of a state."""

    @abstractmethod
    def upkeep(self, spec: StateSpec) -> Upkeep:
        """Return what frees rows of a state."""

    @abstractmethod
    def check(self) -> None: ...

    def stored_name(self, spec: StateSpec) -> str:
        """Return what the store calls the rows of a state, for people."""
        return f"rows of {spec.name!r}"

    def rows(self, conn: psycopg.Connection, spec: StateSpec) -> GuardedMap:
        return self.guarded(spec)

    def session(
        self, conn: psycopg.Connection, spec: StateSpec, batch: Batch, *, shadow: bool = False
    ) -> "ExternalSession":
        return ExternalSession(conn, self.guarded(spec), batch)

    def reader(self, conn: psycopg.Connection, spec: StateSpec, past: Reader | None) -> ScanningReader:
        return ScanningReader(conn, spec, self.guarded(spec), past)

    def loop_rows(self, spec: StateSpec) -> LoopRows | None:
        return None  # a store with an asyncio client can do better

    def committed_values(
        self, conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
    ) -> list[Any]:
        _, rows = self.guarded(spec).multi_get_committed(keys, clock=at)
        return [row.value for row in rows]

    def check_new(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        if not self.guarded(spec).status().is_empty:
            raise SpecMismatchError(
                f"state {spec.name!r}: {self.title} has {self.stored_name(spec)} already, of another database or time; "
                "choose another name, or remove them first"
            )

    def create(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        """Create the changelog, if the state keeps one; rows need no room made."""
        if spec.changelog:
            create_changelog(conn, StateTable(spec))

    def drop(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self.upkeep(spec).clear()
        if spec.changelog:
            drop_changelog(conn, StateTable(spec))

    def rename(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        if old.changelog:
            rename_changelog(conn, StateTable(old), StateTable(new))

    def begin_copy(self, conn: psycopg.Connection, spec: StateSpec) -> GuardedMap:
        rows = self.guarded(spec)
        rows.begin_rebuild()
        return rows

    def end_copy(self, conn: psycopg.Connection, spec: StateSpec, committed: int) -> None:
        self.guarded(spec).publish(committed)

    def is_copying(self, spec: StateSpec) -> bool:
        return self.guarded(spec).status().is_rebuilding

    def holds(self, spec: StateSpec) -> bool:
        try:
            return not self.guarded(spec if self.has_partitions else replace(spec, partitions=1)).status().is_empty
        except BackendSetupError:
            return False

    def add_measures(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        """Extend the changelog, if the state keeps one; a row without the measure holds nothing of it."""
        if new.changelog:
            table, held = StateTable(new), StateTable(old).values
            extend_changelog(conn, table, [name for name in table.values if name not in held])

    def catch_up(self, conn: psycopg.Connection, spec: StateSpec, start: Batch, *, is_new: bool) -> str:
        rows, ledger = self.guarded(spec), ledger_side(conn, spec, start.txid)
        warning = rows.check_store()
        if not is_new:
            # Twice: a driver of an older copy of the ledger must not stop the right one, and an attempt that is on its
            # way must not write behind the comparison.
            compare(rows, ledger)
        own = Attempt.at(start)
        rows.admit(*own)
        if is_new:
            rows.under(*own).publish(start.txid)
        else:
            compare(rows, ledger)
            mend(rows.under(*own), ledger)
        return warning

    def expire(self, conn: psycopg.Connection, spec: StateSpec) -> Iterator[Step]:
        upkeep = self.upkeep(spec)
        if spec.ttl is None:
            return
        with conn.transaction():
            # Rows are freed outside of the transaction, so it is noted before the first one is.
            latest = clock(conn, spec.name)["clock"]
            note_expired(conn, spec.name, latest)

        def free(page: Any, now: dict[str, Any]) -> int:
            settled = None if spec.kind == "non_transactional" else now["committed"]
            return upkeep.expire(page, settled, min(latest, now["clock"]), now["ttl"])

        yield from _free_pages(conn, spec, "expired rows", upkeep, free)

    def compact(self, conn: psycopg.Connection, spec: StateSpec, horizon: Horizon) -> Iterator[Step]:
        upkeep = self.upkeep(spec)

        # The committed batch may come again, and then what it removed comes back; earlier ones are settled. No read in
        # the past looks at these rows.
        def free(page: Any, now: dict[str, Any]) -> int:
            return upkeep.drop_tombstones(page, None if spec.kind == "non_transactional" else now["committed"] - 1)

        return _free_pages(conn, spec, "tombstones", upkeep, free)

    def sizes(self, conn: psycopg.Connection, spec: StateSpec) -> tuple[int, int]:
        return self.upkeep(spec).sizes()

    def split_keys(self, conn: psycopg.Connection, spec: StateSpec, parts: int) -> list[Key]:
        return []  # a store that knows the rank of its keys can do better

    def begin_rebuild(self, conn: psycopg.Connection, spec: StateSpec, *, goes_on: bool) -> None:
        rows = self.guarded(spec)
        if not goes_on:
            rows.begin_rebuild()
        elif not rows.status().is_rebuilding:
            raise FindingError(
                f"state {spec.name!r}: no rebuild of it was cut short in {self.title}; run it from the start, without "
                "--resume-from",
                spec.name,
            )

    def check_one_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        compare(self.guarded(spec), ledger_side(conn, spec, to))

    def take_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        self.begin_rebuild(conn, spec, goes_on=False)
        for _ in rebuild(Changelog(conn, spec), self.guarded(spec)):
            pass
        self.end_rebuild(conn, spec, to)

    def end_rebuild(self, conn: psycopg.Connection, spec: StateSpec, committed: int) -> None:
        self.guarded(spec).publish(committed)


def _free_pages(
    conn: psycopg.Connection,
    spec: StateSpec,
    step: str,
    upkeep: Upkeep,
    free: Callable[[Any, dict[str, Any]], int],
) -> Iterator[Step]:
    # The ledger's row is shared meanwhile, so that no batch begins or ends under a page.
    seen = freed = 0
    for page in upkeep.pages():
        with conn.transaction():
            freed += free(page, clock(conn, spec.name))
        seen += len(page.rows)
        yield Step(step, seen, freed)
