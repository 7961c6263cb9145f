"""The demonstration: a year of flights through the whole system, on this machine, without any setup."""

import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import psutil
import psycopg
from django.contrib.auth import get_user_model
from django.core.management import call_command

from pipelines.connections import connect
from pipelines.demo import compare, lay_out
from pipelines.driver import Driver, RunOptions
from pipelines.embedded.data_dir import REPOSITORY, data_dir, free_port, is_free, write_private
from pipelines.errors import RuntimeSetupError
from pipelines.jobs import job
from pipelines.spark import start_session
from state_backends.ledger import Batch
from webapp.accounts.authentication import verified
from webapp.accounts.services import create_api_key
from webapp.states.management.child_process import Child

PIPELINE = "flights"
ADMIN = "admin"
NEEDED_BYTES = 1_000_000_000  # the input, Spark's scratch files and a year of write-ahead log
HEALTHY_WITHIN_SECONDS = 60.0


@dataclass(frozen=True)
class Access:
    """What a visitor needs; kept in `demo.json`, readable by its owner only."""

    url: str
    api_key: str
    admin_user: str
    admin_password: str

    def save(self) -> None:
        write_private(access_file(), json.dumps(asdict(self), indent=2) + "\n")


def access_file() -> Path:
    return data_dir() / "demo.json"


def input_folder() -> Path:
    return data_dir() / "demo" / PIPELINE


def prepare() -> None:
    """Make the tables and lay the input out. Raises RuntimeSetupError where the disk is too full for it."""
    free = shutil.disk_usage(data_dir()).free
    if free < NEEDED_BYTES:
        raise RuntimeSetupError(
            f"{str(data_dir())!r} has {free // 1_000_000} MB free and the demo needs {NEEDED_BYTES // 1_000_000} MB; "
            "make room, or set TIDEMARK_HOME to a folder on another disk"
        )
    call_command("migrate", verbosity=0)
    lay_out(input_folder())


@contextmanager
def only_demo() -> Iterator[None]:
    """Note this process as the running demo, over a stale note. Raises RuntimeSetupError while another runs."""
    note = data_dir() / "demo.pid"
    pid = _noted_pid(note)
    if pid is not None and _is_demo(pid):
        raise RuntimeSetupError(f"the demo runs already (pid {pid}, noted in {str(note)!r}); stop it with Ctrl-C first")
    write_private(note, f"{os.getpid()}\n")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def check_port(port: int) -> None:
    """Raise RuntimeSetupError where the port is taken."""
    if not is_free(port):
        raise RuntimeSetupError(
            f"port {port} is taken; stop what listens there, or choose another: make demo ARGS='--port {port + 1}'"
        )


def grant_access(port: int) -> Access:
    """Return the visitor's access, the same as last time where it still opens the door."""
    kept = _kept_access()
    access = Access(
        url=f"http://127.0.0.1:{port}",
        api_key=_api_key(kept.get("api_key", "")),
        admin_user=ADMIN,
        admin_password=_admin_password(kept.get("admin_password", "")),
    )
    access.save()
    return access


