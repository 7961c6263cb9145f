"""Faults of history: ledger or checkpoint is older than the other; restored, promoted or lost by itself."""

import shutil

from tests.soak.faults.fault import fault
from tests.soak.faults.processes import OF_EVERY_BATCH, replays_other_rows
from tests.soak.processes import wait_until
from tests.soak.world import World

FEW = (1, 2, 3)


def forget_batches(world: World, batches: int) -> None:
    """Remove the newest batches from the checkpoint, plans and all, as a power cut does with files not yet on disk."""
    offsets = sorted(int(path.name) for path in (world.checkpoint / "offsets").iterdir() if path.name.isdecimal())
    for number in offsets[-batches:]:
        for part in ("offsets", "commits"):
            (world.checkpoint / part / str(number)).unlink(missing_ok=True)
    entries = sorted(int(path.name) for path in (world.checkpoint / "sources/0").iterdir() if path.name.isdecimal())
    for number in entries[-batches:]:
        (world.checkpoint / "sources/0" / str(number)).unlink()


@fault("checkpoint", weight=4, goes_back=True)
def checkpoint_one_batch_back(world: World) -> str:
    """The driver is killed, and the plan of its last batch is lost: Spark plans it anew, with more files."""
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "kill")
    world.await_end()
    forget_batches(world, 1)
    return f"killed at {point}"


@fault("checkpoint", weight=2, goes_back=True)
def checkpoint_restored_from_a_backup(world: World) -> str:
    """The backup of the checkpoint is some batches older than the ledger."""
    world.stop_at("published", "kill")
    world.await_end()
    saved = world.save_checkpoint("backup")
    world.ensure_driver()
    batches = world.chance.choice(FEW)
    world.await_batches(1 + batches)
    world.kill_driver()
    world.restore_checkpoint(saved)
    return f"at least {batches} batches"


@fault("checkpoint", weight=2, goes_back=True)
def checkpoint_lost(world: World) -> str:
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "kill")
    world.await_end()
    shutil.rmtree(world.checkpoint)
    return f"killed at {point}"


@fault("restore", weight=2, goes_back=True)
def dump_restored(world: World) -> str:
    """pg_dump, some batches, pg_restore --clean into the same database, while the driver is stopped."""
    dump = world.servers.postgres.primary.dump()
    world.await_batches(world.chance.choice(FEW))
    world.kill_driver()
    with world.restoring():
        world.servers.postgres.primary.restore(dump)
    return "driver killed before"


@fault("restore", weight=2, goes_back=True)
def dump_restored_under_a_live_driver(world: World) -> str:
    """The same, with the driver held in mid-batch, whose connections are cut."""
    dump = world.servers.postgres.primary.dump()
    world.await_batches(world.chance.choice(FEW))
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    with world.restoring():
        world.servers.postgres.primary.restore(dump)
    world.points.release(point)
    return f"at {point}"


@fault("restore", weight=2, goes_back=True)
def base_backup_restored(world: World) -> str:
    backup = world.servers.postgres.base_backup()
    world.await_batches(world.chance.choice(FEW))
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, world.chance.choice(["hold", "kill"]))
    world.servers.postgres.restore(backup)
    world.points.release(point)
    return f"at {point}"


@fault("failover", weight=3, goes_back=True)
def standby_promoted_that_lags(world: World) -> str:
    """The standby lacks the newest batches; the old primary is gone."""
    world.servers.postgres.hold_standby_back()
    world.await_batches(world.chance.choice(FEW))
    point = world.chance.choice(OF_EVERY_BATCH)
    world.stop_at(point, "hold")
    world.servers.postgres.promote().remove()
    world.points.release(point)
    return f"at {point}"


@fault("zombie", weight=2, goes_back=True, fits=replays_other_rows)
def task_from_before_a_restore_goes_on(world: World) -> str:
    """A task is stopped, the ledger is restored to before its driver started, and the next driver has its numbers.

    Its batch holds fewer files, so what the task writes late is not what the batch wrote.
    """
    with world.stopped():
        dump = world.servers.postgres.primary.dump()
        saved = world.save_checkpoint("backup")
    stopped = world.stop_at("task_begins", "stop")
    world.kill_driver()
    with world.restoring():
        world.servers.postgres.primary.restore(dump)
    world.restore_checkpoint(saved)
    world.points.order("committing", "hold")
    world.start_driver("--files-per-batch", "1")
    wait_until(lambda: world.points.reached("committing"), 60)
    if stopped is not None:
        world.let_go(stopped)
    world.points.cancel("committing")
    return "continued" if stopped else "not reached"
