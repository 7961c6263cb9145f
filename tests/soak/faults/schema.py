"""Faults of releases: a further measure and back, a state left out and back, a reprocess, killed and aborted."""

import time
from dataclasses import replace

from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.processes import Process, wait_until
from tests.soak.world import World

REPROCESS_SECONDS = 400.0


def in_tables(world: World) -> bool:
    """Whether the states can be reprocessed: those of Redis have no shadow."""
    return not world.uses_redis


@fault("release", weight=3)
def release_with_another_measure(world: World) -> str:
    """The next release has a further measure, the one after it has not."""
    larger = not world.release.larger
    with world.stopped():
        world.release = replace(world.release, larger=larger)
    world.await_batches(1)
    return "with it" if larger else "without it"


@fault("release", weight=2)
def driver_killed_while_it_migrates(world: World) -> str:
    with world.stopped():
        world.release = replace(world.release, larger=not world.release.larger)
    seconds = world.chance.uniform(2.0, 9.0)
    time.sleep(seconds)
    world.kill_driver()
    return f"{seconds:.1f} s after its start"


@fault("release", weight=2, fits=in_tables, goes_back=True, never_whole=True)
def state_left_out_and_back(world: World) -> str:
    """A release feeds one of the two states; the next one feeds both."""
    with world.stopped():
        world.release = replace(world.release, fed=("debits",))
    world.await_batches(world.chance.choice([1, 2]))
    with world.stopped():
        world.release = replace(world.release, fed=("debits", "credits"))
    return "one batch or more"


@fault("reprocess", weight=2, fits=in_tables, goes_back=True)
def reprocessed(world: World) -> str:
    done = _reprocess(world)
    return "swapped in" if done.exit_code() == 0 else f"ended: {done.refusal()}"


@fault("reprocess", weight=2, fits=in_tables, goes_back=True)
def reprocess_killed_and_resumed(world: World) -> str:
    point = world.chance.choice(OF_EVERY_BATCH)
    _kill_a_reprocess(world, point)
    done = _reprocess(world)
    return f"killed at {point}; " + ("swapped in" if done.exit_code() == 0 else f"ended: {done.refusal()}")


@fault("reprocess", weight=2, fits=in_tables, goes_back=True)
def reprocess_killed_and_aborted(world: World) -> str:
    point = world.chance.choice(OF_EVERY_BATCH)
    _kill_a_reprocess(world, point)
    done = world.commands.run("abort", *world.run_words("--abort-reprocess"), **world.release.environ)
    return f"killed at {point}; " + ("aborted" if done.exit_code() == 0 else f"abort ended: {done.refusal()}")


def _reprocess(world: World) -> Process:
    process = world.start_driver("--reprocess", "--once", name="reprocess")
    # It never catches up with an input that comes as fast as it reads.
    with world.quiet():
        wait_until(lambda: process.exit_code() is not None, REPROCESS_SECONDS)
    process.kill_all()
    if process.exit_code() == 0:
        # The driver of the states that were replaced is told at its next batch.
        world.await_end()
    return process


def _kill_a_reprocess(world: World, point: str) -> None:
    """Kill it at a point of one of its batches, or in the middle of its swap if it has no batch left by then."""
    process = world.start_driver("--reprocess", "--once", name="reprocess")
    with world.quiet():
        wait_until(lambda: process.exit_code() is not None or "committed" in process.output(), 60)
        world.points.order(point, "kill")
        wait_until(lambda: world.points.reached(point) or process.exit_code() is not None, 20)
        world.points.cancel(point)
        time.sleep(world.chance.uniform(0.0, 0.5))
    process.kill_all()
