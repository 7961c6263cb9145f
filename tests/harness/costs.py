"""Measures what tests cost, per folder: exact counts, and CPU seconds.

Counts do not depend on the machine: tests, restored databases, runs of pipelines, and the processes that are started
(see KINDS). CPU seconds are of the test process, its descendants and its servers, in units of a loop that is timed in
the same run.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import psutil
import pytest

# What a command line has, and what its process is then counted as; the first that fits.
KINDS = {
    "granian": "servers",
    "chromium": "browsers",
    "playwright": "browsers",
    "java": "jvms",
    "spark-submit": "jvms",
    "run_pipeline": "drivers",
    "postgres": "databases",
    "initdb": "databases",
}
COLUMNS = ["tests", "restores", "databases", "servers", "browsers", "jvms", "drivers", "processes", "runs"]

# The loop takes 0.04 s, so it is timed each time that tests have taken so much CPU.
LOOP_AFTER_SECONDS = 10.0

# Fixtures of this scope are set up by whichever test comes first, so they count for the run and not for its folder.
RUN = "once per process"

_counts: Counter[tuple[str, str]] = Counter()
_cpu: Counter[str] = Counter()
_place = [RUN]


def count(what: str, number: int = 1) -> None:
    """Count a cost of the test, or of the fixture of the session, that is running. what: one of COLUMNS."""
    _counts[_place[-1], what] += number


def loop_seconds() -> float:
    """Return the CPU seconds of a loop on this machine now."""
    start = time.process_time()
    sum(number * number for number in range(1_000_000))
    return time.process_time() - start


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, its descendants, and the servers in its data folder."""
    home = Path(os.environ["TIDEGAUGE_HOME"])
    roots = [psutil.Process(), *_servers(home)]
    every = {process.pid: process for root in roots for process in (root, *root.children(recursive=True))}
    return sum(_used(process) for process in every.values())


def _servers(home: Path) -> Iterator[psutil.Process]:
    for file in home.glob("*/postmaster.pid"):
        try:
            yield psutil.Process(int(file.read_text().split()[0]))
        except (OSError, ValueError, IndexError, psutil.Error):
            continue


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


class Recorder:
    """Attributes counts and CPU seconds to folders, in a process that runs tests."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._at = cpu_seconds()
        self._loops = [loop_seconds()]
        self._since_loop = 0.0
        subprocess.Popen.__init__ = _counting(subprocess.Popen.__init__)  # type: ignore[method-assign]

    def pytest_collection_finish(self) -> None:
        # Each process collects all tests, which belongs to no folder.
        now = cpu_seconds()
        _cpu[RUN] += now - self._at
        self._at = now

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        folder = str(item.path.parent.relative_to(self._root))
        _place[:] = [folder]
        count("tests")
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                now = cpu_seconds()
                used = max(0.0, now - self._at)
                _cpu[folder] += used
                self._at = now
                # Beside the other process and other machines on the same processor everything takes more CPU, the loop
                # as well; timed before and after the run alone it takes less than the tests had to.
                self._since_loop += used
                if self._since_loop > LOOP_AFTER_SECONDS:
                    self._loops.append(loop_seconds())
                    self._since_loop = 0.0
            _place[:] = [RUN]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[object]:
        if fixturedef.scope != "session":
            return (yield)
        _place.append(RUN)
        try:
            return (yield)
        finally:
            _place.pop()

    def result(self) -> dict[str, object]:
        return {
            "counts": [[place, what, number] for (place, what), number in _counts.items()],
            "cpu": dict(_cpu),
            "loop": fmean(self._loops),
        }


def _counting(start: Callable[..., None]) -> Callable[..., None]:
    """Return `Popen.__init__` that counts, too. An audit hook would be asked at each import and each opened file."""

    def counted(self: object, args: object, *rest: object, **options: object) -> None:
        line = " ".join(map(str, args)) if isinstance(args, (list, tuple)) else str(args)
        count(next((kind for word, kind in KINDS.items() if word in line), "processes"))
        start(self, args, *rest, **options)

    return counted
