"""Faults of processes: killed, stopped and continued, two of them at once."""

import time

from tests.soak.faults.fault import fault
from tests.soak.points import OF_A_TASK, OF_THE_DRIVER
from tests.soak.processes import wait_until
from tests.soak.world import World

WORKER_OF_SPARK = "pyspark.daemon"

# Passed by every batch; the others by a retry alone.
OF_EVERY_BATCH = [point for point in OF_THE_DRIVER if point not in ("reverting", "reverted")]


def has_own_tasks(world: World) -> bool:
    """Whether tasks have points, as those of Spark have not."""
    return not world.options.spark


def replays_other_rows(world: World) -> bool:
    """Whether a batch that comes again may bring other files, as Spark's own file source never does."""
    return world.variant.spout == "opaque" and has_own_tasks(world)


@fault("kill -9", weight=4)
def driver_killed(world: World) -> str:
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "kill")
    return f"at {point}"


@fault("kill -9", weight=3)
def driver_killed_while_it_reverts(world: World) -> str:
    point = world.chance.choice(["reverting", "reverted"])
    world.points.order(point, "kill")
    world.stop_at(world.chance.choice(["applying", "applied", "committing"]), "kill")
    world.await_end()
    world.ensure_driver()
    wait_until(lambda: world.points.reached(point), 30)
    world.points.cancel(point)
    return f"at {point}"


@fault("kill -9", weight=2)
def driver_killed_twice(world: World) -> str:
    first, second = world.chance.choices(OF_EVERY_BATCH, k=2)
    world.stop_at(first, "kill")
    world.await_end()
    world.ensure_driver()
    world.stop_at(second, "kill")
    return f"at {first}, then at {second}"


@fault("kill -9", weight=3, fits=lambda world: world.options.spark)
def workers_of_spark_killed(world: World) -> str:
    """The Python processes that run the tasks of a batch."""
    assert world.driver is not None
    world.stop_at("begun", "hold")
    world.points.release("begun")
    killed = 0
    for _ in range(world.chance.randint(1, 4)):
        time.sleep(world.chance.uniform(0.05, 0.5))
        killed += world.driver.kill_children(WORKER_OF_SPARK)
    return f"{killed} of them"


@fault("kill -9", weight=3, fits=has_own_tasks)
def task_killed(world: World) -> str:
    point = world.chance.choice(OF_A_TASK)
    world.stop_at(point, "kill")
    return f"at {point}"


@fault("failure", weight=4)
def batch_failed(world: World) -> str:
    point = world.chance.choice([*OF_EVERY_BATCH, *OF_A_TASK])
    world.stop_at(point, "fail")
    return f"at {point}"


@fault("replay", weight=4, fits=replays_other_rows)
def open_batch_replayed_with_other_rows(world: World) -> str:
    """The attempt has written everything; the next one brings fewer, more or other files."""
    point = world.chance.choice(["applied", "committing"])
    world.stop_at(point, "fail")
    return f"at {point}"


@fault("replay", weight=3, fits=replays_other_rows)
def committed_batch_replayed_with_other_rows(world: World) -> str:
    """The batch is committed, the engine did not note it, and brings fewer, more or other files."""
    point = world.chance.choice(["committed", "published"])
    world.stop_at(point, "fail")
    return f"at {point}"


@fault("failure", weight=3, fits=has_own_tasks)
def task_lost_and_late(world: World) -> str:
    """A task is stopped, counts as lost, runs again elsewhere, and the stopped one goes on after the batch."""
    stopped = world.stop_at("task_begins", "stop")
    if stopped is not None:
        world.await_batches(world.chance.choice([0, 1, 2]))
        world.let_go(stopped)
    return "continued" if stopped else "not reached"


@fault("zombie", weight=3)
def driver_stopped_and_replaced(world: World) -> str:
    """A driver is stopped, loses its connections, is replaced, and goes on."""
    point = world.chance.choice(OF_EVERY_BATCH)
    stopped = world.stop_at(point, "stop")
    if stopped is None:
        return "not reached"
    zombie = world.retire_driver()
    world.servers.postgres.proxy.cut()
    world.start_driver()
    # If it went on before the other one has started, it would rightly keep the pipeline.
    world.await_batches(world.chance.choice([1, 2]), seconds=180)
    world.let_go(zombie.pid)
    # It tries once more, and would rightly take the pipeline over if the next fault met its successor before.
    assert wait_until(lambda: zombie.exit_code() is not None, 60), "the driver that was replaced did not end"
    return f"at {point}"


@fault("zombie", weight=3, fits=has_own_tasks)
def killed_drivers_task_goes_on(world: World) -> str:
    """The driver is killed while a task of its batch is stopped; the task goes on under the next driver."""
    stopped = world.stop_at("task_begins", "stop")
    world.kill_driver()
    moment = world.chance.choice(["before the next driver", "committing", "committing", "two batches later"])
    if moment == "committing":
        world.points.order("committing", "hold")
    if stopped is not None and moment == "before the next driver":
        world.let_go(stopped)
    world.start_driver()
    if moment == "committing":
        wait_until(lambda: world.points.reached("committing"), 60)
    if moment == "two batches later":
        world.await_batches(2)
    if stopped is not None and moment != "before the next driver":
        world.let_go(stopped)
    world.points.cancel("committing")
    return f"continued {moment}" if stopped else "not reached"


@fault("two drivers", weight=2)
def second_driver_started(world: World) -> str:
    """A second driver of the pipeline must be refused while the first lives."""
    second = world.start_driver(name="second")
    assert wait_until(lambda: second.exit_code() is not None, 180), "the second driver was not refused"
    reason = second.refusal()
    assert "is held by a live driver" in reason, f"the second driver ended with: {reason}"
    return "refused"
