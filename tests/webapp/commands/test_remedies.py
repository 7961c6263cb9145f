"""The commands that pages and errors print, typed in the state in which they are printed.

The driver reads another folder and has its checkpoint elsewhere, as the demo's: `tidegauge run NAME` alone is refused.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import psycopg
import pytest

from tests.harness.waiting import eventually
from tests.tidegauge.test_journey import land
from tests.webapp.web_server import database_url
from tidegauge.init import init

CHECKOUT = Path(__file__).resolve().parents[3]
STARTED_WITHIN_SECONDS = 240

pytestmark = [pytest.mark.processes, pytest.mark.long]


class Operator:
    """Starts commands from anywhere, as they are printed, and reads what pages print. conn: to the ledger."""

    def __init__(self, folder: Path, pages, conn: psycopg.Connection) -> None:
        self.shop = init("shop", folder)
        self.conn = conn
        self.landing = self.shop / "in box"
        self.landing.mkdir()
        self.checkpoint = folder / "checkpoint"
        self._pages = pages
        own = {"PYTHONPATH": str(CHECKOUT), "DATABASE_URL": database_url(), "LOG_FORMAT": "text"}
        self._environ = os.environ | own | {"TIDEGAUGE_HOME": str(folder / "home")}
        self._files = 0

    def type(self, command: str, folder: Path = Path("/")) -> subprocess.Popen[str]:
        environ = dict(self._environ)
        if folder == Path("/"):
            del environ["TIDEGAUGE_HOME"]  # because printed commands have it
        return subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def first(self) -> subprocess.Popen[str]:
        """Start the driver as its owner does, in the project's folder."""
        return self.type(
            f"{sys.executable} -m tidegauge run orders --input 'in box' --checkpoint {self.checkpoint}", self.shop
        )

    def goes_on(self, driver: subprocess.Popen[str]) -> None:
        """Check that the driver counts a file that lands now."""
        self._files += 1
        land(self.landing, f"{self._files}.json", "tea")
        self.until(driver, lambda: self.one("SELECT orders FROM tidegauge_live.revenue") == self._files)

    def until(self, process: subprocess.Popen[str], holds: Callable[[], object]) -> None:
        eventually(lambda: process.poll() is not None or holds(), STARTED_WITHIN_SECONDS)
        assert process.poll() is None, process.stdout.read() if process.stdout else ""

    def end(self, driver: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
        """Send a signal to the driver's processes; returns what it said."""
        pid = self.one("SELECT pid FROM tidegauge.driver WHERE pipeline = 'orders'")
        if number == signal.SIGKILL:
            os.killpg(driver.pid, number)
        else:
            os.kill(pid, number)
        said, _ = driver.communicate(timeout=STARTED_WITHIN_SECONDS)
        eventually(lambda: self.one("SELECT NOT tidegauge.has_driver('orders')"))
        return said

    def printed(self, path: str = "/", having: str = "") -> str:
        """Return the command on a page that has this text."""
        page = self._pages.get(path).content.decode()
        found = [unescape(each) for each in re.findall(r'<(?:code|pre)[^>]* id="[^"]*"[^>]*>([^<]*)</', page)]
        return next(each for each in found if having in each and "tidegauge" in each)

    def one(self, query: str) -> object:
        try:
            row = self.conn.execute(query).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
        return row[0] if row else None


@pytest.fixture
def operator(transactional_db, admin_client, tmp_path):
    with psycopg.connect(database_url(), autocommit=True) as conn:
        yield Operator(tmp_path, admin_client, conn)


def test_every_printed_command_works_when_it_is_typed_in_that_state(operator):
    driver = operator.first()
    eventually(lambda: operator.one("SELECT tidegauge.is_starting('orders')"), STARTED_WITHIN_SECONDS)
    assert "It waits for Spark to start." in operator._pages.get("/pipelines/orders/").content.decode()
    operator.goes_on(driver)

    # Killed: the page says so, and the command that it prints continues from the last commit.
    operator.end(driver, signal.SIGKILL)
    again = operator.printed()
    assert f"tidegauge run orders --input 'in box' --checkpoint {operator.checkpoint}" in again
    driver = operator.type(again)
    operator.goes_on(driver)

    # Stopped.
    operator.end(driver)
    assert operator.printed("/pipelines/orders/") == again
    driver = operator.type(again)
    operator.goes_on(driver)
    operator.end(driver)

    # The checkpoint is lost: the error of the next start prints the command that restores it.
    shutil.rmtree(operator.checkpoint)
    said, _ = operator.type(again).communicate(timeout=STARTED_WITHIN_SECONDS)
    [restore] = set(re.findall(r"`([^`]*restore-checkpoint[^`]*)`", said.rpartition("CommandError")[2]))
    assert restore.endswith(f"pipelines restore-checkpoint orders --input 'in box' --checkpoint {operator.checkpoint}")
    on_page = operator.printed("/pipelines/orders/operations", "restore-checkpoint")
    assert on_page.endswith(restore)
    restored = operator.type(on_page)
    assert restored.wait(STARTED_WITHIN_SECONDS) == 0, restored.stdout.read()

    # A reprocess that is killed before its swap is continued, and then taken back.
    reprocess = operator.printed("/pipelines/orders/operations", "--reprocess")
    driver = operator.type(reprocess)
    running = "SELECT status = 'running' FROM tidegauge.driver WHERE pipeline = 'orders@reprocess'"
    operator.until(driver, lambda: operator.one(running))
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    eventually(lambda: operator.one("SELECT NOT tidegauge.has_driver('orders@reprocess')"))
    driver = operator.type(operator.printed("/pipelines/orders/", "--reprocess"))
    operator.until(driver, lambda: operator.one("SELECT tidegauge.has_driver('orders')"))
    operator.goes_on(driver)
    operator.end(driver)
    rolled_back = operator.type(operator.printed("/pipelines/orders/", "--roll-back"))
    assert rolled_back.wait(STARTED_WITHIN_SECONDS) == 0, rolled_back.stdout.read()
