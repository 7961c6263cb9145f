"""The command that operators run: it says what is wrong, runs, and ends cleanly when told to."""

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from pipelines.runtime.home import REPOSITORY


def run_pipeline(database_url, *words, **options):
    return subprocess.Popen(
        [sys.executable, "manage.py", "run_pipeline", *words],
        cwd=REPOSITORY,
        env=os.environ | {"DATABASE_URL": database_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_an_unknown_pipeline_is_a_usage_error_that_lists_those_there_are(database_url):
    process = run_pipeline(database_url, "nope")
    _, said = process.communicate(timeout=60)

    assert process.returncode == 2
    assert said == "CommandError: pipeline 'nope' does not exist; there are flights, word_count\n"


@pytest.mark.spark
def test_sigterm_ends_the_pipeline_after_a_batch_and_with_code_0(database_url, tmp_path):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.txt").write_text("dog dog\n")
    places = ["--input", str(tmp_path / "input"), "--checkpoint", str(tmp_path / "checkpoint")]
    process = run_pipeline(database_url, "word_count", *places)
    with psycopg.connect(database_url, autocommit=True) as conn:
        wait_until_committed(conn, process)

        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=60)

        assert process.returncode == 0, said
        assert out == ""
        assert "word_count: batch 1 committed (attempt 1)\n" in said
        assert said.endswith("word_count: ended cleanly\n")
        assert conn.execute("SELECT status FROM tidemark.driver").fetchall() == [("stopped",)]
        assert conn.execute("SELECT tidemark.has_driver('word_count')").fetchall() == [(False,)]
        assert conn.execute("SELECT count FROM tidemark_live.words").fetchall() == [(2,)]


def wait_until_committed(conn, process, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        there = conn.execute("SELECT to_regclass('tidemark.pipeline') IS NOT NULL").fetchone()[0]
        if there and conn.execute("SELECT max(committed_txid) FROM tidemark.pipeline").fetchone()[0]:
            return
        time.sleep(0.1)
    raise AssertionError(f"no batch committed within {seconds} s")
