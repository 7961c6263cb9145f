"""Faults of what everybody takes for granted: the clock, and room on the disk."""

import time
from contextlib import suppress

import psycopg

from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.world import World

# Beyond the bound that the product accepts between two clocks, and within it.
STEPS = ["31 days", "100 seconds", "-100 seconds", "-1 hour"]


@fault("clock", weight=3, goes_back=True)
def clock_of_the_database_stepped(world: World) -> str:
    """The time to live of the credits is two days: by the readers' clock they may be over meanwhile."""
    step = world.chance.choice(STEPS)
    point = world.chance.choice(OF_EVERY_BATCH)
    with world.checkers.paused():
        world.stop_at(point, "hold")
        world.servers.postgres.step_clock(step)
        world.points.release(point)
        time.sleep(world.chance.uniform(1.0, 5.0))
        world.servers.postgres.step_clock("0")
    return f"by {step} at {point}"


@fault("disk full", weight=2, fits=lambda world: world.servers.disk.is_own)
def disk_full(world: World) -> str:
    """PostgreSQL stops where it cannot write its log, and is started again once there is room."""
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    with world.servers.disk.full():
        world.points.release(point)
        time.sleep(world.chance.uniform(1.0, 4.0))
    world.servers.postgres.ensure_standby()
    with suppress(psycopg.Error):
        world.query("SELECT 1")
        return f"at {point}, the server went on"
    world.servers.postgres.restart()
    world.servers.redis.ensure_running()
    return f"at {point}, the server stopped"
