"""The parts of `tidegauge demo`: its input, the visitor's access, its processes, and the run with a recount."""

import json
import logging
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import psutil
import psycopg
from django.contrib.auth import get_user_model
from django.core.management import call_command

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.demo import compare, lay_out
from tidegauge.pipelines.driver.discovery import find
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.embedded.data_dir import (
    REPOSITORY,
    data_dir,
    free_port,
    is_checkout,
    is_free,
    project_dir,
    write_private,
)
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends.schema import role_setup
from tidegauge.state_backends.schema.roles import Roles
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.roles import django_tables
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.serving import process_commands

PIPELINE = "flights"
# By module, because the user's pipelines may have the same names. Both read the flights; only the first is recounted.
FLIGHTS, AIRCRAFT = "tidegauge.pipelines.jobs.flights:flights", "tidegauge.pipelines.jobs.aircraft:aircraft"
ADMIN = "admin"
NEEDED_BYTES = 1_000_000_000  # the input, Spark's scratch files and a year of write-ahead log
# For a process that hangs: one that ends is noticed at once, and on a busy machine a start takes over a minute.
HEALTHY_WITHIN_SECONDS = 300.0

# More than the one day of the live demo, because with --once nobody watches single batches.
DAYS_PER_BATCH = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """Address and credentials of the demo; stored in `demo.json`, which only its owner can read."""

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


def prepare(*, with_flights: bool = True) -> None:
    """Create the tables, and the demo's own input. Raises RuntimeSetupError if the disk is too full."""
    free = shutil.disk_usage(data_dir()).free
    if free < NEEDED_BYTES:
        raise RuntimeSetupError(
            f"{str(data_dir())!r} has {free // 1_000_000} MB free and the demo needs {NEEDED_BYTES // 1_000_000} MB; "
            "make room, or set TIDEGAUGE_HOME to a folder on another disk"
        )
    call_command("migrate", verbosity=0)
    if with_flights:
        lay_out(input_folder())


def names_of(references: Sequence[str]) -> list[str]:
    """Return the names of pipelines to run, by default the demo's. Raises PipelineError for one that is not found."""
    return [find(reference).name for reference in references or (FLIGHTS, AIRCRAFT)]


@contextmanager
def only_demo() -> Iterator[None]:
    """Keep a pid file while this demo runs; replaces a stale one. Raises RuntimeSetupError if another demo runs."""
    pid_file = data_dir() / "demo.pid"
    pid = _stored_pid(pid_file)
    if pid is not None and _is_demo(pid):
        raise RuntimeSetupError(f"the demo is already running (pid {pid}, from {str(pid_file)!r}); stop it first")
    write_private(pid_file, f"{os.getpid()}\n")
    try:
        yield
    finally:
        pid_file.unlink(missing_ok=True)


def check_port(port: int) -> None:
    """Raise RuntimeSetupError if the port is taken."""
    if not is_free(port):
        raise RuntimeSetupError(
            f"port {port} is taken; stop the process that uses it, or choose another port with --port {port + 1}"
        )


def grant_access(port: int) -> Access:
    """Return the access of the last run if it is still valid, else a new one."""
    stored = _stored_access()
    access = Access(
        url=f"http://127.0.0.1:{port}",
        api_key=_api_key(stored.get("api_key", "")),
        admin_user=ADMIN,
        admin_password=_admin_password(stored.get("admin_password", "")),
    )
    access.save()
    return access


def set_up_roles() -> dict[str, str]:
    """Set up the roles of an installation on the embedded server; return their addresses, part to URL.

    The user's own server is not changed, and nothing is returned for it.
    """
    server = EmbeddedPostgres(data_dir())
    if server.process() is None or server.url() != os.environ["DATABASE_URL"]:
        return {}
    passwords = server.role_passwords()
    with readers.own_connection() as conn:
        role_setup.set_up(conn, Roles(), django_tables(), passwords)
    return {part: server.url(Roles()[part], password) for part, password in passwords.items()}


