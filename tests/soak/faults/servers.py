"""Faults of servers: killed and started again, and replaced by a copy that has everything."""

import signal
from contextlib import suppress

import psutil

from tests.soak.faults.connections import in_redis
from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.points import OF_A_TASK
from tests.soak.world import World


@fault("kill -9", weight=2)
def postgres_killed(world: World) -> str:
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    world.servers.postgres.restart()
    world.points.release(point)
    return f"at {point}"


@fault("kill -9", weight=2)
def postgres_backend_killed(world: World) -> str:
    """One server process of the driver's; PostgreSQL then restarts all of them."""
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    with suppress(psutil.NoSuchProcess):
        rows = world.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", f"tidegauge {world.pipeline}"
        )
        for (pid,) in rows:
            psutil.Process(pid).send_signal(signal.SIGKILL)
    world.points.release(point)
    return f"at {point}"


@fault("kill -9", weight=2, fits=in_redis)
def redis_killed(world: World) -> str:
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    world.servers.redis.restart()
    world.points.release(point)
    return f"at {point}"


@fault("failover", weight=3)
def standby_promoted(world: World) -> str:
    """The standby has everything; the old primary is killed."""
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    world.servers.postgres.catch_up()
    world.servers.postgres.promote().remove()
    world.points.release(point)
    return f"at {point}"


@fault("failover", weight=2, fits=in_redis)
def replica_promoted(world: World) -> str:
    """The replica has everything; the old master is killed."""
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "hold")
    world.servers.redis.catch_up()
    world.servers.redis.promote()
    world.points.release(point)
    return f"at {point}"
