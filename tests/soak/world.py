"""World: the servers, and one pipeline with its driver, feeder, checkers and upkeep; what a fault acts upon."""

import os
import random
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.soak import checkers, fork_server
from tests.soak.checkers import Checkers
from tests.soak.disk import Disk
from tests.soak.feeder import Feeder
from tests.soak.points import Points
from tests.soak.postgres_pair import PostgresPair
from tests.soak.processes import Commands, Process, wait_until
from tests.soak.redis_pair import RedisPair
from tests.soak.services import Services
from tests.soak.transfers import VARIANTS, Release, Variant
from tidegauge.pipelines.checkpoint.file_log import ProcessedFiles
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.maintenance import compact, expire

UPKEEP_SECONDS = 1.0
FEED_SECONDS = 0.3
MOST_WAITING_FILES = 8
START_SECONDS = 300.0
LET_GO_SECONDS = 3.0


@dataclass(frozen=True)
class Options:
    """What a run is made of. off: guards turned off. served: whether web, events and the worker run."""

    seed: int
    spark: bool = False
    off: str = ""
    served: bool = False


class Servers:
    """PostgreSQL with a standby, Redis with a replica, and the services over them if `served`."""

    def __init__(self, folder: Path, *, served: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        self.folder = folder
        self.disk = Disk(folder / "disk")
        self.postgres = PostgresPair(self.disk.folder)
        self.redis = RedisPair(self.disk.folder)
        # For the readers in this process.
        self._before = os.environ.get("REDIS_URL", "")
        os.environ["REDIS_URL"] = self.redis.url
        fork_server.start(self.environ | {"TIDEGAUGE_HOME": str(folder / "home")})
        self.services = Services(folder / "services", self.environ) if served else None

    @property
    def environ(self) -> dict[str, str]:
        return {"DATABASE_URL": self.postgres.url, "REDIS_URL": self.redis.url}

    def close(self) -> None:
        os.environ["REDIS_URL"] = self._before
        fork_server.stop()
        if self.services is not None:
            self.services.close()
        self.postgres.close()
        self.redis.close()
        self.disk.close()


@dataclass
class World:
    """One pipeline and everything around it. number: of the pipeline in this run; its seed follows from it."""

    servers: Servers
    options: Options
    number: int
    variant_name: str
    release: Release = field(default_factory=Release)

    def __post_init__(self) -> None:
        self.pipeline = f"{self.variant_name}_{self.number}"
        self.folder = self.servers.folder / self.pipeline
        self.folder.mkdir()
        self.seed = f"{self.options.seed}-{self.number}"
        self.chance = random.Random(self.seed)
        self.points = Points(self.folder / "points", spark=self.options.spark)
        self.feeder = Feeder(self.folder / "input", self.seed)
        self.checkpoint = self.folder / "checkpoint"
        self.commands = Commands(self.folder, self._environ())
        self.driver: Process | None = None

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.variant_name]

    @property
    def url(self) -> str:
        return self.servers.postgres.url

    @property
    def uses_redis(self) -> bool:
        return "redis" in self.variant.backends

    @property
    def states(self) -> list[str]:
        return [f"{self.pipeline}_{side}" for side in ("debits", "credits")]

    def _environ(self) -> dict[str, str]:
        return self.servers.environ | {
            "TIDEGAUGE_HOME": str(self.folder / "home"),
            "SOAK_PIPELINE": self.pipeline,
            "SOAK_VARIANT": self.variant_name,
            "SOAK_POINTS": str(self.points.folder),
            "SOAK_SEED": self.seed,
            "SOAK_OFF": self.options.off,
            "SOAK_SPARK": "1" if self.options.spark else "",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "LOG_FORMAT": "text",
        }

    @contextmanager
    def running(self) -> Iterator["World"]:
        """Start the driver, and once it has committed a batch the feeder, the checkers and the upkeep."""
        self.feeder.land(2)
        self.start_driver()
        try:
            if not wait_until(lambda: self.committed_txid() > 0, START_SECONDS, 0.1):
                raise RuntimeError(f"{self.pipeline}: no batch in {START_SECONDS} s: {self.driver.output()[-2000:]}")
            slack = 1 if self.variant.spout == "opaque" else 0
            self.checkers = Checkers(self.url, self.pipeline, slack=slack, services=self.servers.services)
            self.background = Background(self)
            yield self
        finally:
            self.close()

    def close(self) -> None:
        for part in ("background", "checkers"):
            if hasattr(self, part):
                getattr(self, part).close()
        self.commands.close()

    # The driver

    def start_driver(self, *more: str, name: str = "driver") -> Process:
        """Start a driver as an operator does; `name` is its log's."""
        process = self.commands.start(name, *self.run_words(*more), **self.release.environ)
        if name == "driver":
            self.driver = process
        return process

    def run_words(self, *more: str) -> list[str]:
        folders = ["--input", str(self.feeder.folder), "--checkpoint", str(self.checkpoint)]
        return ["run_pipeline", self.pipeline, *folders, "--max-failures", "30", *more]

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()

    def ensure_driver(self) -> None:
        """Start the driver again if it was killed; one that has ended by itself is left, for its reason."""
        assert self.driver is not None
        if self.driver.exit_code() == -9:
            self.start_driver()

    def await_end(self) -> None:
        """Wait a moment for the end of a driver that was ordered to die."""
        assert self.driver is not None
        wait_until(lambda: self.driver is not None and self.driver.exit_code() is not None, 10)

    def ended(self) -> bool:
        return self.driver is not None and self.driver.exit_code() is not None

    def retire_driver(self) -> Process:
        """Return the driver, which is the pipeline's no longer."""
        assert self.driver is not None
        zombie, self.driver = self.driver, None
        return zombie

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the driver within the block, as an operator does before work on the ledger or the checkpoint."""
        assert self.driver is not None
        self.driver.stop()
        yield
        self.start_driver()

    def stop_at(self, point: str, action: str = "hold", seconds: float = 30.0) -> int | None:
        """Order an action at a point, feed until it is reached, and return who reached it; None: nobody did."""
        self.points.order(point, action)

        def reached() -> bool:
            return self.points.reached(point) is not None

        wait_until(reached, seconds)
        if not reached():
            self.points.cancel(point)
        return self.points.reached(point)

    def let_go(self, pid: int) -> None:
        """Continue a stopped process, and give it time to do what it was about to."""
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process = psutil.Process(pid)
            process.send_signal(signal.SIGCONT)
            process.wait(timeout=LET_GO_SECONDS)

    # What is stored

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.servers.postgres.primary.query(statement, *parameters)

    def committed_txid(self) -> int:
        with suppress(psycopg.Error, OSError):
            rows = self.query("SELECT committed_txid FROM tidegauge.pipeline WHERE name = %s", self.pipeline)
            return rows[0][0] if rows else 0
        return 0

    def await_batches(self, more: int, seconds: float = 20.0) -> None:
        """Wait until so many more batches are committed, or it takes too long."""
        last = self.committed_txid() + more
        wait_until(lambda: self.committed_txid() >= last, seconds, 0.05)

    def values(self) -> dict[str, Any]:
        return checkers.values(self.url, self.pipeline)

    def newest(self, part: str) -> int:
        """Return the newest batch id in a folder of the checkpoint, `offsets` or `commits`; -1 before the first."""
        with suppress(FileNotFoundError):
            names = (path.name for path in (self.checkpoint / part).iterdir())
            return max((int(name) for name in names if name.isdecimal()), default=-1)
        return -1

    def waiting_files(self) -> int:
        """Return how many files have landed that the engine has not planned."""
        return len(self._landed() - self._taken())

    def _landed(self) -> set[str]:
        return {path.name for path in self.feeder.folder.glob("*.json")}

    def _taken(self) -> set[str]:
        return ProcessedFiles(self.checkpoint).names()

    def has_drained(self) -> bool:
        """Return whether the engine has noted every file that has landed as processed."""
        return not self.waiting_files() and self.newest("offsets") == self.newest("commits")

    def save_checkpoint(self, name: str) -> Path:
        """Copy the checkpoint as a backup takes it. The driver should be stopped or held."""
        saved = self.folder / name
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(self.checkpoint, saved)
        return saved

    def restore_checkpoint(self, saved: Path) -> None:
        """Put a copy in the place of the checkpoint. Nobody sees half of it."""
        draft = self.folder / "restored"
        shutil.copytree(saved, draft)
        shutil.rmtree(self.checkpoint)
        draft.rename(self.checkpoint)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Keep everybody away from the database within the block."""
        proxy = self.servers.postgres.proxy
        target, proxy.target = proxy.target, None
        proxy.cut()
        # What was under way on the server may still be.
        self.query("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                   "WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        try:
            yield
        finally:
            proxy.target = target

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Land no files within the block."""
        self.background.feeding.clear()
        try:
            yield
        finally:
            self.background.feeding.set()


class Background:
    """Lands files, and compacts and expires both states, all the while."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopping = threading.Event()
        self.feeding = threading.Event()
        self.feeding.set()
        self.idle = threading.Event()
        self.upkeep_runs = 0
        # Why one of the two has ended.
        self.failure = ""
        works = (self._feed, self._maintain)
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            self.failure = traceback.format_exc()

    def _feed(self) -> None:
        while not self._stopping.wait(FEED_SECONDS):
            # More would take longer to catch up with after a fault, and show nothing more.
            if self.feeding.is_set() and self._world.waiting_files() < MOST_WAITING_FILES:
                self.idle.clear()
                self._world.feeder.land()
            self.idle.set()

    def _maintain(self) -> None:
        while not self._stopping.wait(UPKEEP_SECONDS):
            self._have_it_maintained()
            with (
                suppress(psycopg.Error, TidegaugeError, OSError),
                psycopg.connect(self._world.url, autocommit=True, options=checkers.CONNECT, connect_timeout=3) as conn,
            ):
                for name in self._world.states:
                    spec = Catalog(conn).get(name)
                    # A few seconds are kept, so that an export and a lookup in the past find what they began with.
                    list(compact(conn, spec, keep=timedelta(seconds=20)))
                    list(expire(conn, spec))
                self.upkeep_runs += 1

    def _have_it_maintained(self) -> None:
        """The same through the API, by the worker."""
        services = self._world.servers.services
        if services is None:
            return
        services.ensure_running()
        with suppress(OSError):
            for name in self._world.states:
                for work in ("compaction", "expiry"):
                    services.ask_for(name, work)
