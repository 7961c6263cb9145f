"""A pipeline whose states are hard to show: 20 measures, long and non-Latin keys, a time in the key, an open bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from tidegauge.state_backends import (
    Batch,
    BatchLedger,
    Catalog,
    Changelog,
    Count,
    Max,
    PostgresBackingMap,
    StateSpec,
    Sum,
)
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import lock_fence

MEASURES = [f"seconds_of_phase_{place}" for place in range(1, 20)]
BY_PAGE = StateSpec(
    "visits_by_page",
    key={"page": "text", "country": "text"},
    measures={"visits": Count()} | {name: Sum(name) for name in MEASURES},
    changelog=True,
)
BY_HOUR = StateSpec(
    "visits_by_hour",
    key={"hour": "timestamptz", "country": "text"},
    measures={"visits": Count(), "bytes": Sum("bytes"), "slowest": Max("seconds")},
    changelog=True,
)
BY_COUNTRY = StateSpec("visits_by_country", key={"country": "text"}, measures={"visits": Count()})
SPECS = (BY_PAGE, BY_HOUR, BY_COUNTRY)

PAGES = [
    "/catalogue/outdoor-equipment/tents-and-shelters/four-season-tents-for-expeditions-in-high-mountains",
    "/каталог/палатки",
    "/カタログ/テント",
    "/",
]
COUNTRIES = ["DE", "FR", "GB", "IT", "JP", "NL", "PL", "SE", "UA", "US"]


class Visits:
    """The driver of one pipeline. conn: commits by itself. now: the time of the newest event."""

    def __init__(self, conn: psycopg.Connection, now: datetime) -> None:
        self.conn = conn
        self.now = now
        self._batches = 0
        catalog = Catalog(conn)
        catalog.register_pipeline("visits", spout="transactional")
        self._ledger = BatchLedger(conn, "visits")
        self._ledger.acquire()
        catalog.register_states("visits", SPECS, {spec.name: "exactly once" for spec in SPECS})
        self._ledger.bind("checkpoint")

    def commit(self, by_page: list[dict[str, Any]], by_hour: list[dict[str, Any]]) -> Batch:
        """Write and commit a batch of these rows."""
        batch = self._ledger.begin(self._batches, spout="transactional")
        assert batch is not None
        with self.conn.transaction():
            lock_fence(self.conn, batch)
            by_country = [{"country": country, "visits": 1} for country in COUNTRIES]
            written = [(BY_PAGE, by_page), (BY_HOUR, by_hour), (BY_COUNTRY, by_country)]
            for spec, rows in written:
                if rows:
                    arrow = pa.RecordBatch.from_pylist(rows)
                    PostgresBackingMap(self.conn, spec).merge([arrow], batch.txid, batch.batch_time)
                if rows and spec.changelog:
                    Changelog(self.conn, spec).append(batch.txid)
        keys_written = {spec.name: len(rows) for spec, rows in written}
        self._ledger.commit(batch, rows_in=len(by_page) + len(by_hour), keys_written=keys_written)
        self._batches += 1
        driver_status.report(self.conn, "visits", "running", progress={"pending": {"count": 0, "unit": "files"}})
        return batch

    def report(self, waiting: int) -> None:
        """Report how much input waits, since now."""
        oldest = datetime.now(UTC).isoformat() if waiting else None
        pending = {"count": waiting, "unit": "files", "oldest": oldest}
        driver_status.report(self.conn, "visits", "running", progress={"pending": pending})


def pages(visits: int = 10) -> list[dict[str, Any]]:
    """The first page has the most visits in the first country."""
    return [
        {"page": page, "country": country, "visits": visits * (len(PAGES) - place) + len(COUNTRIES) - rank}
        | dict.fromkeys(MEASURES, 1234.5 * (rank + 1))
        for place, page in enumerate(PAGES)
        for rank, country in enumerate(COUNTRIES)
    ]


def hours(now: datetime, count: int = 48) -> list[dict[str, Any]]:
    """The last `count` hours, of which the newest is as old as the minutes of `now`, and as empty."""
    newest = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return [
        {
            "hour": newest - timedelta(hours=age),
            "country": country,
            "visits": 5 if age == 0 else 1_000 + 40 * (age % 7) - 20 * rank,
            "bytes": 1e6 * (1 if age == 0 else 200 + age % 5),
            "slowest": 1.5 + age % 3,
        }
        for age in range(count)
        for rank, country in enumerate(COUNTRIES)
    ]


@contextmanager
def visits_pipeline(conn: psycopg.Connection, now: datetime) -> Iterator[Visits]:
    visits = Visits(conn, now)
    try:
        visits.commit(pages(), hours(now))
        visits.commit(pages(3)[5:], [])
        yield visits
    finally:
        conn.execute("SELECT pg_advisory_unlock_all()")
