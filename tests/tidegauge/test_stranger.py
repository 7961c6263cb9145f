"""A stranger's project, outside the checkout, with the wheel: what docs/quickstart.md says, from Kafka to REST.

Its pipeline is killed with -9 in the middle of a batch, rewound, reprocessed and retired; each total is compared with
the messages that were sent.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest

from benchmarks.kafka_broker import Broker, MavenUnreachableError, broker_jars, connector_jars
from tests.docs.blocks import DOCS, blocks
from tests.java_options import for_another_environment
from tests.tidegauge.installed import run, users_environ
from tidegauge.pipelines.embedded.data_dir import free_port

PAGE = "quickstart.md"
CLICKS, STOCK, JOB = (block.text for block in blocks("python") if block.page == PAGE)
[TABLE] = (block.text for block in blocks("sql") if block.page == PAGE)
COMMANDS = re.findall(r"^tidegauge (.* clicks.*)$", (DOCS / PAGE).read_text(), re.MULTILINE)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """The connector's jars and the broker's; skips if Maven is unreachable, but not in CI."""
    folder = tmp_path_factory.mktemp("jars")
    try:
        connector = connector_jars(folder)
        return connector, broker_jars(folder, connector)
    except MavenUnreachableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Kafka for the tests: {error}")


@pytest.fixture
def broker(jars: tuple[list[Path], list[Path]], tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, jars[1], auto_create_topics_enable="true") as running:
        yield running


class Shop:
    """The stranger's project, in a folder of its own, with the processes of one who has only the wheel."""

    def __init__(self, programs: Path, folder: Path, dsn: str) -> None:
        self.programs, self.dsn = programs, dsn
        self.environ = {"DATABASE_URL": dsn, "REDIS_URL": os.environ["REDIS_URL"], **for_another_environment()}
        run(programs / "tidegauge", "init", "shop", cwd=folder)
        self.folder = folder / "shop"
        self.type("migrate")

    def add(self, module: str, text: str) -> None:
        """Write a module of pipelines, and name it in pyproject.toml."""
        (self.folder / "shop" / f"{module}.py").write_text(text)
        project = self.folder / "pyproject.toml"
        project.write_text(project.read_text().replace('"shop.orders"', f'"shop.orders", "shop.{module}"'))

    def type(self, command: str) -> str:
        """Run a command of the page to its end."""
        return run(self.programs / "tidegauge", *command.split(), cwd=self.folder, **self.environ).stdout

    def rows(self, query: LiteralString) -> list[Any]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query).fetchall()

    @contextmanager
    def running(self, command: str) -> Iterator[Callable[[LiteralString, list[Any]], None]]:
        """Run a command of the page meanwhile, and kill it with -9. Yields what waits for the rows of a query."""
        words = [str(self.programs / "tidegauge"), *command.split()]
        log = self.folder / "driver.log"
        with log.open("ab") as out:
            driver = subprocess.Popen(
                words, cwd=self.folder, env=users_environ() | self.environ, stdout=out, stderr=out
            )

        def until(query: LiteralString, expected: list[Any]) -> None:
            deadline = time.monotonic() + 120
            while (found := self.rows(query)) != expected:
                assert driver.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, found
                time.sleep(0.02)

        try:
            yield until
        finally:
            driver.kill()
            driver.wait()


class Clicks:
    """The pipeline that reads Kafka: its topic, its driver, and what was sent."""

    def __init__(self, shop: Shop, broker: Broker, connector: list[Path]) -> None:
        self._shop, self._broker = shop, broker
        shop.environ["KAFKA_SERVERS"] = broker.address
        # Maven's mirror may lack the connector of this Spark, which the page's pipeline would fetch.
        shop.add("clicks", CLICKS.replace('"clicks", schema', '"clicks", packages=(), schema'))
        shop.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.jars={','.join(map(str, connector))} pyspark-shell"
        self.sent: Counter[tuple[str, str]] = Counter()

    def send(self, messages: int) -> None:
        lines = []
        for number in range(sum(self.sent.values()), sum(self.sent.values()) + messages):
            page, minute = f"/{number % 7}", f"2026-11-22 10:{number % 5:02}:00"
            lines.append(json.dumps({"page": page, "at": f"2026-11-22T10:{number % 5:02}:{number % 60:02}Z"}))
            self.sent[page, minute] += 1
        self._broker.produce("clicks", *lines)

    def kill_in_a_batch(self) -> None:
        """Start the pipeline and kill it with -9 once it has a batch open."""
        with self._shop.running("run clicks") as until:
            until("SELECT count(open_txid) FROM tidegauge.pipeline", [(1,)])

    @property
    def held(self) -> dict[tuple[str, str], int]:
        rows = self._shop.rows("SELECT page, (minute AT TIME ZONE 'UTC')::text, clicks FROM tidegauge_live.clicked")
        return {(page, minute): clicks for page, minute, clicks in rows}


