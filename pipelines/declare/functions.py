"""The interfaces of a user's Python code in a stream: functions, queries and updaters, under Trident's names.

They are pickled and run on executors, so they must not hold connections or other objects that cannot be pickled. They
must be deterministic, because a replayed batch has to give the same result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark import TaskContext

from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key

# The values of some columns of one tuple, in the order requested.
Values = tuple[Any, ...]

# Emits zero or more tuples for one: the values of the new columns, in the order declared. Trident's Function.
Function = Callable[..., Iterable[Values]]


class StateFactory(Protocol):
    """Opens a store that is not Tidegauge's, once per task. Trident's StateFactory."""

    def make_state(self, partition: int) -> Any:
        """Return the store for task number `partition`; its `close` is called after use if it has one."""


class QueryFunction(Protocol):
    """Looks up a batch of tuples in a state. Trident's QueryFunction."""

    def batch_retrieve(self, state: Any, inputs: Sequence[Values]) -> Sequence[Any]:
        """Return one result per input, in order. The inputs are distinct, however many tuples share one.

        state: what a StateFactory returned, or a CommittedState.
        """

    def execute(self, values: Values, result: Any) -> Iterable[Values]:
        """Return the tuples to emit for one input and its result: zero or more."""


@dataclass(frozen=True)
class MapGet:
    """The query that emits the measures of a key, or nulls if the key is absent. Trident's MapGet."""

    measures: tuple[str, ...]

    def batch_retrieve(self, state: Any, inputs: Sequence[Values]) -> Sequence[Mapping[str, Any] | None]:
        return state.multi_get(inputs)  # type: ignore[no-any-return]

    def execute(self, values: Values, result: Mapping[str, Any] | None) -> Iterable[Values]:
        found = result or {}
        yield tuple(found.get(measure) for measure in self.measures)


class Collector(Protocol):
    """Takes the tuples that an updater emits to the new values stream. Trident's TridentCollector."""

    def emit(self, *values: Any) -> None:
        """Emit one tuple: the values of the declared columns, in their order."""


class BatchState(Protocol):
    """A Tidegauge state within one batch, as an updater gets it.

    txid, batch_time: of the batch. watermark: the pipeline's, including this batch; None if it has none.
    Reads see the version before the batch and the updater's own writes in this batch. Only keys of tuples that the
    updater was given may be written; any other key raises KeyShapeError, because another task may hold it.
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
        """Update the state, and emit tuples to the new values stream.

        state: a BatchState, or what a StateFactory returned. tuples: column to value. All tuples of a
        key in the batch come in one call, in the order that `order_by` declares.
        """


@contextmanager
def opened_state(factory: StateFactory) -> Iterator[Any]:
    """Open a factory's store for this task's partition, and close it afterwards if it has a `close`."""
    task = TaskContext.get()
    store = factory.make_state(task.partitionId() if task else 0)
    try:
        yield store
    finally:
        if hasattr(store, "close"):
            store.close()
