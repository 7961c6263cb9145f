"""Processes with all that they have started, whatever their sessions and groups."""

import signal
from contextlib import suppress

import psutil


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started; nothing if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def signal_all(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and all that it has started."""
    for member in family(pid):
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs. An orphan that has ended may stay a zombie where process 1 reaps none."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
