"""Processes that use the embedded servers, and a data folder for them."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

USE_UNTIL_STDIN_CLOSES = """
import os, sys
from tidegauge.pipelines.embedded.servers import ensure_servers
ensure_servers(durable=False)
print(os.environ[sys.argv[1]], flush=True)
sys.stdin.read()
"""


class ServerUser:
    """A process that joins one embedded server and uses it until `leave` or `kill`."""

    def __init__(self, home: Path, variable: str):
        others = {"DATABASE_URL": "elsewhere", "REDIS_URL": "elsewhere"}
        environ = {**os.environ, **others, variable: "", "TIDEGAUGE_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE_UNTIL_STDIN_CLOSES, variable],
            cwd=REPOSITORY,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        if self.process.poll() is None:
            self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def home() -> Iterator[Path]:
    """A data folder that is closed to others, as folders in /tmp are."""
    folder = Path(tempfile.mkdtemp(prefix="tm-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_user(home: Path) -> Iterator[Callable[[str], ServerUser]]:
    users = []

    def start(variable: str) -> ServerUser:
        users.append(ServerUser(home, variable))
        return users[-1]

    yield start
    for user in users:
        user.leave()
