"""What the steps of one micro-batch know of it, on the driver and on executors."""

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
    """One attempt at a batch, and how it sees the world.

    dsn: where the database is. own: the states that the pipeline feeds itself. shadow: whether it feeds their shadows.
    logged: those of them that keep a changelog; None for those that are declared with one.
    unfed: measures by state that are stored and not declared, as after a release was rolled back: merges carry them.
    writers: how many connections its tasks may hold at once. keeps_connections: whether a worker keeps its own for the
        next task, since there is one for each of them.
    late_before: the watermark that earlier batches have brought, at which this batch's tuples are late.
    watermark: the one that counts this batch's tuples too.
    backends: those of the driver, so that an executor knows one that its own process has not registered.
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
        """Unpickle on an executor, whose process has registered no backend but the library's own."""
        self.__dict__.update(state)
        for name, backend in self.backends.items():
            BACKENDS.setdefault(name, backend)

    def in_force(self, spec: StateSpec) -> StateSpec:
        """Return a state's declaration with its overrides, as they count for this batch, and its unfed measures."""
        logged = spec.changelog if self.logged is None or spec.name not in self.own else spec.name in self.logged
        measures = {**spec.measures, **self.unfed.get(spec.name, {})}
        return replace(spec, ttl=self.batch.ttls.get(spec.name, spec.ttl), changelog=logged, measures=measures)

    def session(self, conn: psycopg.Connection, spec: StateSpec) -> BackendSession:
        """Return the session of a state, with what is in force for this batch."""
        return self.backends[spec.backend].session(conn, self.in_force(spec), self.batch, shadow=self.shadow)
