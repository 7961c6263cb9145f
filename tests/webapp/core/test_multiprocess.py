"""Processes of one service count together; each start of the service counts from zero."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.core import multiprocess

# Runs one worker after another; each counts the rows it is given. Prints the metrics that the last worker renders.
SERVICE = """
import os, subprocess, sys
WORKER = '''
import sys
from pathlib import Path
from tidegauge.webapp.core import multiprocess
multiprocess.share("web", Path(sys.argv[1]))
from prometheus_client import Gauge
from tidegauge.webapp.core import metrics
metrics.exported("flights", int(sys.argv[2]))
Gauge("open_connections", "", multiprocess_mode="livesum").inc(int(sys.argv[2]))
print(metrics.render()[0].decode())
'''
for rows in sys.argv[2:]:
    done = subprocess.run([sys.executable, "-c", WORKER, sys.argv[1], rows], check=True, capture_output=True, text=True)
print(done.stdout)
"""


def service(folder, *rows):
    environ = {name: value for name, value in os.environ.items() if name != multiprocess.VARIABLE}
    words = [sys.executable, "-c", SERVICE, str(folder), *map(str, rows)]
    return subprocess.run(words, cwd=REPOSITORY, env=environ, check=True, capture_output=True, text=True).stdout


def test_one_worker_reports_for_all_even_those_that_have_ended(tmp_path):
    assert 'tidegauge_export_rows_total{state="flights"} 42.0' in service(tmp_path, 40, 2)


def test_a_gauge_of_a_process_that_has_ended_is_removed(tmp_path):
    assert "open_connections 2.0" in service(tmp_path, 40, 2)


def test_a_new_start_counts_from_zero_and_removes_the_files_of_the_last_one(tmp_path):
    service(tmp_path, 40)

    assert 'tidegauge_export_rows_total{state="flights"} 2.0' in service(tmp_path, 2)
    assert len(list((tmp_path / "metrics" / "web").glob("*/*"))) == 1


@pytest.fixture
def unset(monkeypatch):
    monkeypatch.setenv(multiprocess.VARIABLE, "")
    monkeypatch.delenv(multiprocess.VARIABLE)


def test_a_running_service_keeps_its_folder(tmp_path, unset):
    sleeper = psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        multiprocess.share("web", tmp_path)
        here = next((tmp_path / "metrics" / "web").iterdir())
        neighbour = here / f"{sleeper.pid}-{sleeper.create_time():.2f}"
        reused_pid = here / f"{sleeper.pid}-{time.time() - 1e6:.2f}"
        neighbour.mkdir()
        reused_pid.mkdir()
        os.environ.pop(multiprocess.VARIABLE)

        multiprocess.share("web", tmp_path)

        assert neighbour.exists()
        assert not reused_pid.exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_folder_named_by_the_environment_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv(multiprocess.VARIABLE, "/elsewhere")

    multiprocess.share("web", tmp_path)

    assert os.environ[multiprocess.VARIABLE] == "/elsewhere"
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_each_process_counts_for_itself(tmp_path, unset, caplog):
    (tmp_path / "metrics").write_text("a file")

    multiprocess.share("web", tmp_path)

    assert multiprocess.VARIABLE not in os.environ
    assert "each process counts for itself" in caplog.text
