"""A Spark cluster of two workers feeds a state on a Redis Cluster; parts of both are killed within batches."""

from pathlib import Path

import pytest

from tests.pipelines.cluster.driver_process import SUBMIT
from tests.pipelines.cluster.spark_cluster import wait_for
from tests.pipelines.cluster.spread_driver import SPREAD
from tests.state_backends.backends.own_redis import own_cluster
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.state_backends import state_reader

pytestmark = pytest.mark.spark

READ_AT_ONCE = 10_000
PATIENCE_SECONDS = 600  # on a busy machine
REDIS = {"TIDEGAUGE_REDIS_WAIT": "1:10000"}


@pytest.fixture
def redis_cluster(tmp_path):
    with own_cluster(tmp_path / "servers") as cluster:
        yield cluster


@pytest.fixture
def start_driver(drive, redis_cluster, tmp_path):
    """Start a driver that gives its executors the address of Redis, which their machines do not know."""
    script, environ = Path(__file__).with_name("spread_driver.py"), REDIS | {"TIDEGAUGE_REDIS_URL": redis_cluster.url}
    confs = " ".join(f"--conf spark.executorEnv.{name}={value}" for name, value in environ.items())
    folders = [str(tmp_path / "input"), str(tmp_path / "checkpoint")]
    return lambda: drive(
        str(script), *folders, PYTHONPATH=str(REPOSITORY), PYSPARK_SUBMIT_ARGS=f"{confs} {SUBMIT}", **environ
    )


class Fed:
    """A pipeline with a file for each batch, whose driver is started again whenever it has ended.

    A file has every word but as many of the first ones as there are files before it.
    """

    def __init__(self, conn, folder, start_driver, words):
        self._conn, self._input, self._start, self._words = conn, folder / "input", start_driver, words
        self._input.mkdir()
        self.files = 0
        self.driver = start_driver()

    def open_batch(self):
        """Land a file, and return while its batch is open."""
        self._land()
        wait_for("an open batch", lambda: self._ledger() == (self.files - 1, self.files), PATIENCE_SECONDS)

    def settle(self):
        """Return once the batch of the last file is committed."""

        def is_settled():
            if not self.driver.is_running():
                self.driver = self._start()
            return self._ledger() == (self.files, None)

        wait_for("the commit of the last batch", is_settled, PATIENCE_SECONDS)

    def _land(self):
        landing = self._input.parent / "landing"
        landing.write_text("\n".join(self._words[self.files :]))
        landing.rename(self._input / f"{self.files:02}.txt")
        self.files += 1

    def _ledger(self):
        """Return the committed batch, and the open one or None."""
        query = "SELECT committed_txid, open_txid FROM tidegauge.pipeline WHERE name = 'spread_words'"
        return self._conn.execute(query).fetchone()


@pytest.mark.parametrize("count", [400, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_counts_are_exact_though_a_worker_the_driver_and_a_redis_master_are_killed(
    count, conn, cluster, redis_cluster, start_driver, tmp_path
):
    words = [f"word{number}" for number in range(count)]
    fed = Fed(conn, tmp_path, start_driver, words)
    fed.open_batch()
    fed.settle()

    fed.open_batch()
    cluster.workers[0].kill_all()
    cluster.complete()
    fed.settle()
    fed.open_batch()
    fed.driver.kill()
    fed.settle()
    fed.open_batch()
    master = redis_cluster.masters[0]
    redis_cluster.fail_over(master)
    redis_cluster.revive(master)
    fed.settle()

    reader, counted = state_reader(conn, SPREAD), []
    for first in range(0, count, READ_AT_ONCE):
        asked = [(word,) for word in words[first : first + READ_AT_ONCE]]
        counted += [entry["value"]["count"] for entry in reader.multi_get(asked).parsed()]
    assert counted == [min(place + 1, fed.files) for place in range(count)]
