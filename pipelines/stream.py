"""Stream and Pipeline: the verbs that say what to compute. Nothing runs until a runner takes the pipeline.

The verbs are Trident's. A condition or expression is Spark SQL.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError
from pipelines.guarantee import guarantee
from pipelines.sources.source import Source
from state_backends.aggregators.column import quoted
from state_backends.spec import NAME, NAME_RULE, StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Stream:
    """Events from a source and the steps they go through; every verb returns a new Stream."""

    source: Source
    steps: tuple[Step, ...] = ()

    @classmethod
    def read(cls, source: Source) -> "Stream":
        """Start a stream at a source, with the columns of its schema."""
        return cls(source)

    def where(self, condition: str) -> "Stream":
        """Keep the events that meet a condition, as `dep_time is not null`."""
        return self.transform(lambda events: events.where(condition))

    def each(self, **columns: str) -> "Stream":
        """Add or replace columns, name to expression; one of them may make many rows of one, as `explode(..)` does."""
        return self.transform(lambda events: _with_columns(events, columns))

    def transform(self, step: Step) -> "Stream":
        """Apply any DataFrame step. It must be deterministic, and sees one micro-batch at a time."""
        return Stream(self.source, (*self.steps, step))

    def group_by(self, *columns: str, **expressions: str) -> "GroupedStream":
        """Group by columns, and by expressions under a name: `group_by("origin", hour=tumbling("time", "1 hour"))`."""
        return GroupedStream(self, {column: quoted(column) for column in columns} | expressions)

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold all events into the one row of a state without key columns."""
        return GroupedStream(self, {}).persistent_aggregate(spec)


@dataclass(frozen=True)
class GroupedStream:
    """A stream and what it is grouped by, name to Spark SQL expression."""

    stream: Stream
    keys: dict[str, str]

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold each group into the row of its key. The groups' names must be the state's key columns.

        Raises PipelineError naming the columns that differ.
        """
        if set(self.keys) != set(spec.key) or not spec.measures:
            raise PipelineError(
                f"state {spec.name!r}: grouped by {', '.join(self.keys) or 'nothing'}, but its key is "
                f"{', '.join(spec.key) or 'empty'} and its measures are {', '.join(spec.measures) or 'none'}; "
                "name the groups after the key columns, and give the state a measure"
            )
        return PersistentAggregate(self.stream, self.keys, spec)


@dataclass(frozen=True)
class PersistentAggregate:
    """A state and the groups that are folded into it. Trident's persistentAggregate."""

    stream: Stream
    keys: dict[str, str]
    spec: StateSpec


@dataclass(frozen=True)
class Pipeline:
    """One Spark streaming query and all the states it feeds, which commit together.

    name: what the ledger and the checkpoint go by; keep it for the life of the states.
    Raises PipelineError where the states have no source in common or share a name.
    """

    name: str
    aggregates: Sequence[PersistentAggregate]
    description: str = field(default="")

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PipelineError(f"pipeline {self.name!r}: no name; {NAME_RULE}")
        names = [aggregate.spec.name for aggregate in self.aggregates]
        if not names:
            raise PipelineError(f"pipeline {self.name!r}: feeds no state; give it a persistent_aggregate")
        if len(set(names)) < len(names):
            raise PipelineError(f"pipeline {self.name!r}: feeds a state twice: {', '.join(names)}")
        if any(aggregate.stream.source is not self.source for aggregate in self.aggregates):
            raise PipelineError(f"pipeline {self.name!r}: its streams read different sources; read one and share it")

    @property
    def source(self) -> Source:
        return self.aggregates[0].stream.source

    @property
    def packages(self) -> tuple[str, ...]:
        """Maven coordinates of the jars that its source needs."""
        return self.source.packages

    @property
    def specs(self) -> list[StateSpec]:
        return [aggregate.spec for aggregate in self.aggregates]

    @property
    def guarantees(self) -> dict[str, str]:
        """What is promised of each state, state name to words."""
        return {spec.name: guarantee(self.source.spout, spec.kind) for spec in self.specs}


def tumbling(column: str, width: str) -> str:
    """Return the expression for the start of the window an event falls in: `tumbling("time_hour", "1 hour")`."""
    return f"window({quoted(column)}, '{width}').start"


def _with_columns(events: "DataFrame", columns: dict[str, str]) -> "DataFrame":
    kept = [quoted(name) for name in events.columns if name not in columns]
    return events.selectExpr(*kept, *(f"{expression} AS {quoted(name)}" for name, expression in columns.items()))
