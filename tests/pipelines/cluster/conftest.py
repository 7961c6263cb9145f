"""A real cluster for the tests of this folder, and for each test a folder and a registered pipeline."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.cluster.driver_process import DriverProcess, run_word_count
from tests.pipelines.cluster.spark_cluster import Cluster
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import Catalog


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(standalone: Cluster) -> Cluster:
    """The cluster with both its workers, also if an earlier test killed one."""
    standalone.complete()
    return standalone


@pytest.fixture
def registered(conn, tmp_path: Path) -> Path:
    """The folder of a word count whose state exists already, so that a test can lock its table."""
    (tmp_path / "input").mkdir()
    pipeline = word_count(tmp_path / "input")
    catalog = Catalog(conn)
    catalog.register_pipeline(pipeline.name, spout=pipeline.source.spout, description="")
    catalog.register_states(pipeline.name, pipeline.specs, pipeline.guarantees)
    return tmp_path


@pytest.fixture
def drivers(database_url: str, tmp_path: Path) -> Iterator[Callable[..., DriverProcess]]:
    """Start the word count, or another command, in a process of its own; it ends with the test."""
    started: list[DriverProcess] = []

    def start(*command: str, **environ: Any) -> DriverProcess:
        driver = DriverProcess(database_url, tmp_path, command or run_word_count(tmp_path), **environ)
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.kill()


@pytest.fixture
def drive(cluster: Cluster, drivers: Callable[..., DriverProcess]) -> Callable[..., DriverProcess]:
    """The same on the cluster."""
    return partial(drivers, SPARK_MASTER=cluster.url)
