"""What the processes of a service share: a folder of their counters, and bytes of memory.

Each process can answer a scrape for all of them, from one folder.

prometheus_client keeps a process's values in a file of PROMETHEUS_MULTIPROC_DIR and reads that variable once, when it
is imported. So `share` runs first in wsgi.py and asgi.py, and this module must not import prometheus_client.

A folder belongs to one start of a service, identified by the parent process of its workers: a new start counts from
zero, and the counts of a worker that has ended are kept.
"""

import logging
import mmap
import os
import shutil
import socket
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share(service: str, data_dir: Path) -> None:
    """Count together with the other processes of `service`. If the environment already names a folder, it is used.

    If the folder cannot be created, each process counts for itself.
    """
    if VARIABLE in os.environ:
        return
    try:
        os.environ[VARIABLE] = str(_folder(data_dir / "metrics" / service))
    except (OSError, psutil.Error) as error:
        logger.warning("each process counts for itself: %s", error)


def memory(name: str, size: int) -> mmap.mmap | bytearray:
    """Return bytes, zero at first, which the processes that count together share; call `share` before."""
    if VARIABLE not in os.environ:
        return bytearray(size)
    try:
        with (Path(os.environ[VARIABLE]) / name).open("a+b") as file:
            file.truncate(size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        logger.warning("each process keeps %s for itself: %s", name, error)
        return bytearray(size)


def remove_ended_processes() -> None:
    """Remove the gauges of processes that have ended, such as their open connections."""
    for path in Path(os.environ[VARIABLE]).glob("gauge_live*.db"):
        if not psutil.pid_exists(int(path.stem.rpartition("_")[2])):
            path.unlink(missing_ok=True)


def _folder(service: Path) -> Path:
    # A folder per host, because several hosts may share a data folder and cannot see each other's processes.
    of_host = service / socket.gethostname()
    folder = of_host / _identity(os.getppid())
    folder.mkdir(parents=True, exist_ok=True)
    for other in of_host.glob("[0-9]*-*"):
        if other.name != _identity(int(other.name.partition("-")[0])):
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _identity(pid: int) -> str:
    """Return pid and start time of a process, because pids are reused; empty if it does not exist."""
    try:
        return f"{pid}-{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
