"""Restore: rebuild the rows of a key-value store from its log, as of the last checkpoint.

`plan_restore` decides which part of the log to replay and which local copy to start with; `restore` does it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from tidegauge.state_backends.errors import PositionError
from tidegauge.state_backends.key_value.log import KeyValueLog, Message, apply, fetch, key_text
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key

T = TypeVar("T")

# Share of min_compaction_lag (Samza's 0.9). With an older checkpoint, the restore goes to the end of the log, because
# compaction may have deleted the values to go back to.
SAFE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """start, end: the positions between which the log is replayed. Later messages are undone; end=None undoes all.

    retain: the name of the local copy to start with, which reflects the log up to `start`. None: start empty.
    """

    start: int | None
    end: int | None
    retain: str | None = None


def plan_restore(
    oldest: int | None,
    newest: int | None,
    checkpointed: int | None,
    local: Mapping[str, int] | None = None,
    *,
    logged: bool = True,
    retain_existing_state: bool = True,
    checkpoint_age: timedelta = timedelta(),
    min_compaction_lag: timedelta = timedelta(hours=4),
) -> RestorePlan | None:
    """Return how to bring a store back to its checkpoint; None if there is no log, so that it starts empty.

    oldest, newest: the first and last position of the log; None if it is empty.
    checkpointed: the position that the last checkpoint names, as `flush` returned it; 0: the log was empty then, so
        all of it is undone; None: there is no checkpoint.
    local: the complete local copies, name to position; one ahead of the checkpoint is not used.
    retain_existing_state: without a checkpoint, restore what the log holds; False undoes all of it.
    A restore to the end of the log undoes nothing: what was written after the checkpoint stays, and may count twice.

    With a KeyValueStore, unless the plan is None:
    `restore(upto=plan.end or 0, after=plan.start if plan.retain else 0)`.
    The rules and defaults are those of apache/samza TransactionalStateTaskRestoreManager.getStoreActions, whose
    positions start at 0; with ours, which start at 1, a checkpoint of 0 lies before the first message.
    """
    if not logged:
        return None
    if oldest is None or newest is None or checkpointed is None:
        return RestorePlan(oldest, newest if retain_existing_state else None)
    if checkpointed == 0 < oldest:
        # All of it is undone, because the store was empty at that time, whatever the log has lost since.
        return RestorePlan(oldest, None)
    if not oldest <= checkpointed <= newest:  # the log was recreated, or no longer reaches back that far
        return RestorePlan(oldest, newest)
    end = newest if checkpoint_age > SAFE_SHARE * min_compaction_lag else checkpointed
    usable = {name: position for name, position in (local or {}).items() if oldest <= position <= checkpointed}
    if not usable:
        return RestorePlan(oldest, end)
    best = max(usable, key=usable.__getitem__)
    return RestorePlan(usable[best], end, best)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. messages: replayed; bytes: of their keys and values as JSON; undone: keys undone after it."""

    messages: int
    bytes: int
    undone: int


def checked_end(log: KeyValueLog, upto: int | None, after: int) -> int:
    """Return the position up to which a restore replays; upto=None means the end of the log. Raises PositionError."""
    end = log.end() if upto is None else upto
    if not 0 <= after <= end <= log.end():
        raise PositionError(
            f"cannot restore from position {after} to {end} of a log that ends at {log.end()}; "
            "for a checkpoint that the log does not reach, restore all of it (see plan_restore)"
        )
    return end


def restore(backing: IBackingMap, log: KeyValueLog, end: int, after: int, batch_keys: int) -> Restored:
    """Replay the messages after position `after` up to `end`, `batch_keys` at a time, and undo the later ones.

    after: the position that the map reflects; 0: not known. An `end` of 0 undoes the whole log.
    Undoing a message logs the older value of its key, or a tombstone, so that every later reader of the log gets the
    same state. If the log fails midway, the messages before stay applied and its error passes through: restore again.
    """
    later = list(dict.fromkeys(message.key for message in log.read(after=end)))
    if not after:
        # The map may hold values of the later messages: remove them first, so that only the replay sets these keys.
        backing.multi_remove(later)
    messages, size = _replay(backing, log.read(after, end), batch_keys)
    for keys in _batches(later, batch_keys):
        _undo(backing, log, keys)
    return Restored(messages, size, len(later))


def _replay(backing: IBackingMap, messages: Iterable[Message], batch_keys: int) -> tuple[int, int]:
    count = size = 0
    for batch in _batches(messages, batch_keys):
        apply(backing, batch)
        count += len(batch)
        size += sum(len((key_text(message.key) + (message.text or "")).encode()) for message in batch)
    return count, size


def _undo(backing: IBackingMap, log: KeyValueLog, keys: list[Key]) -> None:
    at = datetime.now(UTC)
    older = zip(keys, fetch(backing, keys), strict=True)
    log.append([message or Message(key, None, at) for key, message in older])


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; if the iterator raises, yield the items before the error, then raise it."""
    batch: list[T] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
    except (Exception, KeyboardInterrupt):
        yield batch
        raise
    if batch:
        yield batch
