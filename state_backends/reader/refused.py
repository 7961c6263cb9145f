"""RefusedReader: the reader of a state that is not served, because its store and the ledger do not agree."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

import psycopg

from tidegauge.state_backends.committed import isolation
from tidegauge.state_backends.errors import FindingError
from tidegauge.state_backends.reader.query import RangeQuery
from tidegauge.state_backends.reader.reader import Ask, CommittedBatch, Export, Reader, Snapshot
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


class RefusedReader(Reader):
    """Every method raises FindingError with the recorded finding."""

    def __init__(self, spec: StateSpec, finding: str) -> None:
        self.spec = spec
        self.isolation = isolation(spec)
        self._finding = finding

    def on(self, conn: psycopg.Connection) -> Self:
        return self

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        raise self._refusal()

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        raise self._refusal()

    def ask(
        self,
        keys: Sequence[Key],
        measures: Sequence[str] | None = None,
        *,
        combine: bool = False,
        at_txid: int | None = None,
    ) -> Ask | None:
        raise self._refusal()

    def read_page(self, query: RangeQuery) -> Snapshot:
        raise self._refusal()

    def read_groups(self, by: Sequence[str], query: RangeQuery) -> Snapshot:
        raise self._refusal()

    def history(self, key: Key, *, limit: int = 100, before: int | None = None) -> Snapshot:
        raise self._refusal()

    def series(self, key: Key, *, since: datetime, until: datetime, step_seconds: float) -> Snapshot:
        raise self._refusal()

    def open_export(self, query: RangeQuery, live_at: datetime | None = None) -> Export:
        raise self._refusal()

    def committed(self) -> CommittedBatch:
        raise self._refusal()

    def _refusal(self) -> FindingError:
        return FindingError(self._finding, self.spec.name)
