"""The rules: what drivers, tasks, maintenance, readers and faults may do, each under its guards.

An action is a method that yields its possible results: a sentence and a world. It yields nothing if a guard refuses.
One action is one atomic step, such as a transaction or a script call; a crash may follow any step.
"""

from collections.abc import Iterator

from docs.model.checks import Checks, noted
from docs.model.guards import Bounds, StoreKind
from docs.model.world import INPUTS, KEYS, Attempt, Commit, Driver, Pin, Store, World

Steps = Iterator[tuple[str, World]]

# The tasks of this many newest attempts may still run, even if their drivers died long ago.
RUNNING = 2


class Rules(Checks):
    """Every step that a world may take."""

    def __init__(self, kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        super().__init__(kind, bounds, off)
        shared = [self.pin, self.compact, self.write, self.copy, self.restore_ledger]
        own = [self.start, self.begin, self.begin_again, self.revert, self.commit, self.crash, self.fail]
        if self.external:
            shared += [self.restore_store]
            own += [self.catch_up, self.admit, self.revert_row, self.publish]
        self.shared = [(each.__name__, each) for each in shared if each.__name__ not in bounds.without]
        self.own = [(each.__name__, each) for each in own if each.__name__ not in bounds.without]

    @property
    def actions(self) -> set[str]:
        """The names of all actions that are within the bounds."""
        return {name for name, _ in [*self.shared, *self.own]}

    def steps(self, world: World) -> Iterator[tuple[str, str, World]]:
        """Yield each possible next step: the name of its action, a sentence, and the world after it."""
        for name, action in self.shared:
            for sentence, after in action(world):
                yield name, sentence, after
        for place, driver in enumerate(world.drivers):
            for name, act in self.own:
                for sentence, after in act(world, place, driver):
                    yield name, f"driver {'AB'[place]} {sentence}", after

    # Drivers

    def start(self, world: World, place: int, driver: Driver) -> Steps:
        """Take over the pipeline. Another driver may continue, because it does not know that it has lost its lock."""
        takeover = any(other.phase != "down" for other in world.drivers)
        # A and B are interchangeable, so B starts only beside A; otherwise the search would visit each world twice.
        is_next = driver.phase == "down" and (place == 0 or world.drivers[0].phase != "down")
        if not is_next or world.faults < takeover:
            return
        ledger, token = world.ledger, world.token + 1
        # A token is never used twice, so it also serves as the random name of an epoch.
        epoch = token if self.on("epoch") and not ledger.is_original else ledger.epoch
        ledger = ledger._replace(fence=ledger.fence + 1, token=token, epoch=epoch, is_original=True)
        own = Attempt(ledger.fence, token, epoch, ledger.committed, 0, "")
        world = world._replace(ledger=ledger, token=token, faults=world.faults - takeover)
        phase = "started" if self.external else "ready"
        yield f"starts under fence {ledger.fence}, token {token}", drives(world, place, Driver(phase, own))

    def catch_up(self, world: World, place: int, driver: Driver) -> Steps:
        """Compare the store with the ledger, take it over, and repair it. The ledger's row stays locked meanwhile."""
        own = driver.attempt
        if driver.phase != "started" or not self.holds(world.ledger, own):
            return
        store = self.taken_over(world, own)
        if store is not None:
            yield (
                "compares the store and takes it over",
                drives(world._replace(store=store), place, Driver("ready", own)),
            )

    def begin(self, world: World, place: int, driver: Driver) -> Steps:
        """Open the next batch, or open it again after an attempt that died, with any of its inputs."""
        if driver.phase == "ready" and self.holds(world.ledger, driver.attempt):
            yield from self.opened(world, place, driver)

    def begin_again(self, world: World, place: int, driver: Driver) -> Steps:
        """Undo the commit, because Spark died before it recorded it and an opaque source brings other input."""
        ledger = world.ledger
        # Spark brings a committed batch again only as the first batch of a query.
        fresh = driver.phase == "ready" and driver.attempt.number == 0
        if not fresh or not world.faults or not ledger.history or not self.holds(ledger, driver.attempt):
            return
        if ledger.open and self.on("used up"):
            return
        back = ledger._replace(history=ledger.history[:-1], open=ledger.history[-1].by[1])
        yield from self.opened(world._replace(ledger=back, faults=world.faults - 1), place, driver)

    def opened(self, world: World, place: int, driver: Driver) -> Steps:
        txid, number = world.ledger.committed + 1, world.ledger.open + 1
        for name in self.bounds.inputs[txid - 1] if txid <= len(self.bounds.inputs) else ():
            own = driver.attempt._replace(txid=txid, number=number, input=name)
            opened = world._replace(ledger=world.ledger._replace(open=number))
            begun = drives(opened, place, Driver("opened", own)) if self.external else self.writing(opened, place, own)
            yield f"opens batch {txid} with input {name}, attempt {number}", begun

    def admit(self, world: World, place: int, driver: Driver) -> Steps:
        """Compare the store with the ledger, tell it which attempt may write, and repair it."""
        own = driver.attempt
        store = self.taken_over(world, own) if driver.phase == "opened" else None
        if store is not None:
            yield f"has attempt {own.number} admitted", self.writing(world._replace(store=store), place, own)

    def taken_over(self, world: World, own: Attempt) -> Store | None:
        """Return the store with an attempt admitted; None if it is refused."""
        committed = own.txid - 1 if own.number else own.txid
        guard = self.admitted(world.store.guard, own) if self.matches(world, committed) else None
        return None if guard is None else self.mended(world, world.store._replace(guard=guard), committed)

    def writing(self, world: World, place: int, own: Attempt) -> World:
        """Return the world in which the attempt's tasks run, or in which it has to revert first."""
        if own.number > 1 and self.on("revert"):
            return drives(world, place, Driver("reverts", own))
        return self.with_tasks(world, place, own)

    def with_tasks(self, world: World, place: int, own: Attempt) -> World:
        return drives(world._replace(tasks=(*world.tasks, own)[-RUNNING:]), place, Driver("writes", own))

    def revert(self, world: World, place: int, driver: Driver) -> Steps:
        """Revert in one transaction. An external store first shows readers the batch before, then reverts its rows."""
        own = driver.attempt
        if driver.phase != "reverts" or not self.may_write(world, own):
            return
        store: Store | None
        if self.external:
            # Published first, because readers must not see the batch while its rows are being reverted.
            store = self.shown(world.store, min(world.store.guard.published, own.txid - 1))
            begun = drives(world._replace(store=store), place, Driver("reverts rows", own))
            yield f"begins to revert batch {own.txid}", begun
            return
        store = self.reverted_rows(world.store, own.txid)
        if store is not None:
            yield f"reverts batch {own.txid}", self.with_tasks(world._replace(store=store), place, own)

    def revert_row(self, world: World, place: int, driver: Driver) -> Steps:
        """Revert one row of an external store. After the last row, the store records this and the tasks write."""
        own = driver.attempt
        if driver.phase != "reverts rows" or not self.may_write(world, own):
            return
        for key in sorted(set(KEYS) - driver.done):
            store = self.reverted(world.store, own.txid, key)
            if store is None:
                continue
            done = driver.done | {key}
            if len(done) == len(KEYS):
                after = self.with_tasks(world._replace(store=noted(store, own.txid, ended=True)), place, own)
            else:
                after = drives(world._replace(store=store), place, driver._replace(done=done))
            yield f"reverts {key} of batch {own.txid}", after

    def commit(self, world: World, place: int, driver: Driver) -> Steps:
        """Commit once every task has reported."""
        own, ledger = driver.attempt, world.ledger
        if driver.phase != "writes" or driver.done != frozenset(self.tasks_of(own)) or not ledger.open:
            return
        if not self.holds(ledger, own) or not self.is_open(ledger, own) or not self.has_written(world, own):
            return
        # Compared with the last token of all, because the ledger's own may have been restored.
        late = "" if own.token == world.token else f"a driver that was replaced has committed batch {own.txid}"
        history = (*ledger.history, Commit(own.input, own.name))
        world = world._replace(ledger=ledger._replace(history=history, open=0), broken=late)
        yield f"commits batch {own.txid}", drives(world, place, Driver("commits" if self.external else "ready", own))

    def publish(self, world: World, place: int, driver: Driver) -> Steps:
        """Show readers the committed batch, if all of it is there."""
        own = driver.attempt
        if driver.phase == "commits" and self.has_written(world, own):
            world = world._replace(store=self.shown(world.store, max(world.store.guard.published, own.txid)))
            yield f"publishes batch {own.txid}", drives(world, place, Driver("ready", own))

    def crash(self, world: World, place: int, driver: Driver) -> Steps:
        """The driver dies; its tasks continue."""
        if driver.phase != "down" and world.faults:
            yield "dies", drives(world._replace(faults=world.faults - 1), place, Driver())

    def fail(self, world: World, place: int, driver: Driver) -> Steps:
        """The batch fails, and the driver starts it again under the same fence; the tasks of the attempt continue."""
        if driver.phase not in ("down", "started", "ready") and world.faults:
            again = Driver("ready", driver.attempt._replace(number=0))
            yield "fails and tries again", drives(world._replace(faults=world.faults - 1), place, again)

    # Tasks

    def write(self, world: World) -> Steps:
        """A task merges a key: for the first time, again, or long after its driver has died."""
        for own in world.tasks:
            for task in self.tasks_of(own) if self.has_ended(world, own) else ():
                key = task[0]
                store = self.merged(world.store, own, key, task.count("'")) if self.may_write(world, own, key) else None
                if store is None:
                    continue
                drivers = tuple(
                    driver._replace(done=driver.done | {task})
                    if (driver.phase, driver.attempt) == ("writes", own)
                    else driver
                    for driver in world.drivers
                )
                sentence = f"a task of attempt {own.number} at batch {own.txid}, token {own.token}, writes {task}"
                yield sentence, world._replace(store=store, drivers=drivers)

    def tasks_of(self, own: Attempt) -> list[str]:
        return [key + "'" * part for key in INPUTS[own.input] for part in range(self.parts)]

    # Maintenance, readers, restores

    def compact(self, world: World) -> Steps:
        """Delete a tombstone, with the ledger's row locked."""
        settled = world.ledger.committed - self.on("settled")
        for key in KEYS:
            row = world.store.row(key)
            if row is not None and row.value is None and row.txid <= settled:
                oldest = max(world.store.oldest, row.txid) if self.on("oldest") else world.store.oldest
                yield (
                    f"compaction deletes {key}",
                    world._replace(store=world.store.put(key, None)._replace(oldest=oldest)),
                )

    def pin(self, world: World) -> Steps:
        txid = self.readable(world)
        if world.pin is None and txid:
            pinned = Pin(txid, self.label(world, txid), self.answers(world.store, txid))
            yield f"a reader pins batch {txid}", world._replace(pin=pinned)

    def copy(self, world: World) -> Steps:
        if world.copy is None and world.faults:
            yield "the servers are copied", world._replace(copy=(world.ledger, world.store))

    def restore_ledger(self, world: World) -> Steps:
        """The ledger's database is restored from its copy, and everything else keeps running."""
        if world.copy is not None and world.faults:
            ledger, store = world.copy
            store = world.store if self.external else store
            ledger = ledger._replace(is_original=False)
            after = world._replace(ledger=ledger, store=store, copy=None, faults=world.faults - 1)
            yield "the ledger is restored from its copy", after

    def restore_store(self, world: World) -> Steps:
        if world.copy is not None and world.faults:
            after = world._replace(store=world.copy[1], copy=None, faults=world.faults - 1)
            yield "the store is restored from its copy", after


def drives(world: World, place: int, driver: Driver) -> World:
    return world._replace(drivers=(*world.drivers[:place], driver, *world.drivers[place + 1 :]))
