"""A state that is spread by buckets over nodes: each node guards its bucket, and the ledger's one row commits for all.

Each key is the bucket of a node of its own. Nothing is published: a reader takes the commit from the ledger, asks the
nodes, takes a row's value if its txid is not newer, else the previous one, and compares the commit with the ledger
afterwards. Else it reads again.
"""

from docs.model.guards import Bounds, StoreKind
from docs.model.rules import Rules, Steps, drives
from docs.model.world import INPUTS, KEYS, Attempt, Driver, Numbers, World


class Buckets(Rules):
    """The rules of a spread state; nodes and ledger are not restored, which `Rules` has for one store."""

    def __init__(self, kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        super().__init__(kind, bounds._replace(without=bounds.without | {"copy", "restore_ledger", "revert"}), off)
        self.own += [("admit_node", self.admit_node), ("revert_bucket", self.revert_bucket)]

    def writing(self, world: World, place: int, own: Attempt) -> World:
        return drives(world, place, Driver("admits", own))

    def may_write(self, world: World, own: Attempt, key: str = "") -> bool:
        """A node is asked alone: the ledger's row may change meanwhile."""
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
        """Revert the attempts before in one bucket; the tasks write after the last one."""
        own = driver.attempt
        buckets = self.asked(own, "every bucket") if driver.phase == "reverts" else set()
        for key in sorted(buckets - driver.done):
            # A node that has not admitted the attempt could not check it.
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
        """Return the keys whose nodes are asked: all, or those that the attempt has rows for if the guard is off."""
        return set(KEYS) if self.on(guard) else set(INPUTS[own.input])


def numbers(own: Attempt) -> Numbers:
    return own.fence, own.txid, own.number, own.token


def rules_of(kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> Rules:
    """Return the rules of one kind of store."""
    return (Buckets if kind == "buckets" else Rules)(kind, bounds, off)
