"""Django, set up as tests/webapp does, and the database of its tests as the ledger of a pipeline."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import django
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.pipelines.conftest import Workspace

django.setup()


@pytest.fixture
def workspace(transactional_db: None, spark: SparkSession, tmp_path: Path) -> Iterator[Workspace]:
    from django.db import connection

    from tidegauge.webapp.catalog import readers

    readers.clear_cache()
    dsn = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield Workspace(spark, conn, dsn, tmp_path)
        conn.execute("DROP TABLE IF EXISTS tidegauge_state.sqlite_lines, tidegauge_changelog.sqlite_words CASCADE")
        conn.execute("DELETE FROM tidegauge.pipeline")
        conn.execute("DELETE FROM tidegauge.synchronizer")
