"""Fixtures for pytest. Enable them with `pytest_plugins = ["tidegauge.testing.fixtures"]` in the top conftest.py."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegauge.testing.run import Run


@pytest.fixture(scope="session")
def tidegauge_servers() -> dict[str, str]:
    """DATABASE_URL and REDIS_URL: from the environment, or of temporary servers that run until the tests end."""
    from tidegauge.pipelines.embedded.temporary import start_temporary_servers

    if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
        start_temporary_servers()
    return {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}


@pytest.fixture
def tidegauge_dsn(tidegauge_servers: dict[str, str]) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    from tidegauge.pipelines.embedded.temporary import temporary_database

    with temporary_database(tidegauge_servers["DATABASE_URL"]) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def tidegauge_spark(tidegauge_servers: dict[str, str]) -> "Iterator[SparkSession]":
    """One Spark session for all tests. It starts after the servers, because its workers need their addresses."""
    from tidegauge.testing.session import spark_session

    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def tidegauge_run(tidegauge_servers: dict[str, str], tidegauge_spark: "SparkSession") -> "Iterator[Run]":
    """`run` of tidegauge.testing with these servers and this session. A result's `conn` is open until the test ends."""
    from tidegauge.testing.run import run_within

    with ExitStack() as resources:
        yield partial(run_within, resources, spark=tidegauge_spark, dsn=tidegauge_servers["DATABASE_URL"])
