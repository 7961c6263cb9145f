"""Faults of Redis as a store of states: older than the ledger, emptied, evicting, and ahead."""

from tests.soak.faults.connections import in_redis
from tests.soak.faults.fault import fault
from tests.soak.faults.history import FEW
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.world import World


@fault("redis went back", weight=3, fits=in_redis, goes_back=True)
def replica_promoted_that_lags(world: World) -> str:
    """The replica lacks some batches, or a part of one."""
    point = world.chance.choice(["begun", "task_wrote", "applied", "committed"])
    world.stop_at(point, "hold")
    world.servers.redis.hold_replica_back()
    world.points.release(point)
    world.await_batches(world.chance.choice([0, 1, 2]))
    later = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(later, "hold")
    world.servers.redis.promote()
    world.points.release(later)
    return f"from {point}, at {later}"


@fault("redis went back", weight=2, fits=in_redis, goes_back=True)
def redis_restored_from_a_snapshot(world: World) -> str:
    point = world.chance.choice(["task_wrote", "applied", "published"])
    world.stop_at(point, "hold")
    snapshot = world.servers.redis.master.snapshot()
    world.points.release(point)
    world.await_batches(world.chance.choice(FEW))
    world.servers.redis.restore(snapshot)
    return f"of {point}"


@fault("redis went back", weight=2, fits=in_redis, goes_back=True)
def redis_emptied(world: World) -> str:
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    world.servers.redis.master.call("FLUSHALL")
    world.points.release(point)
    return f"at {point}"


@fault("redis evicts", weight=2, fits=in_redis, goes_back=True)
def redis_evicted_keys(world: World) -> str:
    """The memory is limited, with a policy that drops keys."""
    redis = world.servers.redis.master
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    before = redis.client.dbsize()
    used = redis.client.info("memory")["used_memory"]
    redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    redis.call("CONFIG", "SET", "maxmemory", max(1, used - world.chance.choice([1_000, 20_000])))
    evicted = before - redis.client.dbsize()
    world.points.release(point)
    return f"{evicted} at {point}"
