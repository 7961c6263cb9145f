"""The command that operators run: usage errors, running, and ending cleanly on SIGTERM."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tidegauge.pipelines.driver.discovery import find
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.spark import session as spark
from tidegauge.state_backends import Catalog
from tidegauge.webapp.commands.management.commands import run_pipeline as run_pipeline_command

TIMEOUT_SECONDS = 240.0  # includes Spark's start on a busy machine


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


def test_an_unknown_pipeline_is_a_usage_error_that_lists_the_existing_ones(database_url):
    process = run_pipeline(database_url, "nope")
    _, err = process.communicate(timeout=60)

    assert process.returncode == 2
    assert err.startswith(
        "CommandError: pipeline 'nope' not found; there are ad_clicks, aircraft, customers, flights, "
    )


def test_an_invalid_limit_is_a_usage_error():
    with pytest.raises(CommandError, match=r"^max_failures must be 1 or more, got 0$") as refused:
        call_command("run_pipeline", "word_count", "--max-failures", "0")

    assert refused.value.returncode == 2


def test_a_declaration_that_its_rows_cannot_follow_is_refused_before_spark_starts(database_url, monkeypatch):
    words = replace(find("word_count").pipeline(None, None).specs[0], kind="transactional")
    with psycopg.connect(database_url, autocommit=True) as conn:
        Catalog(conn).install()
        Catalog(conn).register_pipeline("word_count", spout="transactional")
        Catalog(conn).register_states("word_count", [words], {words.name: ""})
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setattr(run_pipeline_command, "_stop_on_signal", threading.Event)
    monkeypatch.setattr(spark, "start_session", lambda *args, **options: pytest.fail("Spark was started"))

    with pytest.raises(CommandError, match=r"kind was 'transactional', is 'opaque'; .* run with --reprocess"):
        call_command("run_pipeline", "word_count", "--once")


def logged(said):
    """Return the log lines; Java and the command itself write other lines."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.spark
def test_sigterm_in_a_batch_ends_a_driver_cleanly_after_its_commit_and_the_next_one_goes_on(database_url, places):
    # Tests of the driver stop one that waits for its next try or is paused.
    with psycopg.connect(database_url, autocommit=True) as conn:
        process = run_pipeline(database_url, "word_count", *places.words)
        wait_until_committed(conn, process)
        with psycopg.connect(database_url) as other:
            # The batch waits for this lock, so that the signal arrives during it.
            other.execute("LOCK TABLE tidegauge_state.words IN EXCLUSIVE MODE")
            places.land("2.txt", "cat\n")
            places.land("3.txt", "owl\n")
            wait_until(process, lambda: one(conn, "SELECT open_txid FROM tidegauge.pipeline") == 2)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            assert one(conn, "SELECT open_txid FROM tidegauge.pipeline") == 2
        said = ended_cleanly(process)
        assert [(line["pipeline"], line["txid"]) for line in logged(said) if is_commit(line)] == [
            ("word_count", 1),
            ("word_count", 2),
        ]
        assert one(conn, "SELECT open_txid FROM tidegauge.pipeline") is None
        assert one(conn, "SELECT status FROM tidegauge.driver") == "stopped"
        assert one(conn, "SELECT tidegauge.has_driver('word_count')") is False

        ended_cleanly(run_pipeline(database_url, "word_count", *places.words, "--once"))
        assert conn.execute("SELECT word, count FROM tidegauge_live.words ORDER BY word").fetchall() == [
            ("cat", 1),
            ("dog", 1),
            ("owl", 1),
        ]


def is_commit(line):
    return "committed (attempt 1)" in line["event"]


class Places:
    def __init__(self, folder):
        self.input = folder / "input"
        self.input.mkdir()
        self.words = ["--input", str(self.input), "--checkpoint", str(folder / "checkpoint"), "--files-per-batch", "1"]

    def land(self, name, text):
        beside = self.input.parent / name
        beside.write_text(text)
        beside.replace(self.input / name)


@pytest.fixture
def places(tmp_path, database_url):
    """Folders of a new pipeline, with one input file."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for schema in ("tidegauge", "tidegauge_state", "tidegauge_live", "tidegauge_changelog"):
            conn.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    folders = Places(tmp_path)
    folders.land("1.txt", "dog\n")
    return folders


def ended_cleanly(process):
    out, said = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, out) == (0, ""), said
    assert logged(said)[-1]["event"] == "pipeline word_count ended cleanly"
    return said


def one(conn, query):
    row = conn.execute(query).fetchone()
    return row and row[0]


def wait_until(process, condition):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_committed(conn, process, seconds=240):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        there = conn.execute("SELECT to_regclass('tidegauge.pipeline') IS NOT NULL").fetchone()[0]
        if there and conn.execute("SELECT max(committed_txid) FROM tidegauge.pipeline").fetchone()[0]:
            return
        time.sleep(0.1)
    raise AssertionError(f"no batch committed within {seconds} s")
