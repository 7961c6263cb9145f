"""A state that is spread by buckets over nodes: each node guards its bucket, and one row of the ledger commits for all.

Each key is the bucket of a separate node. Nothing is published: a reader takes the commit from the ledger, asks the
nodes, and takes a row's value if its txid is not newer than the commit, else the previous value. Afterwards it compares
the commit with the ledger, and reads again if it has changed.
"""

from docs.model.guards import Bounds, StoreKind
from docs.model.rules import Rules, Steps, drives
from docs.model.world import INPUTS, KEYS, Attempt, Driver, Numbers, World


class Buckets(Rules):
    """The rules of a spread state. Restores of nodes and ledger are not modelled; `Rules` has them for one store."""

    def __init__(self, kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        super().__init__(kind, bounds._replace(without=bounds.without | {"copy", "restore_ledger", "revert"}), off)
        self.own += [("admit_node", self.admit_node), ("revert_bucket", self.revert_bucket)]

    def writing(self, world: World, place: int, own: Attempt) -> World:
        return drives(world, place, Driver("admits", own))

    def may_write(self, world: World, own: Attempt, key: str = "") -> bool:
        """Only the node is asked, because its check is not in a transaction with the ledger's row."""
        return not self.on("admission") or world.store.node(key) == numbers(own)

    def admit_node(self, world: World, place: int, driver: Driver) -> Steps:
        """Tell one node which attempt may write."""
        own = driver.attempt
        nodes = self.asked(own, "every node") if driver.phase == "admits" else set()
        for key in sorted(nodes - driver.done):
            if self.on("order") and world.store.node(key) > numbers(own):
                continue
            after = world._replace(store=world.store.admit(key, numbers(own)))
            last, done = len(driver.done) + 1 == len(nodes), driver.done | {key}
            if last and own.number > 1 and self.on("revert"):
                after = drives(after, place, Driver("reverts", own))
            else:
                after = (
                    self.with_tasks(after, place, own) if last else drives(after, place, Driver("admits", own, done))
                )
            yield f"has attempt {own.number} admitted by the node of {key}", after

    def revert_bucket(self, world: World, place: int, driver: Driver) -> Steps:
        """Revert the previous attempts in one bucket. The tasks write after the last bucket."""
        own = driver.attempt
        buckets = self.asked(own, "every bucket") if driver.phase == "reverts" else set()
        for key in sorted(buckets - driver.done):
            # Without the guard `every node`, a node may not have admitted the attempt, and then it cannot check it.
            is_let = self.may_write(world, own, key) or not self.on("every node")
            store = self.reverted(world.store, own.txid, key) if is_let else None
            if store is None:
                continue
            after, done = world._replace(store=store), driver.done | {key}
            if done == buckets:
                after = self.with_tasks(after, place, own)
            else:
                after = drives(after, place, driver._replace(done=done))
            yield f"reverts batch {own.txid} in the bucket of {key}", after

    def asked(self, own: Attempt, guard: str) -> set[str]:
        """Return the keys whose nodes are asked: all, or only those with rows of the attempt if the guard is off."""
        return set(KEYS) if self.on(guard) else set(INPUTS[own.input])


def numbers(own: Attempt) -> Numbers:
    return own.fence, own.txid, own.number, own.token


def rules_of(kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> Rules:
    """Return the rules of one kind of store."""
    return (Buckets if kind == "buckets" else Rules)(kind, bounds, off)
