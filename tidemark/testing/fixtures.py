"""Fixtures for pytest; `pytest_plugins = ["tidemark.testing.fixtures"]` in a project's top conftest.py brings them."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.testing.run import Run


@pytest.fixture(scope="session")
def tidemark_servers() -> dict[str, str]:
    """DATABASE_URL and REDIS_URL: of the environment, or of servers that run until the tests end."""
    from pipelines.embedded.temporary import start_temporary_servers

    if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
        start_temporary_servers()
    return {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}


@pytest.fixture
def tidemark_dsn(tidemark_servers: dict[str, str]) -> Iterator[str]:
    """The URL of an empty database that the test has to itself."""
    from pipelines.embedded.temporary import temporary_database

    with temporary_database(tidemark_servers["DATABASE_URL"]) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def tidemark_spark(tidemark_servers: dict[str, str]) -> "Iterator[SparkSession]":
    """One Spark session for all tests. It starts after the servers, whose addresses its workers need."""
    from tidemark.testing.session import spark_session

    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def tidemark_run(tidemark_servers: dict[str, str], tidemark_spark: "SparkSession") -> "Iterator[Run]":
    """`run` of tidemark.testing, with these servers and this session; a result's `conn` is open until the test ends."""
    from tidemark.testing.run import run_within

    with ExitStack() as resources:
        yield partial(run_within, resources, spark=tidemark_spark, dsn=tidemark_servers["DATABASE_URL"])
