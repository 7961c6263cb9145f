"""A Spark session for the whole run, and a way to drive a pipeline over a folder of files."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.core.management import call_command
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.harness.costs import count
from tests.harness.waiting import eventually
from tests.pipelines.clean_database import clean
from tests.recovery_page import arguments
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.embedded.postgres import server_programs
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.pipelines.errors import SparkVersionError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.spark.versions import lacks_function
from tidegauge.state_backends import Catalog, StateReader

FIRST_LANDING = 1_700_000_000

# Spark interprets the queries of a batch in place of compiling classes for them, because compiling takes an eighth of
# the time of tests, which have few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what an older Spark refuses by name, and tests of functions that it lacks."""
    try:
        return (yield)
    except (SparkVersionError, AnalysisException) as error:
        if isinstance(error, SparkVersionError) or lacks_function(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def spark(tidegauge_spark: SparkSession, pytestconfig: pytest.Config) -> SparkSession:
    # `make test`, the soak and all drivers in processes of their own compile.
    for name, value in INTERPRETED.items() if pytestconfig.option.tier == "rest" else ():
        tidegauge_spark.conf.set(name, value)
    return tidegauge_spark


@pytest.fixture(autouse=True)
def no_plan_outlives_its_query(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which Spark keeps plans: by jobs of queries that have ended, or by names (sink_plan._named)."""
    session = request.getfixturevalue("tidegauge_spark") if "tidegauge_spark" in request.fixturenames else None
    yield
    if session is not None:
        views = session._jsparkSession.sessionState().catalog().listLocalTempViews("*")
        assert views.isEmpty(), views.toString()
        scheduler = session.sparkContext._jsc.sc().dagScheduler()
        if hasattr(scheduler, "activeQueryToJobs"):  # Spark 4.3
            eventually(lambda: scheduler.activeQueryToJobs().isEmpty(), 10)


@pytest.fixture(scope="session")
def shared_database() -> Iterator[str]:
    """The URL of a database that the tests of pipelines of this process share."""
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        yield url


@pytest.fixture
def database_url(shared_database: str) -> str:
    """The URL of the database, cleaned of what earlier tests left."""
    with psycopg.connect(shared_database, autocommit=True) as conn:
        clean(conn)
    return shared_database


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the database; every statement is its own transaction."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


class Workspace:
    """A folder for input, one for the checkpoint, and the database that the pipeline feeds."""

    def __init__(self, spark: SparkSession, conn: psycopg.Connection, dsn: str, folder: Path) -> None:
        self.spark, self.conn, self.dsn = spark, conn, dsn
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.input.mkdir()

    def land(self, name: str, *lines: Any) -> Path:
        """Move a complete file into the input folder; lines that are not text become JSON."""
        path = self.input / name
        complete = self.input.parent / name
        complete.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        at = FIRST_LANDING + len(list(self.input.iterdir()))
        os.utime(complete, (at, at))
        return complete.replace(path)

    def run(self, pipeline: Pipeline, **options: Any) -> list[tuple[int, int]]:
        """Process the available input; return (txid, attempt) of each committed batch."""
        batches: list[tuple[int, int]] = []
        run_options = RunOptions(self.checkpoint, once=True, **options)
        note = lambda batch: batches.append((batch.txid, batch.attempt))  # noqa: E731
        count("runs")
        Driver(pipeline, self.spark, self.dsn, run_options, note).run()
        return batches

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that died between our commit and Spark's note of it."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def values(self, state: str) -> dict[Any, Any]:
        """Return the state as a reader sees it: key (its only part if it has one) to its measures."""
        page = StateReader(self.conn, Catalog(self.conn).get(state)).page(limit=10_000)
        return {
            (entry["key"][0] if len(entry["key"]) == 1 else tuple(entry["key"])): entry["value"]
            for entry in page.parsed()
        }

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query).fetchall()

    def jobs_begun(self) -> int:
        """Return how many jobs the session has begun so far."""
        return self.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


@pytest.fixture
def workspace(spark: SparkSession, conn: psycopg.Connection, database_url: str, tmp_path: Path) -> Workspace:
    return Workspace(spark, conn, database_url, tmp_path)


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """A workspace whose pipeline `word_count` has counted one dog."""
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    return workspace


@pytest.fixture
def type_command(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> Callable[..., list[str]]:
    """Types a command of docs/recovery.md for the pipeline word_count; returns what it prints of it.

    A driver that it starts ends with the input, of which it reads one file per batch.
    """
    django.setup()
    monkeypatch.setenv("DATABASE_URL", workspace.dsn)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)

    def type_command(command: str, **values: str) -> list[str]:
        words = arguments(command, NAME="word_count", STATE="words", **values)
        options: dict[str, Any] = {"input": workspace.input, "checkpoint": workspace.checkpoint}
        if "--checkpoint" in words:
            del options["checkpoint"]
        if words[0] == "run_pipeline":
            options |= {"files_per_batch": 1, "once": True}
        out = StringIO()
        # Commands look whether Django's own tables are there.
        with django_db_blocker.unblock():
            call_command(*words, stdout=out, **options)
        # Without Django's notice that its own tables are not in this database.
        return [line for line in out.getvalue().splitlines() if line.startswith(("word_count: ", "state ", "folder "))]

    return type_command


class Dump:
    """A dump of the database, which can be restored over it. file: where it is kept."""

    def __init__(self, dsn: str, file: Path) -> None:
        self._dsn, self._file = dsn, file

    def take(self) -> None:
        self._run("pg_dump", "--format=custom", f"--file={self._file}")

    def restore(self) -> None:
        self._run("pg_restore", "--clean", str(self._file))

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([server_programs() / program, f"--dbname={self._dsn}", *arguments], check=True)


@pytest.fixture
def dump(workspace: Workspace, tmp_path: Path) -> Dump:
    return Dump(workspace.dsn, tmp_path / "dump")
