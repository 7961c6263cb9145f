"""The engines of the benchmark: how each is started and killed, and where it keeps the views of a window."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import psycopg
import redis

from benchmarks.peers.environments import trident_classpath
from benchmarks.servers import database_url
from benchmarks.yahoo.events import Events, Key
from benchmarks.yahoo.jobs import ADS, PREFIX, Job, views_state
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, free_port
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.state_backends import PostgresBackingMap, RedisBackingMap
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.webapp.commands.management.child_process import Child

STOP_SECONDS = 40.0
ZOOKEEPER = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
# As in `trident`, but the spout may read as much in a batch as it finds.
TRIDENT = {"pending": 4, "cache": 1_000_000, "tasks": 2, "polled": 500_000}


class Window(NamedTuple):
    """A campaign's views in one window, and when they were last updated, in ms since 1970."""

    seen: int
    updated_ms: int


@dataclass(frozen=True)
class Place:
    """Where a run takes place: a topic, and stores without earlier counts. root: for checkpoints and logs."""

    servers: str
    topic: str
    root: Path
    connector: Sequence[Path]
    events: Events
    conn: psycopg.Connection
    client: redis.Redis

    @property
    def job(self) -> Job:
        jars, events = tuple(map(str, self.connector)), self.events
        width = f"{events.window_ms} milliseconds"
        return Job(self.servers, self.topic, str(self.root), jars, bool(events.ads), width)


class Engine(Protocol):
    """A running engine."""

    def kill(self) -> None:
        """Kill the driver and all processes of its group with SIGKILL, and start it again."""

    def windows(self) -> dict[Key, Window]:
        """Return all windows that are counted so far."""

    def look_up(self, keys: Sequence[Key]) -> list[int]:
        """Return the views of windows by one read of the store; 0 for those that are not counted yet."""

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if it has ended by itself."""

    def stop(self) -> None: ...


class _Process:
    """An engine as a child process that is started again after it was killed."""

    def __init__(self, place: Place, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.place = place
        self._name, self._command, self._environ = name, command, environ
        self._starts = 0
        self._start()

    def kill(self) -> None:
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.stop()
        self._start()

    def stop(self) -> None:
        self.child.stop()

    def check(self) -> None:
        if self.child.exit_code() is not None:
            raise RuntimeError(f"{self._name} has ended; the end of {self.child.log}:\n{self.child.last_lines()}")

    def _start(self) -> None:
        self._starts += 1
        log = self.place.root / f"{self._name}-{self._starts}.log"
        folder = self.place.root / "work"  # because Storm leaves files in its working directory
        folder.mkdir(exist_ok=True)
        self.child = Child(self._name, self._command, log, STOP_SECONDS, folder, self._environ)


class _SparkJob(_Process):
    def __init__(self, place: Place, name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.yahoo.jobs", name, place.job.as_argument()]
        super().__init__(
            place, name, command, {"DATABASE_URL": database_url(place.conn), "PYTHONPATH": str(REPOSITORY)}
        )


def stored_views(place: Place, backend: str) -> dict[Key, Window]:
    """Return the windows of Tidegauge's job; each was updated when the batch that wrote it last was committed.

    That is when readers see it.
    """
    found = place.conn.execute(
        "SELECT txid, (1000 * extract(epoch FROM committed_at))::bigint FROM tidegauge.batch "
        "WHERE pipeline = %s AND committed_at IS NOT NULL",
        [f"bench_yahoo_{backend}"],
    )
    committed: dict[int, int] = dict(found.fetchall())
    if not committed:
        return {}
    spec = views_state(backend)
    rows = RedisBackingMap(place.client, spec) if backend == "redis" else PostgresBackingMap(place.conn, spec)
    return {
        (campaign, int(1000 * start.timestamp())): Window(row.value["seen"], committed[row.txid])
        for (campaign, start), row in rows.scan()
        if row.txid in committed
    }


class Tidegauge(_SparkJob):
    """Tidegauge's job."""

    def __init__(self, place: Place, name: str, backend: str) -> None:
        super().__init__(place, name)
        self._spec = views_state(backend)
        # A connection of its own, because another thread looks up while this one waits for windows.
        self._asking = psycopg.connect(database_url(place.conn), autocommit=True)
        self._reader = BACKENDS[backend].reader(self._asking, self._spec, None)

    def stop(self) -> None:
        super().stop()
        self._asking.close()

    def windows(self) -> dict[Key, Window]:
        return stored_views(self.place, self._spec.backend)

    def look_up(self, keys: Sequence[Key]) -> list[int]:
        return read_views(self._reader, keys)


def read_views(reader: Reader, keys: Sequence[Key]) -> list[int]:
    """Return the views of windows as a reader of Tidegauge's job sees them."""
    asked = [(campaign, datetime.fromtimestamp(start / 1000, UTC)) for campaign, start in keys]
    found = reader.multi_get(asked).parsed()
    return [each["value"]["seen"] if each["status"] == "found" else 0 for each in found]


