"""Faults of connections: cut, or held open while nothing gets through."""

import time

from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.points import OF_A_TASK
from tests.soak.world import World

# Longer than the deadline of a connection attempt in the checkers, shorter than a statement's.
BLACK_HOLE_SECONDS = (0.5, 4.0)


def in_redis(world: World) -> bool:
    return world.uses_redis


@fault("connections cut", weight=4)
def database_connections_cut(world: World) -> str:
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    cut = world.servers.postgres.proxy.cut()
    world.points.release(point)
    return f"{cut} at {point}"


@fault("black hole", weight=3)
def database_black_holed(world: World) -> str:
    seconds = world.chance.uniform(*BLACK_HOLE_SECONDS)
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    with world.servers.postgres.proxy.black_hole():
        world.points.release(point)
        time.sleep(seconds)
    return f"{seconds:.1f} s from {point}"


@fault("black hole", weight=2)
def database_black_holed_then_cut(world: World) -> str:
    """What was sent before may have been done, and nobody knows."""
    point = world.chance.choice(["committing", "begun", "applied", "task_wrote"])
    world.stop_at(point, "hold")
    with world.servers.postgres.proxy.black_hole():
        world.points.release(point)
        time.sleep(0.3)
        world.servers.postgres.proxy.cut()
    return f"from {point}"


@fault("connections cut", weight=3, fits=in_redis)
def redis_connections_cut(world: World) -> str:
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    cut = world.servers.redis.proxy.cut()
    world.points.release(point)
    return f"{cut} at {point}"


@fault("black hole", weight=2, fits=in_redis)
def redis_black_holed(world: World) -> str:
    """Longer than the time-out of a call."""
    seconds = world.chance.uniform(1.0, 7.0)
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    with world.servers.redis.proxy.black_hole():
        world.points.release(point)
        time.sleep(seconds)
    return f"{seconds:.1f} s from {point}"
