"""freshness: seconds from a file's landing until a REST client sees its flights counted, everything running live.

Small files land at a jittered pace; a client asks for the totals every 10 ms. The flights pipeline feeds four states
from them, so this is no toy. Ratios are to the limits that the project has set itself.
"""

import math
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from benchmarks.cases import Case
from benchmarks.events import FLIGHTS_PER_FILE, flights_file
from benchmarks.live import Live, Lookup, live_flights
from benchmarks.servers import database

EVENTS = 3_000  # at each pace, in files of 20
WARM_UP = 40  # files before those that count, each landing when the one before it has been seen
PACES = {"every_second": 1.0, "five_a_second": 0.2}  # seconds between two files, give or take half
POLL_SECONDS = 0.01
SEEN_WITHIN_SECONDS = 120.0  # of the last landing, Spark's start included
LIMITS = {"p50": 1.0, "p99": 2.0}  # seconds


@dataclass(frozen=True)
class Journey:
    """One file's way, in seconds since 1970: it landed, its batch began and was committed, a client saw it."""

    landed: float
    began: float
    committed: float
    seen: float


def run(events: int = EVENTS) -> Iterable[Case]:
    count = max(events // FLIGHTS_PER_FILE, 2)
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{conn.info.dbname}").geturl()
        with live_flights(url, Path(home)) as live:
            for number in range(WARM_UP):
                _journeys(live, conn, range(number, number + 1), pause=0)
            first = WARM_UP
            for pace, pause in PACES.items():
                numbers = range(first, first + count)
                journeys = _journeys(live, conn, numbers, pause)
                yield from _cases(pace, journeys)
                yield from _spark_parts(conn, pace, since=journeys[0].began)
                first = numbers.stop


def _journeys(live: Live, conn: psycopg.Connection, numbers: range, pause: float) -> list[Journey]:
    """Let files land, watch them arrive, and look their batches up afterwards."""
    landed: list[float] = []
    landing = threading.Thread(target=_land, args=(live.folder, numbers, pause, landed), daemon=True)
    landing.start()
    seen = _watch(live, numbers, patience=SEEN_WITHIN_SECONDS + 1.5 * pause * len(numbers))
    landing.join()
    batches = _batches(conn)
    return [Journey(landed[place], *batches[number], seen[place]) for place, number in enumerate(numbers)]


def _land(folder: Path, numbers: range, pause: float, landed: list[float]) -> None:
    chance = random.Random(numbers.start)
    for number in numbers:
        time.sleep(pause * chance.uniform(0.5, 1.5))
        beside = folder.parent / f"{number:06}.jsonl"
        beside.write_text(flights_file(number))
        landed.append(time.time())
        beside.replace(folder / beside.name)


def _watch(live: Live, numbers: range, patience: float) -> list[float]:
    """Return when the total showed each file's flights. Files are counted in the order in which they landed."""
    seen: list[float] = []
    deadline = time.monotonic() + patience
    with closing(Lookup(live, "totals", "flights")) as lookup:
        while len(seen) < len(numbers):
            live.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(numbers) - len(seen)} of {len(numbers)} files are not seen in {patience} s")
            files = lookup.value() / FLIGHTS_PER_FILE - numbers.start
            seen += [time.time()] * (math.floor(files) - len(seen))
            time.sleep(POLL_SECONDS)
    assert files == len(numbers), f"{files} files are counted of {len(numbers)} that landed"
    return seen


def _batches(conn: psycopg.Connection) -> list[tuple[float, float]]:
    """Return of each file when its batch began and was committed, by the database's clock, which is this machine's."""
    rows = conn.execute(
        "SELECT rows_in, extract(epoch FROM started_at)::float8, extract(epoch FROM committed_at)::float8 "
        "FROM tidemark.batch WHERE pipeline = 'flights' AND committed_at IS NOT NULL ORDER BY txid"
    ).fetchall()
    files = accumulate(rows_in for rows_in, _, _ in rows)
    assert [counted % FLIGHTS_PER_FILE for counted in files] == [0] * len(rows), "a batch holds a part of a file"
    return [(began, committed) for rows_in, began, committed in rows for _ in range(rows_in // FLIGHTS_PER_FILE)]


def _cases(pace: str, journeys: list[Journey]) -> Iterator[Case]:
    seconds = sorted(journey.seen - journey.landed for journey in journeys)
    low, middle, high = statistics.quantiles(seconds, n=4)
    late = seconds[math.ceil(0.99 * len(seconds)) - 1]
    yield Case(f"{pace}_p50", middle, "s", (high - low) / 2 / middle, {"limit_p50": middle / LIMITS["p50"]})
    yield Case(f"{pace}_p99", late, "s", ratio={"limit_p99": late / LIMITS["p99"]})
    yield Case(f"{pace}_max", seconds[-1], "s")
    yield Case(f"{pace}_files", len(seconds), "files")
    parts = {
        "until_batch": [journey.began - journey.landed for journey in journeys],
        "batch": [journey.committed - journey.began for journey in journeys],
        "until_seen": [journey.seen - journey.committed for journey in journeys],
    }
    for part, each in parts.items():
        yield Case(f"{pace}_{part}", 1000 * statistics.median(each), "ms")


def _spark_parts(conn: psycopg.Connection, pace: str, since: float) -> Iterator[Case]:
    """Spark's own view of the same batches: the parts of a trigger, of which `addBatch` is the one that is ours."""
    parts = conn.execute(
        "SELECT part, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms::float8) "
        "FROM tidemark.batch, jsonb_each_text(metrics -> 'duration_ms') AS measured (part, ms) "
        "WHERE pipeline = 'flights' AND started_at > to_timestamp(%s) GROUP BY part ORDER BY part",
        [since - 0.001],  # so that rounding does not lose the first one
    )
    for part, milliseconds in parts:
        yield Case(f"{pace}_spark_{part}", milliseconds, "ms")
