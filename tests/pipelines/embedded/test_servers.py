import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres
from tidegauge.pipelines.embedded.redis import EmbeddedRedis
from tidegauge.pipelines.embedded.servers import ensure_servers
from tidegauge.pipelines.errors import RuntimeSetupError

REPOSITORY = Path(__file__).resolve().parents[3]

ASK_BOTH = """
import os, psycopg, redis
from tidegauge.pipelines.embedded.servers import ensure_servers
ensure_servers(durable=False)
with psycopg.connect(os.environ["DATABASE_URL"]) as conn, redis.from_url(os.environ["REDIS_URL"]) as client:
    print(conn.execute("SELECT 1").fetchone()[0], client.ping())
"""


@pytest.mark.long
def test_with_no_environment_both_servers_run_as_long_as_the_process(home):
    environ = {"PATH": os.environ["PATH"], "TIDEGAUGE_HOME": str(home)}

    ran = subprocess.run([sys.executable, "-c", ASK_BOTH], cwd=REPOSITORY, env=environ, capture_output=True, text=True)

    assert ran.stdout == "1 True\n", ran.stderr
    assert EmbeddedPostgres(home).process() is None
    assert EmbeddedRedis(home).process() is None


def test_no_server_is_started_if_the_environment_names_one(home):
    environ = {"DATABASE_URL": "postgresql://mine", "REDIS_URL": "redis://mine", "TIDEGAUGE_HOME": str(home)}

    ensure_servers(environ)

    assert environ["DATABASE_URL"] == "postgresql://mine"
    assert not list(home.iterdir())


def test_a_data_folder_that_cannot_be_written_is_a_setup_error(home):
    (home / "postgres.lock").mkdir()

    with pytest.raises(RuntimeSetupError, match=r"embedded postgres in '.+': .*Is a directory"):
        ensure_servers({"TIDEGAUGE_HOME": str(home)})


def test_the_servers_of_this_test_run_answer():
    with psycopg.connect(os.environ["DATABASE_URL"]) as conn, redis.from_url(os.environ["REDIS_URL"]) as client:
        assert conn.execute("SELECT 1").fetchone() == (1,)
        assert client.ping()