def start_children(port: int) -> list[Child]:
    """Start web, events, worker and pipeline, in this order; to be stopped in the reverse one."""
    logs = data_dir() / "logs"
    python = sys.executable
    # Compaction keeps a week of history by default; a visitor should see what it does today.
    os.environ.setdefault("TIDEMARK_CHANGELOG_KEEP_HOURS", "0")
    # People read these logs.
    os.environ.setdefault("LOG_FORMAT", "text")
    os.environ.setdefault("GRANIAN_LOG_CONFIG", str(REPOSITORY / "webapp" / "core" / "granian.json"))
    events_port = port + 1 if is_free(port + 1) else free_port()
    os.environ["TIDEMARK_EVENTS_URL"] = f"http://127.0.0.1:{events_port}"
    os.environ["TIDEMARK_EVENTS_ORIGINS"] = f"http://127.0.0.1:{port}"
    os.chdir(REPOSITORY)
    web = [python, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # Each thread has a connection to the database, which takes a hundred in all.
    web += ["--blocking-threads", "32"]
    events = [python, "-m", "granian", "--interface", "asgi", "--http", "1", "--no-ws", "--host", "127.0.0.1"]
    room = ["--port", str(events_port), "--backlog", "2048", "--backpressure", "8192", "--workers-kill-timeout", "10"]
    worker = [python, "-m", "celery", "-A", "webapp", "worker", "-B", "--concurrency", "1", "--loglevel", "INFO"]
    beat = ["--scheduler", "django_celery_beat.schedulers:DatabaseScheduler", "--hostname", f"demo-{port}@%h"]
    pipeline = [python, "manage.py", "run_pipeline", PIPELINE, "--input", str(input_folder())]
    return [
        Child("web", [*web, "webapp.wsgi:application"], logs / "web.log"),
        Child("events", [*events, *room, "webapp.asgi:application"], logs / "events.log"),
        Child("worker", [*worker, *beat], logs / "worker.log"),
        Child("pipeline", pipeline, logs / "pipeline.log", patience=40.0),
    ]


def wait_until_healthy(url: str, web: Child) -> None:
    """Return when the web server answers. Raises RuntimeSetupError with its last words where it does not."""
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline and web.exit_code() is None:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):  # noqa: S310  our own address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeSetupError(f"the web server does not answer at {url}; the end of {web.log}:\n{web.last_words()}")


def _noted_pid(note: Path) -> int | None:
    try:
        return int(note.read_text())
    except (OSError, ValueError):
        return None


def _is_demo(pid: int) -> bool:
    """Tell whether the noted process still is a demo, and not another that got its number."""
    try:
        return pid != os.getpid() and "demo" in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def _kept_access() -> dict[str, str]:
    try:
        kept = json.loads(access_file().read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _api_key(kept: str) -> str:
    return kept if verified(kept) else create_api_key("demo", ["read", "maintain"])[1]


def _admin_password(kept: str) -> str:
    admin, _ = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    if kept and admin.check_password(kept):
        return kept
    password = token_urlsafe(12)
    admin.set_password(password)
    admin.save(update_fields=["password"])
    return password


# The demo's whole input, once: through Spark in this process, then against the recount.


# Larger batches than the live demo's one day: here nobody looks on.
DAYS_PER_BATCH = 8


def run_whole_input(say: Callable[[str], object]) -> dict[str, Any]:
    """Run what is left of the input and return the figures of all of it.

    Returns `events`, `batches`, `seconds` (batches at work, without Spark's start), `events_per_second`, and `states`:
    name to `keys` and `exact`, whether every key and measure equals the recount.
    Raises TidemarkError, or what Spark raised.
    """
    dsn = os.environ["DATABASE_URL"]
    pipeline = job(PIPELINE, input_folder(), DAYS_PER_BATCH)
    options = RunOptions(data_dir() / "checkpoints" / PIPELINE, once=True)
    say("starting Spark ..")
    Driver(pipeline, start_session(PIPELINE), dsn, options, lambda batch: say(_line(batch))).run()
    say("recounting without Spark ..")
    with connect(dsn, "recount") as conn:
        return _figures(conn) | {"states": compare(conn, pipeline.specs)}


def _line(batch: Batch) -> str:
    return f"batch {batch.txid} committed"


def _figures(conn: psycopg.Connection) -> dict[str, Any]:
    row = conn.execute(
        "SELECT coalesce(sum(rows_in), 0)::bigint, count(*), "
        "coalesce(extract(epoch FROM sum(committed_at - started_at)), 0)::float8 "
        "FROM tidemark.batch WHERE pipeline = %s AND committed_at IS NOT NULL",
        [PIPELINE],
    ).fetchone()
    events, batches, seconds = row or (0, 0, 0.0)
    return {
        "events": events,
        "batches": batches,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    }
