"""What a user may write in Python for a stream: functions, queries and updaters, under Trident's names.

They run on executors, so they travel there: keep connections and other things that cannot be pickled out of them.
All of them must be deterministic, since a batch that is tried again has to come to the same result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark import TaskContext

from state_backends.protocols import Updater
from state_backends.row import Key

# The values of some columns of one tuple, in the order asked for.
Values = tuple[Any, ...]

# Emits nought, one or many tuples for one: the values of the new columns, in the order declared. Trident's Function.
Function = Callable[..., Iterable[Values]]


class StateFactory(Protocol):
    """Makes the state of a store that is not Tidemark's, once per task. Trident's StateFactory."""

    def make_state(self, partition: int) -> Any:
        """Return the state for one task, whose number is `partition`; it is closed after use if it has a `close`."""


class QueryFunction(Protocol):
    """Looks a batch of tuples up in a state. Trident's QueryFunction."""

    def batch_retrieve(self, state: Any, inputs: Sequence[Values]) -> Sequence[Any]:
        """Return one result per input, in order. Every input comes once, however many tuples have it.

        state: what a StateFactory made, or a CommittedState.
        """

    def execute(self, values: Values, result: Any) -> Iterable[Values]:
        """Return the tuples that one input with its result becomes: nought, one or many."""


@dataclass(frozen=True)
class MapGet:
    """The query that gives the measures of a key, nulls where it has none. Trident's MapGet."""

    measures: tuple[str, ...]

    def batch_retrieve(self, state: Any, inputs: Sequence[Values]) -> Sequence[Mapping[str, Any] | None]:
        return state.multi_get(inputs)  # type: ignore[no-any-return]

    def execute(self, values: Values, result: Mapping[str, Any] | None) -> Iterable[Values]:
        found = result or {}
        yield tuple(found.get(measure) for measure in self.measures)


class Collector(Protocol):
    """Takes the tuples that an updater emits to the new values stream. Trident's TridentCollector."""

    def emit(self, *values: Any) -> None:
        """Emit one tuple: the values of the columns that were declared, in their order."""


class BatchState(Protocol):
    """The state that an updater is given: a map state within one batch.

    txid, batch_time: of the batch. watermark: how far event time has come, None where the pipeline has none.
    Reads see what the batch builds upon and what it has written itself. Writes are for the keys of the tuples that
    came with them; any other key raises KeyShapeError, since another task may hold it.
    """

    @property
    def txid(self) -> int: ...

    @property
    def batch_time(self) -> datetime: ...

    @property
    def watermark(self) -> datetime | None: ...

    def multi_get(self, keys: Sequence[Key]) -> list[Any]: ...

    def multi_update(self, keys: Sequence[Key], updaters: Sequence[Updater]) -> list[Any]: ...

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None: ...

    def multi_remove(self, keys: Sequence[Key]) -> None: ...


class StateUpdater(Protocol):
    """Updates a state with a batch of tuples. Trident's StateUpdater."""

    def update_state(self, state: Any, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        """Update the state and emit what others shall know.

        state: a BatchState, or what a StateFactory made. tuples: column to value; those of one key come in one
        call, all that the batch has of it, in the order asked for.
        """


# Stores that are not Tidemark's: made by a StateFactory on an executor, one per task.


@contextmanager
def opened_state(factory: StateFactory) -> Iterator[Any]:
    """Give the state for this task's partition, and close it where it can be closed."""
    task = TaskContext.get()
    made = factory.make_state(task.partitionId() if task else 0)
    try:
        yield made
    finally:
        if hasattr(made, "close"):
            made.close()
