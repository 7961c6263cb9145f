import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from manage import needs_servers
from pipelines.embedded.postgres import EmbeddedPostgres

REPOSITORY = Path(__file__).resolve().parents[1]
WAIT_TO_BE_STOPPED = "import time; print('up', flush=True); time.sleep(60)"


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    """A command with no servers in its environment."""
    environ = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=REPOSITORY,
        env={**environ, "TIDEMARK_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("line", ["", "help", "--version", "migrate --help", "collectstatic", "makemigrations"])
def test_a_mere_question_starts_no_servers(line):
    assert not needs_servers(line.split())


@pytest.mark.parametrize("line", ["migrate", "demo", "run_pipeline flights", "compact --all"])
def test_whatever_touches_data_gets_servers(line):
    assert needs_servers(line.split())


def test_sigterm_stops_the_servers_too():
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        server = EmbeddedPostgres(Path(folder))
        command = start(Path(folder), "shell", "-v0", "-c", WAIT_TO_BE_STOPPED)
        assert command.stdout.readline() == "up\n"
        assert server.process() is not None

        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=60)

        assert command.returncode == 128 + signal.SIGTERM
        assert server.process() is None


def test_what_keeps_the_servers_from_starting_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    command = start(tmp_path / "file" / "home", "migrate")
    _, errors = command.communicate(timeout=60)

    assert command.returncode == 1
    assert errors == (
        f"tidemark: data folder '{tmp_path}/file/home': cannot be created (Not a directory); "
        "set TIDEMARK_HOME to a folder that you can write to\n"
    )
