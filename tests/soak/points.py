"""Points: the places of a batch at which the soak makes something happen, in whatever process passes them.

The soak orders a fault by a file, named after the point, in the folder SOAK_POINTS; the first process to pass the point
takes the order. So a fault meets the step of the protocol that its seed chose, however fast the machine is.
"""

import os
import signal
import time
from pathlib import Path

# In the order in which a batch passes them. Those of a task are passed by each of its tasks.
OF_THE_DRIVER = (
    "planned",  # the engine has written the batch's offsets
    "begun",  # the ledger has opened the batch
    "reverting",
    "reverted",
    "applying",
    "applied",
    "committing",
    "committed",  # in the ledger; stores outside of it do not show the batch yet
    "published",  # the engine has not noted the batch as done
)
OF_A_TASK = ("task_begins", "task_writing", "task_wrote")

# Spark's own steps and its tasks have no points; the nearest step of the driver takes the place of each.
WITH_SPARK = {
    "planned": "begun",
    "applying": "begun",
    "applied": "committing",
    "published": "committed",
    "task_begins": "begun",
    "task_writing": "begun",
    "task_wrote": "committing",
}

# A point that nobody releases, since the soak has ended, holds its process no longer than this.
LONGEST_HOLD_SECONDS = 120.0
POLL_SECONDS = 0.01


class InjectedFault(Exception):
    """Raised at a point."""


class Points:
    """The orders of one pipeline, for the soak and for the processes. folder: theirs alone. spark: see WITH_SPARK."""

    def __init__(self, folder: Path, *, spark: bool = False) -> None:
        self.folder, self._places = folder, WITH_SPARK if spark else {}
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def of_environment(cls) -> "Points":
        return cls(Path(os.environ["SOAK_POINTS"]))

    def order(self, point: str, action: str) -> None:
        """Have the next process that passes `point` do `action`: kill, stop, fail or hold."""
        point = self._places.get(point, point)
        self._mark(f"{point}.reached").unlink(missing_ok=True)
        self._mark(f"{point}.released").unlink(missing_ok=True)
        draft = self._mark(f".{point}")
        draft.write_text(action)
        draft.replace(self._mark(point))

    def cancel(self, point: str) -> None:
        """Take an order back, and release whoever is held by it."""
        point = self._places.get(point, point)
        self._mark(point).unlink(missing_ok=True)
        self.release(point)

    def reached(self, point: str) -> int | None:
        """Return the id of the process that took the order; None as long as none has."""
        point = self._places.get(point, point)
        try:
            return int(self._mark(f"{point}.reached").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def release(self, point: str) -> None:
        self._mark(f"{self._places.get(point, point)}.released").touch()

    def passes(self, point: str) -> None:
        """Do what is ordered at `point`, if anything is."""
        point = self._places.get(point, point)
        taken = self._mark(f"{point}.taken-{os.getpid()}")
        try:
            self._mark(point).rename(taken)
        except FileNotFoundError:
            return
        action = taken.read_text()
        draft = self._mark(f".{point}.reached")
        draft.write_text(str(os.getpid()))
        draft.replace(self._mark(f"{point}.reached"))
        self._act(point, action)

    def _act(self, point: str, action: str) -> None:
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if action == "fail":
            raise InjectedFault(f"injected at {point}")
        deadline = time.monotonic() + LONGEST_HOLD_SECONDS
        while action == "hold" and not self._mark(f"{point}.released").exists() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _mark(self, name: str) -> Path:
        return self.folder / name
