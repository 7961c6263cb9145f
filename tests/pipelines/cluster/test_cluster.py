"""A pipeline on a standalone cluster is exact, also if an executor or a worker is killed in the middle of a batch."""

import json
import shutil
from pathlib import Path

import psutil
import pytest

from tests.pipelines.cluster.driver_process import locked, waiting, writers
from tests.pipelines.cluster.spark_cluster import SLOTS, wait_for
from tests.users_project import Project
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.state_backends import Catalog, StateReader

pytestmark = pytest.mark.spark

WORDS = {f"word{number}": 1 + number % 5 for number in range(300)}
FILES = 4
EXPECTED = {word: times * FILES for word, times in WORDS.items()}
# As many tasks as the two workers have slots for.
TASKS = 2 * SLOTS
SPREAD = {"SPARK_SHUFFLE_PARTITIONS": str(TASKS), "TIDEGAUGE_MAX_WRITERS": str(TASKS)}
USERS_MODULE = """
from tidegauge import TidegaugeError  # an executor has the public names, too


def shout(word):
    if not word:
        raise TidegaugeError("a word without letters")
    return word.upper()
"""


def land(folder: Path) -> None:
    text = "\n".join(" ".join([word] * times) for word, times in WORDS.items())
    for number in range(FILES):
        (folder / "input" / f"{number}.txt").write_text(text)


def counts(conn) -> dict[str, int]:
    page = StateReader(conn, Catalog(conn).get("words")).page(limit=10_000)
    return {entry["key"][0]: entry["value"]["count"] for entry in page.parsed()}


def all_waiting(conn, driver):
    """Return the tasks once there is one for each slot, all of them waiting in the middle of writing."""
    driver.check()
    found = writers(conn, "words") if waiting(conn, "words") == TASKS else []
    return found if len(found) == TASKS and all(writer.executor for writer in found) else None


def test_both_workers_take_part_and_an_executor_and_a_worker_that_are_killed_in_a_batch_change_nothing(
    conn, cluster, drive, registered, database_url
):
    land(registered)
    with locked(database_url, "words"):
        driver = drive(**SPREAD)
        found = wait_for("a task that writes in each slot", lambda: all_waiting(conn, driver))
        executors = cluster.executors()
        psutil.Process(found[0].executor).kill()
        wait_for("the executor's end", lambda: found[0].executor not in cluster.executors())
        again = wait_for("a task in each slot of the executors that are left or new", lambda: all_waiting(conn, driver))
        worker = cluster.executors()[again[0].executor]
        worker.kill()
        wait_for("the end of its executor", lambda: not psutil.pid_exists(again[0].executor))
    output = driver.finish()

    assert {executors[writer.executor].log for writer in found} == {worker.log for worker in cluster.workers}
    assert found[0].executor not in {writer.executor for writer in again}
    assert "batch 1 committed (attempt 1)" in output
    assert counts(conn) == EXPECTED
    assert conn.execute("SELECT count(*), count(DISTINCT word) FROM tidegauge_state.words").fetchall() == [(300, 300)]


def test_executors_run_the_code_that_the_driver_shipped_and_the_users_own(conn, cluster, drive, tmp_path):
    (tmp_path / "input").mkdir()
    land(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / "users_module.py").write_text(USERS_MODULE)
    script = shutil.copy(Path(__file__).with_name("own_driver.py"), own)

    driver = drive(
        str(script), str(tmp_path / "input"), str(tmp_path / "checkpoint"),
        PYTHONPATH=str(REPOSITORY), SPARK_PYFILES=str(own / "users_module.py"),
    )  # fmt: skip
    output = driver.finish()

    paths, has_files, imports_checkout = map(set, zip(*json.loads(output.splitlines()[-1]), strict=True))
    assert counts(conn) == {word.upper(): times for word, times in EXPECTED.items()}
    assert all(Path(place).is_relative_to(cluster.folder) for place in paths)
    assert (has_files, imports_checkout) == ({True}, {False})
    # The user's state is hash-partitioned, and every partition has its share.
    assert conn.execute("SELECT count(DISTINCT tableoid) FROM tidegauge_state.words").fetchone() == (4,)


def test_executors_get_the_packages_of_the_working_directory_that_pipelines_are_in(conn, database_url, drive, tmp_path):
    project = Project(tmp_path / "project", database_url)
    words = [str(REPOSITORY / "manage.py"), "run_pipeline", "orders", "--once"]

    drive(*words, cwd=project.folder, TIDEGAUGE_HOME=str(project.folder / "home")).finish()

    assert conn.execute("SELECT article, orders, articles FROM tidegauge_live.ordered ORDER BY article").fetchall() == [
        ("bread", 2, 5),
        ("milk", 1, 1),
    ]
