"""Which part of its log a store is restored from, and which local copy it may start with. Samza's restore planner."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

# A checkpoint nearly as old as the log keeps messages for: the value to go back to may be compacted away (Samza's 0.9).
SAFE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """start, end: positions in the log to replay between; what lies after `end` is undone, all of it where None.

    retain: the name of the local copy to start with; it stands at `start`. None: start from nothing.
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
    """Return how to bring a store back to its checkpoint; None where there is no log, and it starts empty.

    oldest, newest: the first and last position of the log; None where it is empty.
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
        # The store was empty at that time, whatever the log has lost since.
        return RestorePlan(oldest, None)
    if not oldest <= checkpointed <= newest:  # the log was recreated, or no longer reaches back that far
        return RestorePlan(oldest, newest)
    end = newest if checkpoint_age > SAFE_SHARE * min_compaction_lag else checkpointed
    usable = {name: position for name, position in (local or {}).items() if oldest <= position <= checkpointed}
    if not usable:
        return RestorePlan(oldest, end)
    best = max(usable, key=usable.__getitem__)
    return RestorePlan(usable[best], end, best)
