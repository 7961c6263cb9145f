"""A database for each module; the servers are of tests/harness/servers.py."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.harness.costs import count
from tidegauge.pipelines.embedded.temporary import temporary_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.kafka_broker import Broker

pytest_plugins = ["tidegauge.testing.fixtures", "tests.harness.reset", "tests.webapp.processes"]


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The URL of an empty database that this test module has to itself."""
    count("databases")
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        yield url


@pytest.fixture(scope="module")
def broker(tidegauge_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """A running Kafka broker, and its connector in the session; skips if Maven is unreachable, but not in CI."""
    from benchmarks.kafka_broker import Broker, MavenUnreachableError, broker_jars, connector_jars

    folder = tmp_path_factory.mktemp("kafka")
    try:
        connector = connector_jars(folder)
        jars = broker_jars(folder, connector)
    except MavenUnreachableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Kafka for the tests: {error}")
    for jar in connector:
        tidegauge_spark.sql(f"ADD JAR '{jar}'")
    with Broker(folder, jars) as running:
        yield running


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's database; every statement is its own transaction."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
