"""Counted input: what the present states of a pipeline have counted of each source, as recorded in the ledger.

A reprocess reads what its sources still have. After Kafka's retention, a moved file or a trimmed stream, that is less
than the states have counted, and the new states would be smaller than those they replace, without an error. So the
counted input is compared twice: before the hours of work with what the sources still have (`Source.missing`), and at
the swap with what the reprocess has counted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

NAMED = 3  # missing files that a message names

# The number of rows that a pipeline has committed up to a batch. They are summed if the batch has no stored total.
ROWS = """
SELECT coalesce(b.total_rows_in, (
    SELECT sum(r.rows_in)::bigint FROM tidegauge.batch r
    WHERE r.pipeline = p.name AND r.txid > p.fed_after AND r.txid <= %(upto)s), 0)
FROM tidegauge.pipeline p LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = %(upto)s
WHERE p.name = %(pipeline)s
"""

FIRST = "SELECT offsets, input FROM tidegauge.first_input WHERE pipeline = %s"

COMMITTED = """
SELECT p.committed_txid, p.committed_txid > p.fed_after, b.total_dropped FROM tidegauge.pipeline p
LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.committed_txid WHERE p.name = %s
"""

FILES = """
SELECT DISTINCT counted.name FROM tidegauge.pipeline p JOIN tidegauge.input_file f ON f.pipeline = p.name,
    jsonb_object_keys(f.files) counted (name)
WHERE p.name = %(pipeline)s AND f.source = %(place)s AND f.txid > p.fed_after AND f.txid <= %(upto)s
ORDER BY 1
"""

# Files that the pipeline has counted up to a batch and its shadow has not.
MISSING_FILES = """
WITH counted AS (
    SELECT p.name AS pipeline, f.source, files.name FROM tidegauge.pipeline p
    JOIN tidegauge.input_file f ON f.pipeline = p.name, jsonb_object_keys(f.files) files (name)
    WHERE f.txid > p.fed_after AND ((p.name = %(pipeline)s AND f.txid <= %(upto)s)
        OR (p.name = %(shadow)s AND f.txid <= p.committed_txid)))
SELECT name FROM (
    SELECT source, name FROM counted WHERE pipeline = %(pipeline)s
    EXCEPT SELECT source, name FROM counted WHERE pipeline = %(shadow)s) missing ORDER BY 1
"""


@dataclass(frozen=True)
class CountedSource:
    """What was counted of one source.

    unit: of its items, such as `files`; empty if unknown. first: what the first batch read, by item, for Kafka the
    offsets [from, to] by `topic/partition`; at most 100 of its `count` items. offsets: of the source at the end of the
    first batch. files: returns the names of all files, for a source of files.
    """

    unit: str = ""
    first: Mapping[str, Any] = field(default_factory=dict)
    offsets: Any = None
    files: Callable[[], Sequence[str]] = tuple
    count: int = 0


class CountedInput:
    """The input of a pipeline's present states, up to the batch that is committed when this object is created.

    rows: how many rows were read. dropped: late events that were left out; None if that is unknown.
    """

    def __init__(self, conn: psycopg.Connection, pipeline: str) -> None:
        self.pipeline = pipeline
        self._conn = conn
        row = conn.execute(COMMITTED, [pipeline]).fetchone()
        self.upto, self.is_any, self.dropped = row or (0, False, None)
        self.rows = rows_counted(conn, pipeline, self.upto)

    def of(self, place: int) -> CountedSource:
        """Return what was counted of the source at a place among the pipeline's sources."""
        fingerprint = _at(self._first(self.pipeline)[1], place) or {}
        return CountedSource(
            fingerprint.get("unit", ""),
            fingerprint.get("items", {}),
            _at(self._first(self.pipeline)[0], place),
            lambda: self._files(place),
            fingerprint.get("count", 0),
        )

    def shortfall(self, shadow: str) -> list[str]:
        """Return descriptions of what a reprocess, with the ledger `shadow`, has not counted of this input."""
        now = CountedInput(self._conn, shadow)
        found = self._missing_files(shadow) + self._later_starts(shadow)
        if now.rows < self.rows:
            found.append(f"{self.rows} rows were counted, but only {now.rows} by the reprocess")
        return found

    def _missing_files(self, shadow: str) -> list[str]:
        names = {"pipeline": self.pipeline, "shadow": shadow, "upto": self.upto}
        missing = [name for (name,) in self._conn.execute(MISSING_FILES, names)]
        return [missing_files(missing)] if missing else []

    def _later_starts(self, shadow: str) -> list[str]:
        was, now = (self._first(name)[1] or [] for name in (self.pipeline, shadow))
        return [
            later_start(name, offsets[0], reread["items"][name][0])
            for counted, reread in zip(was, now, strict=False)
            if counted and reread and counted["unit"] == reread["unit"] == "partitions"
            for name, offsets in counted["items"].items()
            if name in reread["items"] and (reread["items"][name][0] or 0) > (offsets[0] or 0)
        ]

    def _first(self, pipeline: str) -> tuple[Any, Any]:
        row = self._conn.execute(FIRST, [pipeline]).fetchone()
        return row or (None, None)

    def _files(self, place: int) -> list[str]:
        counted = self._conn.execute(FILES, {"pipeline": self.pipeline, "place": place, "upto": self.upto})
        return [name for (name,) in counted]


def rows_counted(conn: psycopg.Connection, pipeline: str, upto: int) -> int:
    """Return how many rows the present states have counted up to a batch, including bad lines."""
    row = conn.execute(ROWS, {"pipeline": pipeline, "upto": upto}).fetchone()
    return int(row[0]) if row else 0


def missing_files(names: Sequence[str]) -> str:
    """Say which files were counted and are missing."""
    return f"{len(names)} files that were counted are missing: {first_names(names)}"


def first_names(names: Sequence[str]) -> str:
    """Return the first of some names for a message, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(map(repr, names[:NAMED]))}{more}"


def later_start(partition: str, was: int | None, now: int) -> str:
    """Say that a partition begins at a later offset than the one that it was counted from."""
    return f"partition {partition!r} was counted from offset {was or 0}, and now begins at {now}"


def _at(parts: Sequence[Any] | None, place: int) -> Any:
    return parts[place] if parts and place < len(parts) else None
