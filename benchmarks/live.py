"""Runs a web server and a driver for benchmarks that measure them from outside, and a client that polls."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from unittest.mock import patch

from tidegauge.pipelines.embedded.data_dir import LOOPBACK, REPOSITORY, free_port
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.serving import process_commands

HEALTHY_WITHIN_SECONDS = 60.0
FILES_PER_BATCH = 100  # so that files that have to wait share a batch
KEY_OPTIONS = ["--scope", "read", "--scope", "maintain", "--rate", "6000000"]
MANAGE = [sys.executable, str(REPOSITORY / "manage.py")]


@dataclass(frozen=True)
class Live:
    """The processes. folder: the input of the flights pipeline."""

    folder: Path
    port: int
    api_key: str
    web: Child
    pipeline: Child

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if a process has ended."""
        for child in (self.web, self.pipeline):
            if child.exit_code() is not None:
                raise RuntimeError(f"{child.name} has ended; the end of {child.log}:\n{child.last_lines()}")


@contextmanager
def live_flights(dsn: str, root: Path) -> Iterator[Live]:
    """Run the web server and the flights pipeline on an empty database until the block ends.

    root: a folder for input, checkpoint and logs.
    """
    environ = {"DATABASE_URL": dsn, "TIDEGAUGE_HOME": str(root), "PYTHONPATH": str(REPOSITORY)}
    folder, port = root / "input", free_port()
    folder.mkdir()
    # Passed through the environment, because all users of the machine can read arguments.
    with patch.dict(os.environ, environ):
        subprocess.run([*MANAGE, "migrate", "--verbosity", "0"], check=True)
        # The rate limit is high, so that it is checked but never reached.
        command = [*MANAGE, "create_api_key", "benchmark", *KEY_OPTIONS]
        key = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        web = Child("web", process_commands.web(port), root / "web.log")
        pipeline = Child("pipeline", _pipeline(folder, root / "checkpoint"), root / "pipeline.log", stop_seconds=40.0)
    live = Live(folder, port, key, web, pipeline)
    try:
        _wait_until_healthy(live)
        yield live
    finally:
        pipeline.stop()
        web.stop()


class Lookup:
    """A client that polls the row of a global aggregate over one connection, with `If-None-Match`."""

    def __init__(self, live: Live, state: str, measure: str) -> None:
        self._conn = http.client.HTTPConnection(LOOPBACK, live.port, timeout=10)
        self._path = f"/api/v1/states/{state}/lookup"
        self._headers = {"Authorization": f"Bearer {live.api_key}", "Content-Type": "application/json"}
        self._measure = measure
        self._value = 0

    def value(self) -> int:
        """Return the committed value; 0 if there is none yet. Raises RuntimeError for an error response."""
        self._conn.request("POST", self._path, body='{"keys": [[]]}', headers=self._headers)
        response = self._conn.getresponse()
        body = response.read()
        if response.status == HTTPStatus.OK:
            self._headers["If-None-Match"] = response.headers["ETag"]
            [result] = json.loads(body)["results"]
            self._value = result["value"][self._measure] if result["status"] == "found" else 0
        elif response.status not in (HTTPStatus.NOT_MODIFIED, HTTPStatus.NOT_FOUND):  # 404: no state yet
            raise RuntimeError(f"{self._path} answered {response.status}: {body[:200]!r}")
        return self._value

    def close(self) -> None:
        self._conn.close()


def _pipeline(folder: Path, checkpoint: Path) -> list[str]:
    where = ["--input", str(folder), "--checkpoint", str(checkpoint)]
    return [*MANAGE, "run_pipeline", "flights", *where, "--files-per-batch", str(FILES_PER_BATCH)]


def _wait_until_healthy(live: Live) -> None:
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        live.check()
        try:
            conn = http.client.HTTPConnection(LOOPBACK, live.port, timeout=5)
            conn.request("GET", "/healthz")
            if conn.getresponse().status == HTTPStatus.OK:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            conn.close()
    raise RuntimeError(f"the web server does not answer; the end of {live.web.log}:\n{live.web.last_lines()}")
