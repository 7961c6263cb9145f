"""The checks of the ledger and of an external store before an action, and the effects of actions on rows."""

from typing import Any

from docs.model.readers import Readers
from docs.model.world import (
    FORGOTTEN,
    INPUTS,
    KEYS,
    NEVER,
    Attempt,
    Guard,
    Ledger,
    Note,
    Row,
    Store,
    Value,
    World,
    changed,
)

# The name of an attempt of which the store has no record.
UNKNOWN = (0, 0)


class Checks(Readers):
    """The guards of writers. A method that returns None refuses."""

    def holds(self, ledger: Ledger, own: Attempt) -> bool:
        if self.on("original") and not ledger.is_original:
            return False
        if self.on("fence") and own.fence != ledger.fence:
            return False
        return own.token == ledger.token or not (self.on("fence") and self.on("token"))

    def is_open(self, ledger: Ledger, own: Attempt) -> bool:
        return not self.on("attempt") or (own.txid, own.number) == (ledger.committed + 1, ledger.open)

    def is_admitted(self, world: World, own: Attempt) -> bool:
        if not self.on("admission"):
            return True
        *numbers, token = world.store.guard.admitted
        return numbers == [own.fence, own.txid, own.number] and (token == own.token or not self.on("token"))

    def may_write(self, world: World, own: Attempt, key: str = "") -> bool:
        """Whether an attempt may write a key. An external store cannot check the ledger in the same transaction."""
        if self.external:
            return self.is_admitted(world, own)
        return self.holds(world.ledger, own) and self.is_open(world.ledger, own)

    def has_written(self, world: World, own: Attempt) -> bool:
        """Whether the store has all writes of the attempt and still admits it. The ledger's database needs no check."""
        guard = world.store.guard
        return not self.external or (self.is_admitted(world, own) and self.has_keys(guard, own.txid, own.input))

    def has_ended(self, world: World, own: Attempt) -> bool:
        note = world.store.guard.note(own.txid)
        return not self.external or not self.on("ended") or (note is not None and note.ended)

    def admitted(self, guard: Guard, own: Attempt) -> Guard | None:
        """Return the guard with an attempt admitted; None if that is refused. A start takes over another epoch."""
        same_epoch = guard.epoch == own.epoch or not guard.admitted[0]
        fence, txid, number, token = guard.admitted
        older = (own.fence, own.txid, own.number) < (fence, txid, number)
        other = own.fence == fence and own.token != token and self.on("token")
        refused = older or other if same_epoch else own.number > 0
        if self.on("order") and refused:
            return None
        guard = guard._replace(admitted=(own.fence, own.txid, own.number, own.token), epoch=own.epoch)
        if not own.number:
            return guard
        keys = (guard.note(own.txid) or Note(own.txid, own.name)).keys
        kept = [each for each in guard.notes if each.txid not in (own.txid, own.txid - 2)]
        return guard._replace(notes=(*kept, Note(own.txid, own.name, keys, ended=own.number == 1)))

    def has_keys(self, guard: Guard, txid: int, name: str) -> bool:
        note = guard.note(txid)
        ended = note is not None and (note.ended or not self.on("ended"))
        return not self.on("keys") or (note is not None and ended and len(note.keys) == len(INPUTS[name]))

    def matches(self, world: World, committed: int) -> bool:
        """Whether the store is at the ledger's committed batch, or `mended` can bring it there."""
        history, guard = world.ledger.history, world.store.guard
        own = guard.note(committed)
        if self.on("ahead") and (guard.published > committed + 1 or guard.note(committed + 2) is not None):
            return False
        unpublished = guard.published == committed - 1 and own is not None
        if self.on("behind") and guard.published < committed and not unpublished:
            return False
        if own is None or not 0 < committed <= len(history):
            return True
        last = history[committed - 1]
        return (not self.on("content") or own.by == last.by) and self.has_keys(guard, committed, last.input)

    def mended(self, world: World, store: Store, committed: int) -> Store | None:
        """Return the store at the committed batch; None if a row cannot be reverted."""
        if not self.on("mend"):
            return store
        if store.guard.published < committed:
            store = self.shown(store, committed)
        if world.ledger.open:
            return store
        return self.reverted_rows(self.shown(store, committed), committed + 1)

    def shown(self, store: Store, txid: int) -> Store:
        """Return the store with batch `txid` published."""
        by, note = store.guard.by[:txid], store.guard.note(txid)
        if len(by) < txid:
            # Batches in between can be missing only if the guard `behind` is off.
            by += (UNKNOWN,) * (txid - 1 - len(by)) + (note.by if note else UNKNOWN,)
        return store._replace(guard=store.guard._replace(published=txid, by=by, shown=self.answers(store, txid)))

    def merged(self, store: Store, own: Attempt, key: str, part: int) -> Store | None:
        """Return the store after Trident's opaque rule for one row; None if a newer batch wrote it."""
        row = store.row(key)
        base: Value = None
        previous: tuple[Value, int] = (None, NEVER)
        if row is not None and row.txid > own.txid:
            return None
        if row is not None and row.txid == own.txid:
            base, previous = row.prev if self.on("replay") else row.value, (row.prev, row.prev_txid)
        elif row is not None:
            base, previous = row.value, (row.value, row.txid)
        store = store.put(key, Row(changed(base, own.txid, own.input, key, [part]), own.txid, *previous))
        note = store.guard.note(own.txid)
        return noted(store, own.txid, keys=note.keys | {key}) if note else store

    def reverted_rows(self, store: Store, txid: int) -> Store | None:
        for key in KEYS:
            after = self.reverted(store, txid, key)
            if after is None:
                return None
            store = after
        return store

    def reverted(self, store: Store, txid: int, key: str) -> Store | None:
        """Return the store with a row of batch `txid` as it was before; None if the row before is unknown."""
        row = store.row(key)
        if row is None or row.txid != txid:
            return store
        if row.prev_txid == FORGOTTEN:
            return None
        before = None
        if row.prev_txid != NEVER:
            before = Row(row.prev, row.prev_txid, None, FORGOTTEN if self.on("forgotten") else NEVER)
        store = store.put(key, before)
        note = store.guard.note(txid)
        return noted(store, txid, keys=note.keys - {key}) if note else store


def noted(store: Store, txid: int, **changes: Any) -> Store:
    """Return the store with its record of a batch changed."""
    notes = tuple(note._replace(**changes) if note.txid == txid else note for note in store.guard.notes)
    return store._replace(guard=store.guard._replace(notes=notes))