@pytest.fixture
def shop(environment, folder, database_url) -> Iterator[Shop]:
    place = folder / "stranger"
    place.mkdir()
    yield Shop(environment("spark,web,embedded"), place, database_url)
    shutil.rmtree(place)


@pytest.fixture
def served(shop: Shop) -> Iterator[str]:
    """The address of the web process of the project."""
    port = str(free_port())
    command = [str(shop.programs / "tidegauge"), "web", "--port", port]
    environ = users_environ() | shop.environ | {"SECRET_KEY": "of-the-stranger-0123456789-abcdef"}
    with (shop.folder / "web.log").open("ab") as log:
        web = subprocess.Popen(command, cwd=shop.folder, env=environ, stdout=log, stderr=log)
    yield f"http://localhost:{port}"
    web.terminate()
    web.wait(30)


def answered(url: str, key: str, *keys: list[str]) -> Any:
    """The counts that the API gives, once the web process answers; its status where that is not 200."""
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = httpx.post(
                f"{url}/api/v1/states/clicked/lookup", json={"keys": keys}, headers={"Authorization": f"Bearer {key}"}
            )
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
            continue
        found = answer.json()
        return [each["value"]["clicks"] for each in found["results"]] if answer.is_success else answer.status_code


def test_kafka_to_rest_under_kill_9_rewound_reprocessed_and_retired(shop, served, broker, jars):
    once, reprocess, rewind, retire = COMMANDS[0] + " --once", *COMMANDS[1:]
    clicks = Clicks(shop, broker, jars[0])
    clicks.send(600)
    clicks.kill_in_a_batch()
    clicks.send(100)
    shop.type(once)
    assert clicks.held == clicks.sent

    key = shop.type("create_api_key mine --scope read").split()[-1]
    keys = [["/0", "2026-11-22T10:00:00Z"], ["/1", "2026-11-22T10:01:00Z"]]
    counts = [clicks.sent["/0", "2026-11-22 10:00:00"], clicks.sent["/1", "2026-11-22 10:01:00"]]
    assert answered(served, key, *keys) == counts

    shop.type(rewind)
    assert sum(clicks.held.values()) < sum(clicks.sent.values())
    shop.type(once)
    assert clicks.held == clicks.sent

    shop.type(reprocess)
    assert clicks.held == clicks.sent
    assert answered(served, key, *keys) == counts

    shop.type(retire)
    assert answered(served, key, *keys) in (404, 410)


def test_the_table_is_followed(shop):
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        shop.add("stock", STOCK)
        with shop.running("run stock") as until:
            until("SELECT to_regclass('tidegauge_live.stock') IS NOT NULL", [(True,)])
            until("SELECT shelf, products, pieces FROM tidegauge_live.stock ORDER BY 1", [("A", 2, 9), ("B", 1, 5)])
            conn.execute("UPDATE products SET shelf = 'B' WHERE product = 'tea'")
            until("SELECT shelf, products, pieces FROM tidegauge_live.stock ORDER BY 1", [("A", 1, 2), ("B", 2, 12)])
    shop.type("retire --pipeline stock --drop --yes")


def test_the_job_of_one_s_own_feeds_a_state(shop):
    (shop.folder / "job.py").write_text(JOB)
    activated = {"PATH": f"{shop.programs}{os.pathsep}{os.environ['PATH']}"}
    (shop.folder / "landing").mkdir()
    for number in range(2):
        (shop.folder / "landing" / f"{number}.json").write_text('{"page": "/home"}\n{"page": "/cart"}\n')
        run("python", "job.py", cwd=shop.folder, **shop.environ | activated)

    assert shop.rows("SELECT page, views FROM tidegauge_live.viewed ORDER BY 1") == [("/cart", 2), ("/home", 2)]
