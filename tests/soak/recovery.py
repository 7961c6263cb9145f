"""Recovery: after a fault, wait until the states hold exactly what was fed; where the product refuses to go on, do
what its error says, as an operator would.

A refusal is an answer of the product and is counted with its remedy. A deviation is an answer that is wrong: a key that
differs from the model, or a reader that saw part of a batch. Everything else is unexplained.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.soak.processes import wait_until
from tests.soak.world import World
from tidegauge.state_backends.errors import TidegaugeError

# With time to spare for a machine that does other work too: it decides when a run counts as stuck.
LONGEST_SECONDS = 400.0
POLL_SECONDS = 0.1
MAX_REMEDIES = 6


@dataclass
class Outcome:
    """How a fault ended. refusals: error and remedy of each. deviation: what is wrong, or None."""

    seconds: float = 0.0
    refusals: list[tuple[str, str]] = field(default_factory=list)
    deviation: str | None = None
    unexplained: str | None = None
    last_error: str = ""


@dataclass(frozen=True)
class Remedy:
    """What to do about an error whose text matches. name: for the report."""

    pattern: str
    name: str
    apply: Callable[[World, str], Any]


def recover(world: World, remedies: list[Remedy]) -> Outcome:
    """Wait until everything that has landed is counted once; apply remedies on the way."""
    outcome = Outcome()
    started = time.monotonic()
    with world.quiet():
        wait_until(world.background.idle.is_set, 5)
        while not (outcome.deviation or outcome.unexplained) and not _is_whole(world, outcome):
            if world.background.failure:
                outcome.unexplained = world.background.failure
            elif time.monotonic() - started > LONGEST_SECONDS:
                outcome.unexplained = f"not whole after {LONGEST_SECONDS:.0f} s: {outcome.last_error} {_tail(world)}"
            elif world.driver is not None and world.driver.exit_code() is not None:
                _restart(world, outcome, remedies)
            time.sleep(POLL_SECONDS)
    outcome.seconds = time.monotonic() - started
    if not outcome.deviation and world.checkers.findings.deviations:
        outcome.deviation = "; ".join(world.checkers.findings.deviations[:3])
    return outcome


def _is_whole(world: World, outcome: Outcome) -> bool:
    """Return whether the states hold what was fed; note a deviation where they hold something else for good."""
    drained = world.has_drained()
    try:
        held = world.values()
    except (psycopg.Error, TidegaugeError, OSError) as error:
        outcome.last_error = f"{type(error).__name__}: {error}"
        return False
    if held == _expected(world):
        return drained
    if drained and world.driver is not None and world.driver.exit_code() is None:
        # Once more: the files are noted before the read, the values may be of a moment later.
        time.sleep(0.3)
        held = world.values()
        if world.has_drained() and held != _expected(world):
            outcome.deviation = _difference(held, _expected(world))
    return False


def _expected(world: World) -> dict[str, Any]:
    return {side: world.feeder.model.values(side) for side in ("debits", "credits")}


def _difference(held: dict[str, Any], expected: dict[str, Any]) -> str:
    parts = []
    for side in expected:
        wrong = [key for key in expected[side] | held[side] if held[side].get(key) != expected[side].get(key)]
        found, right = (sum(row["n"] for row in rows[side].values()) for rows in (held, expected))
        if wrong:
            key = wrong[0]
            parts.append(
                f"{side}: {len(wrong)} keys differ, {found} transfers where {right} are right; "
                f"{key}: {held[side].get(key)} where {expected[side].get(key)} is right"
            )
    return "; ".join(parts)


def _restart(world: World, outcome: Outcome, remedies: list[Remedy]) -> None:
    """Start the driver again, after the remedy of what ended it."""
    assert world.driver is not None
    if world.driver.exit_code() == -9:
        world.start_driver()
        return
    reason = world.driver.refusal()
    remedy = next((each for each in remedies if re.search(each.pattern, reason)), None)
    if remedy is None or len(outcome.refusals) >= MAX_REMEDIES:
        outcome.unexplained = f"the driver ended: {reason}"
        return
    outcome.refusals.append((reason, remedy.name))
    said = remedy.apply(world, reason)
    if said:
        outcome.refusals[-1] = (reason, f"{remedy.name}: {said}")
    world.start_driver()


def _tail(world: World) -> str:
    return world.driver.output()[-1500:] if world.driver is not None else "no driver"
