"""Stores that are not Tidemark's: made by a StateFactory on an executor, one per task."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import TaskContext

from pipelines.functions import StateFactory


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
