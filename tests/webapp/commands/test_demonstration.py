"""The demo explains in one line why it cannot start, keeps its credentials, and stops its child processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.webapp.commands.management import demonstration
from tidegauge.webapp.commands.management.child_process import Child

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_HOME", str(tmp_path))
    return tmp_path


def test_a_taken_port_is_named_with_a_solution():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(RuntimeSetupError) as refused:
            demonstration.check_port(port)

    assert str(refused.value) == (
        f"port {port} is taken; stop the process that uses it, or choose another port with --port {port + 1}"
    )


def test_too_little_disk_is_named_with_what_is_needed(monkeypatch, home):
    monkeypatch.setattr(demonstration, "NEEDED_BYTES", 10**18)

    with pytest.raises(RuntimeSetupError, match=rf"'{home}' has \d+ MB free and the demo needs 1000000000000 MB"):
        demonstration.prepare()


def test_a_second_demo_is_refused_while_the_first_runs(home):
    first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "demo"])
    try:
        (home / "demo.pid").write_text(f"{first.pid}\n")

        lock = demonstration.only_demo()

        with pytest.raises(RuntimeSetupError, match=rf"the demo is already running \(pid {first.pid}, "):
            lock.__enter__()
    finally:
        first.kill()
        first.wait()


@pytest.mark.parametrize("stale", ["", "not a number", "4194303", str(os.getppid())])
def test_an_outdated_pid_file_is_replaced(home, stale):
    (home / "demo.pid").write_text(stale)

    with demonstration.only_demo():
        written = (home / "demo.pid").read_text()

    assert written == f"{os.getpid()}\n"
    assert not (home / "demo.pid").exists()


@pytest.mark.django_db
def test_access_is_private_and_stays_the_same_from_run_to_run(home):
    first = demonstration.grant_access(8000)
    second = demonstration.grant_access(8000)

    assert first == second
    assert (home / "demo.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.django_db
def test_access_that_is_no_longer_valid_is_replaced(home):
    first = demonstration.grant_access(8000)
    (home / "demo.json").write_text('{"api_key": "tmk_00000000_wrong", "admin_password": "wrong"}')

    second = demonstration.grant_access(8000)

    assert second.api_key not in (first.api_key, "tmk_00000000_wrong")
    assert second.admin_password not in (first.admin_password, "wrong")


def test_a_child_that_ignores_sigterm_is_killed(home):
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    child = Child("deaf", [sys.executable, "-c", deaf], home / "log", stop_seconds=0.2)
    while "deaf" not in child.last_lines():
        time.sleep(0.02)

    child.stop()

    assert child.exit_code() == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_child_ends_when_its_parent_is_killed(home):
    program = f"""
import sys, time
from pathlib import Path
from tidegauge.webapp.commands.management.child_process import Child
child = Child("child", [sys.executable, "-c", "import time; time.sleep(60)"], Path({str(home / "log")!r}))
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())

    parent.kill()
    parent.wait()

    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


ROLES = """
import json, psycopg
from tidegauge.pipelines.embedded.servers import ensure_servers
ensure_servers(durable=False)
import django; django.setup()
from django.core.management import call_command
from tidegauge.webapp.commands.management import demonstration
call_command("migrate", verbosity=0)
first, second = demonstration.set_up_roles(), demonstration.set_up_roles()
assert first == second
users = {}
for part, address in first.items():
    with psycopg.connect(address) as conn:
        users[part] = conn.execute("SELECT current_user").fetchone()[0]
print(json.dumps(users))
"""


def test_the_embedded_server_has_the_roles_with_passwords_that_stay(tmp_path):
    ours = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    environ = ours | {"TIDEGAUGE_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "tidegauge.webapp.settings"}

    done = subprocess.run([sys.executable, "-c", ROLES], env=environ, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        part: f"tidegauge_{part}" for part in ("owner", "pipeline", "web", "worker", "reader")
    }


def test_a_server_of_the_user_gets_no_roles(home):
    assert demonstration.set_up_roles() == {}
