"""The command line that starts each process of the web application: web, events, worker and beat.

`tidegauge web`, `events`, `worker` and `beat` replace themselves by these commands; the demo, tests and benchmarks
start them directly. Of HTTP/1 alone, because granian limits the time in which a client sends its headers only there.
`--backpressure` is the number of clients that a worker accepts at once. A worker that is killed is started again,
because otherwise granian stops the others, too.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

# Options of granian without host, port and workers; the application is last.
WEB = (
    *("--interface", "asginl", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "20", "--respawn-failed-workers"),
    "tidegauge.webapp.web:application",
)
EVENTS = (
    *("--interface", "asgi", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "10", "--respawn-failed-workers"),
    "tidegauge.webapp.asgi:application",
)
LOOPBACK = "127.0.0.1"

# For the variable GRANIAN_LOG_CONFIG: granian then writes its lines as the other processes do.
LOG_CONFIG = Path(__file__).absolute().parents[1] / "core" / "granian.json"

SCHEDULER = ("--scheduler", "django_celery_beat.schedulers:DatabaseScheduler")
CELERY = ("-m", "celery", "-A", "tidegauge.webapp")


def web(port: int, *, host: str = LOOPBACK, workers: int = 1, options: Sequence[str] = WEB) -> list[str]:
    """Return the command of a web process. options: of granian, with another application for example."""
    place = ["--host", host, "--port", str(port), "--workers", str(workers)]
    return [sys.executable, "-m", "granian", *place, *options]


def events(port: int, *, host: str = LOOPBACK) -> list[str]:
    """Return the command of an events process, which always has one worker."""
    return web(port, host=host, options=EVENTS)


def worker(*, concurrency: int = 1, schedule: bool = False, name: str = "", log_level: str = "info") -> list[str]:
    """Return the command of a Celery worker. schedule: it also sends the scheduled tasks. name: as `demo@%h`."""
    command = [sys.executable, *CELERY, "worker", "--loglevel", log_level, "--concurrency", str(concurrency)]
    command += ["-B", *SCHEDULER] if schedule else []
    return [*command, "--hostname", name] if name else command


def beat(*, log_level: str = "info") -> list[str]:
    """Return the command of the process that sends the scheduled tasks, if no worker does."""
    # Without a pid file, because Celery would refuse to start after a crash that left one, and it would be written to
    # the working folder.
    return [sys.executable, *CELERY, "beat", "--loglevel", log_level, "--pidfile=", *SCHEDULER]
