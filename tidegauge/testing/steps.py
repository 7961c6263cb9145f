"""Steps of a test: batches of rows, and the events between and within them.

A crash of the driver, a replayed batch, time that passes: each is an item of the input, at the place where it happens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from tidegauge.pipelines.errors import PipelineError

Point = Literal["after_begin", "mid_write", "before_commit", "after_commit"]

# The rows that a source gives to a batch, in any form that a test may use.
Rows = Sequence[Any]

# A batch: the rows of the only source, or the rows of each source by its name.
BatchRows = Rows | Mapping[Any, Rows]


@dataclass(frozen=True)
class Crash:
    """The driver dies while it applies the previous batch; the next driver takes over the pipeline with a new fence.

    at: `after_begin`: the ledger has opened the batch, and nothing is written. `mid_write`: the results of half of the
    rows (the first, the third, ..) are written. `before_commit`: all results are written. `after_commit`: the batch is
    committed, but Spark has no note of it.
    The batch is tried again, with the same rows unless a Replay follows. After two crashes the second attempt dies too.
    """

    at: Point = "before_commit"

    def __post_init__(self) -> None:
        if self.at not in get_args(Point):
            raise PipelineError(f"Crash(at={self.at!r}): must be one of {', '.join(get_args(Point))}")


@dataclass(frozen=True)
class Replay:
    """The previous batch is replayed under its id, with these rows instead of its own; None: with the same rows.

    Without a Crash before it, the batch had been committed, but Spark had no note of it.
    """

    rows: BatchRows | None = None


@dataclass(frozen=True)
class Restart:
    """The driver stops after the previous batch, and another one starts."""


@dataclass(frozen=True)
class Advance:
    """Time passes on the clock by which keys with a ttl expire. Without it, the clock advances one second per batch."""

    by: timedelta

    def __post_init__(self) -> None:
        if self.by < timedelta():
            raise PipelineError(f"Advance({self.by!r}): batch times cannot go back; give a positive time")


@dataclass(frozen=True)
class Expire:
    """Expired rows are deleted in every state, as by `tidegauge expire`."""


@dataclass(frozen=True)
class Compact:
    """Every state is compacted, as by `tidegauge compact`. keep: how far back reads of the past remain possible."""

    keep: timedelta = timedelta()


@dataclass(frozen=True)
class Attempt:
    """One attempt at a batch. batch_id: Spark's, from 0. dies: the point where its driver dies; None: it does not."""

    batch_id: int
    rows: BatchRows
    dies: Point | None = None


Fault = Crash | Replay | Restart | Expire | Compact
Step = BatchRows | Fault | Advance
Action = Attempt | Restart | Advance | Expire | Compact


def actions(steps: Sequence[Step]) -> list[Action]:
    """Return the actions of a run in order: every attempt at every batch, and the events between them.

    Raises PipelineError for a crash or replay that does not follow a batch, and for an item that is not a step.
    """
    done: list[Action] = []
    for step in steps:
        if isinstance(step, Crash | Replay):
            last = _last_attempt(done, step)
            if isinstance(step, Crash):
                done[-1:] = [replace(last, dies=step.at)] if last.dies is None else [last, replace(last, dies=step.at)]
            else:
                rows = last.rows if step.rows is None else step.rows
                done[-1:] = [replace(last, dies=last.dies or "after_commit"), replace(last, rows=rows, dies=None)]
            continue
        done += _again(done)
        if isinstance(step, Restart | Advance | Expire | Compact):
            done.append(step)
        elif isinstance(step, Mapping) or (isinstance(step, Sequence) and not isinstance(step, str | bytes)):
            done.append(Attempt(1 + max((each.batch_id for each in attempts(done)), default=-1), step))
        else:
            raise PipelineError(f"step {step!r}: is not a batch; give a list of rows, or a dict of lists by source")
    return [*done, *_again(done)]


def attempts(done: Sequence[Action]) -> Iterator[Attempt]:
    return (each for each in done if isinstance(each, Attempt))


def final_batches(steps: Sequence[Step]) -> list[BatchRows]:
    """Return for each batch the rows that count: those of its last attempt."""
    return list({each.batch_id: each.rows for each in attempts(actions(steps))}.values())


def without_faults(steps: Sequence[Step]) -> list[Step]:
    """Return the same batches at the same times, with the rows that count and without any fault."""
    rows = iter(final_batches(steps))
    kept = (step for step in steps if not isinstance(step, Fault))
    return [step if isinstance(step, Advance) else next(rows) for step in kept]


def has_faults(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Fault) for step in steps)


def _last_attempt(done: Sequence[Action], step: Crash | Replay) -> Attempt:
    if not done or not isinstance(done[-1], Attempt):
        raise PipelineError(f"step {step!r}: does not follow a batch; put it directly after the batch that it is about")
    return done[-1]


def _again(done: Sequence[Action]) -> list[Attempt]:
    """Return the next attempt at the last batch if its driver died, else nothing."""
    last = done[-1] if done else None
    return [replace(last, dies=None)] if isinstance(last, Attempt) and last.dies is not None else []
