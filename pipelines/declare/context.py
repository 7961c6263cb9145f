"""What the steps of one micro-batch know about it, on the driver and on executors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.protocols import BACKENDS, Aggregator, Backend, BackendSession
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a verb does to one micro-batch: called with its context and the frame of each input, it returns a frame.
Step = Callable[..., "DataFrame"]


@dataclass(frozen=True)
class BatchContext:
    """One attempt at a batch, and what its steps need to know.

    dsn: where the database is. own: the states that the pipeline itself feeds. shadow: whether it feeds their shadows.
    logged: which of its own states keep a changelog; None: those that are declared with one.
    unfed: by state, measures that are stored but not declared, as after a release was rolled back. Merges keep them.
    writers: how many connections its tasks may hold at once. keeps_connections: whether a Python worker keeps its
        connection for the next task, because `writers` allows one for each worker.
    late_before: the watermark of the earlier batches; a tuple of this batch whose time is before it is late.
    watermark: the watermark that includes this batch's tuples.
    backends: the driver's, so that an executor knows one that its own process has not registered.
    """

    batch: Batch
    dsn: str
    own: frozenset[str] = frozenset()
    shadow: bool = False
    logged: frozenset[str] | None = None
    unfed: Mapping[str, Mapping[str, Aggregator]] = field(default_factory=dict, repr=False)
    writers: int = 1
    keeps_connections: bool = False
    late_before: datetime | None = None
    watermark: datetime | None = None
    backends: Mapping[str, Backend] = field(default_factory=lambda: dict(BACKENDS), repr=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle on an executor, whose process has registered only the library's own backends."""
        self.__dict__.update(state)
        for name, backend in self.backends.items():
            BACKENDS.setdefault(name, backend)

    def in_force(self, spec: StateSpec) -> StateSpec:
        """Return a state's spec with the ttl and changelog that apply to this batch, and with its unfed measures."""
        logged = spec.changelog if self.logged is None or spec.name not in self.own else spec.name in self.logged
        measures = {**spec.measures, **self.unfed.get(spec.name, {})}
        return replace(spec, ttl=self.batch.ttls.get(spec.name, spec.ttl), changelog=logged, measures=measures)

    def session(self, conn: psycopg.Connection, spec: StateSpec) -> BackendSession:
        """Return the session of a state in this batch, with the spec that applies to it."""
        return self.backends[spec.backend].session(conn, self.in_force(spec), self.batch, shadow=self.shadow)
