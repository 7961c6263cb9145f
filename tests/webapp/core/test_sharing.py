"""Processes of one service count together; each start of the service counts anew."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from pipelines.embedded.data_dir import REPOSITORY
from webapp.core import metrics

# Runs so many workers one after the other, each counting what it is told, and prints what the last one would answer.
SERVICE = """
import os, subprocess, sys
WORKER = '''
import sys
from pathlib import Path
from webapp.observability import sharing
sharing.share("web", Path(sys.argv[1]))
from prometheus_client import Gauge
from webapp.observability import metrics
from webapp.observability.exposition import render
metrics.exported("flights", int(sys.argv[2]))
Gauge("open_doors", "", multiprocess_mode="livesum").inc(int(sys.argv[2]))
print(render()[0].decode())
'''
for rows in sys.argv[2:]:
    said = subprocess.run([sys.executable, "-c", WORKER, sys.argv[1], rows], check=True, capture_output=True, text=True)
print(said.stdout)
"""


def service(folder, *rows):
    environ = {name: value for name, value in os.environ.items() if name != metrics.VARIABLE}
    words = [sys.executable, "-c", SERVICE, str(folder), *map(str, rows)]
    return subprocess.run(words, cwd=REPOSITORY, env=environ, check=True, capture_output=True, text=True).stdout


def test_one_worker_answers_for_all_even_those_that_have_ended(tmp_path):
    assert 'tidemark_export_rows_total{state="flights"} 42.0' in service(tmp_path, 40, 2)


def test_what_only_the_living_have_goes_with_them(tmp_path):
    assert "open_doors 2.0" in service(tmp_path, 40, 2)


def test_a_new_start_counts_from_nought_and_removes_what_the_last_one_left(tmp_path):
    service(tmp_path, 40)

    assert 'tidemark_export_rows_total{state="flights"} 2.0' in service(tmp_path, 2)
    assert len(list((tmp_path / "metrics" / "web").glob("*/*"))) == 1


@pytest.fixture
def unset(monkeypatch):
    monkeypatch.setenv(metrics.VARIABLE, "")
    monkeypatch.delenv(metrics.VARIABLE)


def test_a_service_that_runs_keeps_its_folder(tmp_path, unset):
    sleeper = psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        metrics.share("web", tmp_path)
        here = next((tmp_path / "metrics" / "web").iterdir())
        neighbour = here / f"{sleeper.pid}-{sleeper.create_time():.2f}"
        namesake = here / f"{sleeper.pid}-{time.time() - 1e6:.2f}"
        neighbour.mkdir()
        namesake.mkdir()
        os.environ.pop(metrics.VARIABLE)

        metrics.share("web", tmp_path)

        assert neighbour.exists()
        assert not namesake.exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_folder_that_the_environment_names_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv(metrics.VARIABLE, "/elsewhere")

    metrics.share("web", tmp_path)

    assert os.environ[metrics.VARIABLE] == "/elsewhere"
    assert list(tmp_path.iterdir()) == []


def test_where_no_folder_can_be_made_each_counts_for_itself(tmp_path, unset, caplog):
    in_the_way = tmp_path / "metrics"
    in_the_way.write_text("a file")

    metrics.share("web", tmp_path)

    assert metrics.VARIABLE not in os.environ
    assert "each process counts for itself" in caplog.text
