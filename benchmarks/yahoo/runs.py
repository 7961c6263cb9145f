"""One run of an engine on a new topic and empty stores, and the benchmark's own check of what it has counted."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.kafka_broker import Broker, broker_jars, connector_jars
from benchmarks.servers import database, redis_client
from benchmarks.yahoo.engines import ENGINES, Engine, Place, Window, until, write_campaigns
from benchmarks.yahoo.events import Events, Key
from benchmarks.yahoo.load import Load

TOPIC = "ad-events"
# One per core of the machine that this is usually run on; the published configuration has one.
PARTITIONS = 2
START_SECONDS = 300.0
TRICKLE = 100  # events a second, until the engine has counted something
WARM_UP_SECONDS = 10.0  # at the full rate
DRAIN_SECONDS = 300.0  # for what is still unread when the sender has ended


@dataclass(frozen=True)
class Check:
    """The benchmark's check: windows whose count differs from the expected one, and by how many events in sum."""

    windows: int
    wrong: int
    counted_twice: int
    lost: int


@dataclass(frozen=True)
class Run:
    """A running engine and what it is fed."""

    broker: Broker
    place: Place
    engine: Engine

    def until_counted(self, seconds: float) -> bool:
        """Wait until all views are counted. Returns whether they were within the time.

        They are once the windows that begin last are complete, because engines read each partition in order.
        """
        views = self.place.events.views()
        last = max(start for _, start in views)
        newest = {key: seen for key, seen in views.items() if key[1] == last}

        def is_done() -> bool:
            found = self.engine.windows()
            return all(key in found and found[key].seen >= seen for key, seen in newest.items())

        return until(is_done, self.engine, seconds)

    def check(self) -> Check:
        return checked(self.place.events.views(), self.engine.windows())


@contextmanager
def running(engine: str, events: Events) -> Iterator[Run]:
    """Run an engine on a broker of its own until the block ends."""
    connector, jars = _jars()
    with ExitStack() as stack:
        conn, client = stack.enter_context(database()), stack.enter_context(redis_client())
        # Errors are ignored, because a process that was killed may leave another that still writes.
        folder = tempfile.TemporaryDirectory(prefix="tidegauge-bench-", ignore_cleanup_errors=True)
        root = Path(stack.enter_context(folder))
        (root / "kafka").mkdir()
        settings = {"auto_create_topics_enable": "true", "num_partitions": PARTITIONS}
        broker = stack.enter_context(Broker(root / "kafka", jars, **settings))
        broker.produce(TOPIC)  # creates it
        write_campaigns(client, events.ads)
        place = Place(broker.address, TOPIC, root, connector, events, conn, client)
        yield Run(broker, place, stack.enter_context(ENGINES[engine](place)))


def warm_up(run: Run, load: Load, rate: int) -> None:
    """Send few events until the engine has counted some, and then at the full rate for the warm-up.

    Raises TimeoutError if it counts nothing.
    """
    deadline = time.monotonic() + START_SECONDS
    while not run.engine.windows():
        run.engine.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the engine has counted nothing after {START_SECONDS} s; see {run.place.root}")
        load.at_rate(TRICKLE, 1.0)
    load.at_rate(rate, WARM_UP_SECONDS)
    load.behind = 0.0


def checked(expected: Mapping[Key, int], found: Mapping[Key, Window]) -> Check:
    """Compare every window. A window that should not be there is wrong, too."""
    differences = [found.get(key, Window(0, 0)).seen - expected.get(key, 0) for key in {*expected, *found}]
    wrong = [difference for difference in differences if difference]
    return Check(
        len(differences), len(wrong), sum(each for each in wrong if each > 0), -sum(each for each in wrong if each < 0)
    )


def final_latencies(windows: Mapping[Key, Window], width_ms: int, start_ms: int, end_ms: int) -> list[int]:
    """Return the final-event latency in ms of each window that is within the time of the measurement.

    It is the time of a window's last update, less the end of the window.
    """
    return [
        window.updated_ms - start - width_ms
        for (_, start), window in windows.items()
        if start_ms <= start and start + width_ms <= end_ms
    ]


@cache
def _jars() -> tuple[list[Path], list[Path]]:
    """Return the jars of Spark's connector and of a broker. Raises MavenUnreachableError."""
    with tempfile.TemporaryDirectory() as folder:
        connector = connector_jars(Path(folder))
        return connector, broker_jars(Path(folder), connector)
