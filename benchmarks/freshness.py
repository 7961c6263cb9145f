"""freshness: seconds from a file's arrival until a REST client sees its flights counted, with all processes running.

Small files arrive at a jittered rate, and the flights pipeline feeds four states from them. A client asks for the
totals every 10 ms. The rounds alternate between the rates. A percentile is computed over the files of all rounds, and
its spread over the rounds.
"""

import math
import random
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import psycopg

from benchmarks.cases import Case, median_case, percentile, quartiles, spread_of
from benchmarks.input_files import FLIGHTS_PER_FILE, flights_file
from benchmarks.live import Live, Lookup, live_flights
from benchmarks.servers import database, database_url

UNEQUAL = {
    "limit_*": "Not peers, but limits that this project has set itself: 1 s for half of the files, 2 s for 99 %."
}
SEEDS = "the flights of file n: n, from 0; the pauses of a round: its first file"

ROUNDS = 5
EVENTS = 3_000  # at each pace, in files of 20
WARM_UP = 40  # files that are not counted, each written after the previous one has been seen
PACES = {"every_second": 1.0, "five_a_second": 0.2}  # seconds between two files, plus or minus half
POLL_SECONDS = 0.01
SEEN_WITHIN_SECONDS = 120.0  # after the last file was written, Spark's start included
PERCENTILES = {"p50": 50, "p99": 99}
LIMITS = {"p50": 1.0, "p99": 2.0}  # seconds


@dataclass(frozen=True)
class Journey:
    """When a file was written, its batch began and was committed, and a client saw it; seconds since 1970."""

    landed: float
    began: float
    committed: float
    seen: float


def run(events: int = EVENTS, rounds: int = ROUNDS) -> Iterable[Case]:
    count = max(events // FLIGHTS_PER_FILE // rounds, 2)  # files per pace and round
    journeys: dict[str, list[list[Journey]]] = {pace: [] for pace in PACES}
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        url = database_url(conn)
        with live_flights(url, Path(folder)) as live:
            for number in range(WARM_UP):
                _journeys(live, conn, range(number, number + 1), pause=0)
            first = WARM_UP
            for _ in range(rounds):
                for pace, pause in PACES.items():
                    journeys[pace].append(_journeys(live, conn, range(first, first + count), pause))
                    first += count
        for pace, by_round in journeys.items():
            yield from _cases(pace, by_round)
            yield from _spark_parts(conn, pace, by_round)


def _journeys(live: Live, conn: psycopg.Connection, numbers: range, pause: float) -> list[Journey]:
    """Write files, record when a client sees them, and look up their batches afterwards."""
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
        written = folder.parent / f"{number:06}.jsonl"
        written.write_text(flights_file(number))
        landed.append(time.time())
        written.replace(folder / written.name)


def _watch(live: Live, numbers: range, patience: float) -> list[float]:
    """Return when the total included each file's flights; files are counted in the order of their arrival."""
    seen: list[float] = []
    deadline = time.monotonic() + patience
    with closing(Lookup(live, "totals", "flights")) as lookup:
        while len(seen) < len(numbers):
            live.check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{len(numbers) - len(seen)} of {len(numbers)} files were not seen within {patience} s"
                )
            files = lookup.value() / FLIGHTS_PER_FILE - numbers.start
            seen += [time.time()] * (math.floor(files) - len(seen))
            time.sleep(POLL_SECONDS)
    assert files == len(numbers), f"{files} of {len(numbers)} files are counted"
    return seen


def _batches(conn: psycopg.Connection) -> list[tuple[float, float]]:
    """Return when each file's batch began and was committed. The database's clock is this machine's."""
    rows = conn.execute(
        "SELECT rows_in, extract(epoch FROM started_at)::float8, extract(epoch FROM committed_at)::float8 "
        "FROM tidegauge.batch WHERE pipeline = 'flights' AND committed_at IS NOT NULL ORDER BY txid"
    ).fetchall()
    files = accumulate(rows_in for rows_in, _, _ in rows)
    assert [counted % FLIGHTS_PER_FILE for counted in files] == [0] * len(rows), "a batch has a part of a file"
    return [(began, committed) for rows_in, began, committed in rows for _ in range(rows_in // FLIGHTS_PER_FILE)]


def _cases(pace: str, by_round: list[list[Journey]]) -> Iterator[Case]:
    seconds = [[journey.seen - journey.landed for journey in journeys] for journeys in by_round]
    together = [each for round_ in seconds for each in round_]
    for name, percent in PERCENTILES.items():
        value, of_rounds = percentile(together, percent), [percentile(round_, percent) for round_ in seconds]
        limit, (low, _, high) = LIMITS[name], quartiles(of_rounds)
        yield Case(
            f"{pace}_{name}", value, "s", spread_of(of_rounds), {f"limit_{name}": value / limit},
            {f"limit_{name}": (low / limit, high / limit)}, rounds=len(by_round),
        )  # fmt: skip
    yield Case(f"{pace}_max", max(together), "s")
    yield Case(f"{pace}_files", len(together), "files")
    yield from _parts(pace, [journey for journeys in by_round for journey in journeys])


def _parts(pace: str, journeys: list[Journey]) -> Iterator[Case]:
    parts = {
        "until_batch": [journey.began - journey.landed for journey in journeys],
        "batch": [journey.committed - journey.began for journey in journeys],
        "until_seen": [journey.seen - journey.committed for journey in journeys],
    }
    for part, each in parts.items():
        yield median_case(f"{pace}_{part}", [1000 * seconds for seconds in each], "ms")


def _spark_parts(conn: psycopg.Connection, pace: str, by_round: list[list[Journey]]) -> Iterator[Case]:
    """Yield the parts of the same triggers as Spark reports them; `addBatch` is the part that runs our code."""
    # Widened by 1 ms, so that rounding does not exclude the first or last batch of a round.
    spans = [(journeys[0].began - 0.001, journeys[-1].began + 0.001) for journeys in by_round]
    parts = conn.execute(
        "SELECT part, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms::float8), count(*) "
        "FROM tidegauge.batch, jsonb_each_text(metrics -> 'duration_ms') AS measured (part, ms) "
        "WHERE pipeline = 'flights' AND EXISTS (SELECT FROM unnest(%s::float8[], %s::float8[]) AS span (first, last) "
        "WHERE extract(epoch FROM started_at) BETWEEN first AND last) GROUP BY part ORDER BY part",
        [[first for first, _ in spans], [last for _, last in spans]],
    )
    for part, milliseconds, batches in parts:
        yield Case(f"{pace}_spark_{part}", milliseconds, "ms", rounds=batches)