class ByHand(_SparkJob):
    """The job that is written by hand."""

    def windows(self) -> dict[Key, Window]:
        return published_views(self.place)

    def look_up(self, keys: Sequence[Key]) -> list[int]:
        asked = self.place.client.pipeline(transaction=False)
        for campaign, start in keys:
            asked.hget(f"{PREFIX}{campaign}", str(start))
        windows = [found.decode() if found else "" for found in asked.execute()]
        return [int(seen or 0) for seen in _each(self.place.client, "hget", windows, "seen_count")]


def published_views(place: Place) -> dict[Key, Window]:
    """Return the windows from the published layout: CAMPAIGN has START -> a key, which has count and time.

    Of the campaigns that were viewed, because to read a million keys takes Redis away from the job for a minute.
    """
    campaigns, keys = sorted({campaign for campaign, _ in place.events.views()}), dict[str, Key]()
    for campaign, starts in zip(campaigns, _each(place.client, "hgetall", campaigns), strict=True):
        keys |= {window.decode(): (campaign, int(start)) for start, window in starts.items()}
    stored = _each(place.client, "hmget", list(keys), ["seen_count", "time_updated"])
    return {key: Window(int(seen), int(at)) for key, (seen, at) in zip(keys.values(), stored, strict=True) if at}


def _each(client: redis.Redis, command: str, ids: Sequence[str], *arguments: Any) -> list[Any]:
    """Return the answers of a command for each of many ids."""
    found: list[Any] = []
    for first in range(0, len(ids), 10_000):
        asked = client.pipeline(transaction=False)
        for each in ids[first : first + 10_000]:
            getattr(asked, command)(f"{PREFIX}{each}", *arguments)
        found += asked.execute()
    return found


class Trident(_Process):
    """Storm Trident with an opaque state. zookeeper: the port of the server that outlives it."""

    def __init__(self, place: Place, zookeeper: int) -> None:
        server = urlsplit(os.environ["REDIS_URL"])
        settings = TRIDENT | {
            "servers": place.servers,
            "topic": place.topic,
            "port": server.port,
            "prefix": PREFIX,
            "windowMs": place.events.window_ms,
            "joined": str(bool(place.events.ads)).lower(),
            "zookeeper": zookeeper,
        }
        properties = [f"-D{name}={value}" for name, value in settings.items()]
        command = [f"{java_home()}/bin/java", "-cp", trident_classpath(), *properties, "tidegauge.CampaignViews"]
        super().__init__(place, "trident", command, {"REDIS_PASSWORD": server.password or ""})

    def windows(self) -> dict[Key, Window]:
        found = {}
        for field, value in self.place.client.hscan_iter(f"{PREFIX}counts", count=10_000):
            campaign, _, start = field.decode().partition(":")
            _, seen, _, written = value.decode().split(",")
            found[campaign, int(start)] = Window(int(seen), int(written))
        return found

    def look_up(self, keys: Sequence[Key]) -> list[int]:
        values = self.place.client.hmget(f"{PREFIX}counts", [f"{campaign}:{start}" for campaign, start in keys])
        return [int(value.decode().split(",")[1]) if value else 0 for value in values]


@contextmanager
def _stopped(engine: Engine) -> Iterator[Engine]:
    """Yield an engine, and stop it when the block ends."""
    try:
        yield engine
    finally:
        engine.stop()


@contextmanager
def _trident(place: Place) -> Iterator[Engine]:
    port = free_port()
    server = [f"{java_home()}/bin/java", "-Xmx128m", "-cp", trident_classpath(), ZOOKEEPER, str(port)]
    zookeeper = Child("zookeeper", [*server, str(place.root / "zookeeper")], place.root / "zookeeper.log")
    try:
        with _stopped(Trident(place, port)) as trident:
            yield trident
    finally:
        zookeeper.stop()


# How each engine is run until the block ends.
ENGINES: dict[str, Callable[[Place], AbstractContextManager[Engine]]] = {
    "by_hand": lambda place: _stopped(ByHand(place, "by_hand")),
    "tidegauge": lambda place: _stopped(Tidegauge(place, "tidegauge", "postgres")),
    "tidegauge_redis": lambda place: _stopped(Tidegauge(place, "tidegauge_redis", "redis")),
    "trident": _trident,
}


def write_campaigns(client: redis.Redis, ads: Mapping[str, str]) -> None:
    """Write the campaign of each ad into Redis, as one key per ad, as published, and all in one hash."""
    if ads:
        client.mset({f"{PREFIX}{ad}": campaign for ad, campaign in ads.items()})
        client.hset(ADS, mapping={**ads})


def until(is_done: Callable[[], bool], engine: Engine, seconds: float) -> bool:
    """Wait until it is done. Returns False if it is not within so many seconds; raises if the engine has ended."""
    deadline = time.monotonic() + seconds
    while not is_done():
        engine.check()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True
