"""The Spark reader of ticks: its latest offset is the number in a file, and it has no rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which reads all input as one batch if a query ends with its input
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the file in the process in which Spark plans batches."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def getDefaultReadLimit(self) -> "ReadAllAvailable":  # noqa: N802  Spark's name
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Nothing to do, because no tick is written once a query that ends with its input has begun."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        return {"tick": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the latest tick, or `start` if that is later. Spark passes `start` since 4.2."""
        return {"tick": max(last_tick(self._file), (start or {}).get("tick", 0))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())


def last_tick(file: Path) -> int:
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return 0
