import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.harness.waiting import eventually
from tidegauge import __version__
from tidegauge.cli import named, needs_servers, overview
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres
from tidegauge.webapp.serving import process_commands

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_TO_BE_STOPPED = "import time; print('up', flush=True); time.sleep(60)"


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    """A command with no servers in its environment."""
    environ = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=REPOSITORY,
        env={**environ, "TIDEGAUGE_HOME": str(home)},
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


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("run", "run_pipeline"),
        ("create-admin", "create_admin"),
        ("create_admin", "create_admin"),
        ("no-such", "no-such"),
    ],
)
def test_a_command_may_be_typed_with_a_hyphen(typed, name):
    assert named(typed) == name


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


@pytest.mark.processes
def test_a_server_command_becomes_its_program_so_that_signals_reach_it(tmp_path):
    port = free_port()
    servers = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1"}
    command = [sys.executable, REPOSITORY / "manage.py", "events", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | servers | {"TIDEGAUGE_HOME": str(tmp_path)}, stdout=log, stderr=log
        )
    eventually(lambda: "Started worker-1" in (tmp_path / "log").read_text(), 60)
    words = psutil.Process(process.pid).cmdline()

    process.terminate()

    assert words == process_commands.events(port)
    assert process.wait(60) == 0


def test_a_wrong_setting_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "guessed")

    _, errors = start(tmp_path, "epochs").communicate(timeout=60)

    assert errors.startswith("tidegauge: SECRET_KEY has 7 characters, ")
    assert errors.count("\n") == 1


def test_what_keeps_the_servers_from_starting_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    command = start(tmp_path / "file" / "home", "migrate")
    _, errors = command.communicate(timeout=60)

    assert command.returncode == 1
    assert errors == (
        f"tidegauge: data folder '{tmp_path}/file/home': cannot be created (Not a directory); "
        "set TIDEGAUGE_HOME to a folder that you can write to\n"
    )


def answered(*words: str, program: str = "") -> str:
    command = [sys.executable, *(["-c", program] if program else ["-m", "tidegauge"]), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def test_every_command_of_ours_is_listed_with_what_it_does():
    files = [file.stem for file in REPOSITORY.glob("webapp/*/management/commands/[!_]*.py")]
    lines = dict(line.split(None, 1) for line in overview("tidegauge").splitlines() if line.startswith("  "))

    assert set(files) < set(lines)
    assert all(lines[name].endswith(".") for name in lines)


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help_lists_the_commands_without_django(words):
    program = "import sys; sys.modules['django'] = None; import tidegauge.cli; tidegauge.cli.main()"

    assert "\n  run_pipeline " in answered(*words, program=program)


def test_the_version_is_tidegauges():
    assert answered("--version") == f"tidegauge {__version__}\n"


def test_a_command_of_django_is_one_of_tidegauges():
    assert answered("help", "migrate").startswith("usage: tidegauge migrate ")


def test_run_is_short_for_run_pipeline():
    assert answered("run", "--help") == answered("run_pipeline", "--help")


def test_without_the_web_extra_a_command_names_it():
    program = "import sys; sys.modules['django'] = None; import tidegauge.cli; tidegauge.cli.main()"
    ran = subprocess.run([sys.executable, "-c", program, "check"], cwd=REPOSITORY, capture_output=True, text=True)

    told = "tidegauge: package 'django' is not installed; install tidegauge[web], which has it\n"
    assert (ran.returncode, ran.stderr) == (1, told)
