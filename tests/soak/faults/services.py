"""Faults of the services: web, events and the Celery worker killed in the middle of their work."""

from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH
from tests.soak.world import World


def is_served(world: World) -> bool:
    return world.servers.services is not None


@fault("kill -9", weight=3, fits=is_served)
def web_killed(world: World) -> str:
    return _kill(world, "web")


@fault("kill -9", weight=3, fits=is_served)
def events_killed(world: World) -> str:
    return _kill(world, "events")


@fault("kill -9", weight=3, fits=is_served)
def worker_killed(world: World) -> str:
    """While it compacts or expires a state, or between."""
    return _kill(world, "worker")


def _kill(world: World, name: str) -> str:
    assert world.servers.services is not None
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    world.servers.services.kill(name)
    world.points.release(point)
    world.await_batches(1)
    return f"at {point}"
