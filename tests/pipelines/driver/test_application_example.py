"""docs/spark-application.md: the application runs as it stands there, in a process of its own, and is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal

import psycopg
import pytest

from tests.docs.blocks import blocks
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.embedded.java import java_home

pytestmark = pytest.mark.spark

PYTHON = [block.text for block in blocks("python") if block.page == "spark-application.md"]
SETTINGS = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "3",
}

OF_OTHERS = ("PATH", "HOME", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")


class ShopApplication:
    """The page's first program in a folder of its own, under settings that are not Tidegauge's."""

    def __init__(self, folder, dsn):
        self._folder = folder
        (folder / "orders").mkdir()
        settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        self._environ = {
            **{name: os.environ[name] for name in OF_OTHERS if name in os.environ},
            "DATABASE_URL": dsn, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": java_home(), "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip

    def land(self, name, *orders):
        rows = (json.dumps({"customer": customer, "amount": amount}) + "\n" for customer, amount in orders)
        (self._folder / name).write_text("".join(rows))
        (self._folder / name).rename(self._folder / "orders" / name)

    def start(self):
        with (self._folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-c", PYTHON[0]], cwd=self._folder, env=self._environ, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def log(self):
        return (self._folder / "log").read_text()[-3000:]


@pytest.fixture
def shop(tmp_path, conn, database_url):
    return ShopApplication(tmp_path, database_url)


def kill(process):
    """Kill a process and those that it has started, Java and Python's workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def eventually(condition, shop):
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline, shop.log()
        time.sleep(0.1)
    return found


def is_merging(conn):
    """Return whether a batch is open and a task waits to write its rows."""
    return conn.execute(
        "SELECT 1 FROM tidegauge.pipeline p, pg_stat_activity a WHERE p.open_txid = 2 AND a.wait_event_type = 'Lock' "
        "AND a.application_name LIKE 'tidegauge shop %'"
    ).fetchone()


def totals(conn):
    if conn.execute("SELECT to_regclass('tidegauge_live.orders_by_customer')").fetchone() == (None,):
        return {}
    rows = conn.execute("SELECT customer, orders, total FROM tidegauge_live.orders_by_customer")
    return {customer: (orders, total) for customer, orders, total in rows}


def test_the_application_is_exact_after_it_was_killed_in_mid_batch(shop, conn, database_url):
    shop.land("1.json", ("ann", 1.10), ("bob", 2.25))
    first = shop.start()
    try:
        eventually(lambda: totals(conn), shop)
        with psycopg.connect(database_url) as blocker:
            blocker.execute("LOCK TABLE tidegauge_state.orders_by_customer IN SHARE MODE")
            shop.land("2.json", ("ann", 3.00), ("cid", 4.00))
            eventually(lambda: is_merging(conn), shop)
            kill(first)
            blocker.rollback()
    finally:
        if first.poll() is None:
            kill(first)

    second = shop.start()
    try:
        eventually(lambda: "cid" in totals(conn), shop)
    finally:
        kill(second)

    assert totals(conn) == {"ann": (2, Decimal("4.10")), "bob": (1, Decimal("2.25")), "cid": (1, 4)}
    assert conn.execute("SELECT txid, attempt FROM tidegauge.batch ORDER BY txid").fetchall() == [(1, 1), (2, 2)]


def test_the_other_declarations_of_the_page_hold(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/unused")
    declared = {"tidegauge": __import__("tidegauge")}
    exec("from tidegauge import Count, StateSpec\n" + "\n".join(PYTHON[1:]), declared)  # noqa: S102

    assert declared["LARGE"].guarantees == {"large_orders": "exactly once"}
    assert declared["LAKE"].guarantees == {"lake_orders": "exactly once"}
