"""One folder of counters for all processes of a service, so that whichever is scraped answers for all of them.

prometheus_client keeps a process's figures in a file of PROMETHEUS_MULTIPROC_DIR, and looks for that name once, when it
is imported. So `share` comes first in wsgi.py and asgi.py. A folder belongs to one start of a service, known by the
process that started the workers: a new start counts from zero, and a worker that dies takes nothing back.
"""

import logging
import os
import shutil
import socket
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share(service: str, data_dir: Path) -> None:
    """Count together with the siblings of this process. A folder that the environment names is taken as it is.

    Where none can be made, each process counts for itself.
    """
    if VARIABLE in os.environ:
        return
    try:
        os.environ[VARIABLE] = str(_folder(data_dir / "metrics" / service))
    except (OSError, psutil.Error) as error:
        logger.warning("each process counts for itself: %s", error)


def forget_the_dead() -> None:
    """Drop what only living processes have, such as open connections, of those that are gone."""
    for path in Path(os.environ[VARIABLE]).glob("gauge_live*.db"):
        if not psutil.pid_exists(int(path.stem.rpartition("_")[2])):
            path.unlink(missing_ok=True)


def _folder(service: Path) -> Path:
    # Several hosts may share a data folder, and know nothing of each other's processes.
    here = service / socket.gethostname()
    folder = here / _mark(os.getppid())
    folder.mkdir(parents=True, exist_ok=True)
    for other in here.glob("[0-9]*-*"):
        if other.name != _mark(int(other.name.partition("-")[0])):
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _mark(pid: int) -> str:
    """Return a process's number and the time of its start, for numbers come again; empty where there is none."""
    try:
        return f"{pid}-{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