def start_children(
    port: int, references: Sequence[str] = (), addresses: Mapping[str, str] | None = None
) -> list[Child]:
    """Start web, events, worker and pipelines in this order; stop them in reverse order.

    references: the pipelines, by default the demo's. addresses: the database's URL for each role; empty: DATABASE_URL.
    """
    web_role, worker_role, pipeline_role = (
        {"DATABASE_URL": addresses[part]} if addresses else {} for part in ("web", "worker", "pipeline")
    )
    if references:
        pipeline_role = {}  # because they may read the user's tables, which our roles may not
    logs = data_dir() / "logs"
    python = sys.executable
    # Not the default of a week, so that a compaction has an effect in the demo at once.
    os.environ.setdefault("TIDEGAUGE_CHANGELOG_KEEP_HOURS", "0")
    if not references:
        # A high limit, because a year of input is there from the start, so its last day waits until all is processed.
        os.environ.setdefault("TIDEGAUGE_STALE_AFTER_SECONDS", "3600")
    # As text, because people read these logs.
    os.environ.setdefault("LOG_FORMAT", "text")
    os.environ.setdefault("GRANIAN_LOG_CONFIG", str(process_commands.LOG_CONFIG))
    events_port = port + 1 if is_free(port + 1) else free_port()
    os.environ["TIDEGAUGE_EVENTS_URL"] = f"http://127.0.0.1:{events_port}"
    os.environ["TIDEGAUGE_EVENTS_ORIGINS"] = f"http://127.0.0.1:{port}"
    project = Path.cwd()
    os.chdir(project_dir())
    worker = process_commands.worker(schedule=True, name=f"demo-{port}@%h")
    # Run from the folder with the pipelines' modules. There `-m` does not find a checkout, so manage.py is run.
    program = [str(REPOSITORY / "manage.py")] if is_checkout() else ["-m", "tidegauge"]
    pipelines = references or [FLIGHTS, AIRCRAFT, "--input", str(input_folder())]
    pipeline = [python, *program, "run_pipeline", *pipelines]
    return [
        Child("web", process_commands.web(port), logs / "web.log", environ=web_role),
        Child("events", process_commands.events(events_port), logs / "events.log", environ=web_role),
        Child("worker", worker, logs / "worker.log", environ=worker_role),
        Child("pipeline", pipeline, logs / "pipeline.log", stop_seconds=40.0, folder=project, environ=pipeline_role),
    ]


def wait_until_healthy(url: str, web: Child) -> None:
    """Wait until the web server responds. Raises RuntimeSetupError with the end of its log if it does not."""
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline and web.exit_code() is None:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):  # noqa: S310 (localhost)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeSetupError(f"the web server does not respond at {url}; the end of {web.log}:\n{web.last_lines()}")


def wait_until_announced(names: Sequence[str], pipeline: Child) -> None:
    """Wait until the dashboard shows the pipelines, which their process announces before it loads Spark."""
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline and pipeline.exit_code() is None:
        if set(names) <= set(queries.pipeline_names()):
            return
        time.sleep(0.2)


def run_whole_input() -> dict[str, Any]:
    """Process the remaining input with Spark in this process, and compare all states with a recount without Spark.

    Returns `events`, `batches`, `seconds` (of the batches, without Spark's start), `events_per_second`, and `states`:
    name to `keys` and `exact`, whether every key and measure equals the recount.
    Raises TidegaugeError; errors of Spark pass through.
    """
    dsn = os.environ["DATABASE_URL"]
    pipeline = find(FLIGHTS).pipeline(input_folder(), DAYS_PER_BATCH)
    options = RunOptions(data_dir() / "checkpoints" / PIPELINE, once=True)
    Driver(pipeline, start_session(PIPELINE), dsn, options).run()
    logger.info("recounting without Spark")
    with connect(dsn, "recount") as conn:
        return _figures(conn) | {"states": compare(conn, pipeline.specs)}


def _stored_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):
        return None


def _is_demo(pid: int) -> bool:
    """Return whether the process is a demo; another process may have got its pid since."""
    try:
        return pid != os.getpid() and "demo" in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def _stored_access() -> dict[str, str]:
    try:
        stored = json.loads(access_file().read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _api_key(stored: str) -> str:
    return stored if verified(stored) else create_api_key("demo", ["read", "maintain"])[1]


def _admin_password(stored: str) -> str:
    admin, _ = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    if stored and admin.check_password(stored):
        return stored
    password = token_urlsafe(12)
    admin.set_password(password)
    admin.save(update_fields=["password"])
    return password


def _figures(conn: psycopg.Connection) -> dict[str, Any]:
    row = conn.execute(
        "SELECT coalesce(sum(rows_in), 0)::bigint, count(*), "
        "coalesce(extract(epoch FROM sum(committed_at - started_at)), 0)::float8 "
        "FROM tidegauge.batch WHERE pipeline = %s AND committed_at IS NOT NULL",
        [PIPELINE],
    ).fetchone()
    events, batches, seconds = row or (0, 0, 0.0)
    return {
        "events": events,
        "batches": batches,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    }
