"""Acts on a pipeline that need its driver stopped, or Spark: what each would do now, and its command.

A web process loads no Spark, so these run from the command line. What it can tell without one, it tells before: why an
act would be refused, what a rewind takes back and how each state goes, and which work is under way.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidegauge.state_backends.errors import RewindError, TidegaugeError
from tidegauge.state_backends.repair.rewind import Rewind
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.queries import PipelineStatus, StateSummary

RECOVERY = "See docs/recovery.md for when it is needed."


@dataclass(frozen=True)
class Act:
    """An act that a command carries out. refusal: why it would be refused now; empty if nothing is known."""

    title: str
    says: str
    command: str
    refusal: str = ""


@dataclass(frozen=True)
class Work:
    """A work that holds the tables of a state now; see state_backends/ledger/state_lock.py."""

    state: str
    work: str
    host: str
    pid: int
    since: datetime


@dataclass(frozen=True)
class RewindPlan:
    """What a rewind to batch `to` takes back. rows: of its batches; letters: dead letters that go with them.

    steps: how each state goes back that can. refusal: why it would be refused, as far as the ledger tells.
    """

    to: int
    batches: int
    rows: int
    letters: int
    steps: Sequence[str]
    refusal: str
    commands: Sequence[str]


TAKEN_BACK = """
SELECT count(*) AS batches, coalesce(sum(rows_in), 0) AS rows, coalesce(sum(dead_letters), 0) AS letters
FROM tidegauge.batch WHERE pipeline = %(pipeline)s AND txid > %(to)s AND txid <= %(committed)s
"""

WORKS = """
SELECT w.state, w.work, w.host, w.pid, w.since FROM tidegauge.state_work w JOIN tidegauge.state s ON s.name = w.state
WHERE s.pipeline = %(pipeline)s AND w.tables = 'live' AND tidegauge.is_worked_on(w.state, w.work) ORDER BY w.state
"""


def works(pipeline: str) -> list[Work]:
    return [Work(**row) for row in queries.fetch(WORKS, {"pipeline": pipeline})]


def rewind_plan(pipeline: PipelineStatus, to: int) -> RewindPlan:
    """Return what a rewind would do, without doing it."""
    taken = queries.fetch(TAKEN_BACK, {"pipeline": pipeline.name, "to": to, "committed": pipeline.committed_txid})[0]
    steps: list[str] = []
    try:
        if to > pipeline.committed_txid:
            raise RewindError(f"batch {to} is not committed; the newest is batch {pipeline.committed_txid}")
        planned = Rewind(readers.connection(), pipeline.name, to).plan()
        steps = [str(step) for step in planned if not step.obstacle]
        obstacles = [str(step) for step in planned if step.obstacle]
    except TidegaugeError as error:
        obstacles = [str(error)]
    refusal = "; ".join(filter(None, [driven(pipeline), *obstacles]))
    command = ["pipelines", "rewind", pipeline.name, "--to", str(to)]
    return RewindPlan(
        to, **taken, steps=steps, refusal=refusal, commands=[manage(*command, "--dry-run"), manage(*command)]
    )


def reprocess_acts(pipeline: PipelineStatus) -> Iterator[Act]:
    """Yield what can be done about a reprocess: begin one, or continue or abort it, or put the former states back."""
    run = ["run_pipeline", pipeline.name]
    again = pipeline.reprocess
    if again is None:
        says = (
            "Counts the input again from its start with the present code, beside the states that are served; swaps "
            "them in one transaction, and goes on as the driver. The former states are kept for a day."
        )
        yield Act("Reprocess all states", says, manage(*run, "--reprocess"))
    elif again.status not in ("starting", "running"):
        rows = f"It goes on after the {again.rows:,} rows that it has counted."
        yield Act("Continue the reprocess", rows, manage(*run, "--reprocess"))
    if again is not None:
        gone = f"Drops what it has counted, {again.rows:,} rows in {again.batches:,} batches. The states served stay."
        under_way = "it runs: stop its process first" if again.status in ("starting", "running") else ""
        yield Act("Abort the reprocess", gone, manage(*run, "--abort-reprocess"), under_way)
    last = pipeline.last_reprocess
    if last is not None and last.kept_until is not None:
        back = "Puts the states back that the last reprocess replaced, with the batch that they were at."
        yield Act("Take the reprocess back", back, manage(*run, "--roll-back"), driven(pipeline))


def rebuild_act(pipeline: PipelineStatus, state: StateSummary) -> Act:
    says = (
        f"Replaces about {state.keys_estimate:,} rows of {state.name} from its changelog, as of the committed batch. "
        "Until it has ended, the state is not served; a run that was cut short can be continued."
    )
    refusal = driven(pipeline) if state.changelog else "it has no changelog"
    return Act(f"Rebuild {state.name}", says, manage("rebuild", state.name), refusal)


def recovery_acts(pipeline: PipelineStatus) -> list[Act]:
    held, name = driven(pipeline), pipeline.name
    checkpoint = f"Writes the checkpoint that the ledger's offsets tell, where it is lost or was restored. {RECOVERY}"
    lost = f"Goes on after input that its source has lost, and records the gap among the dead letters. {RECOVERY}"
    return [
        Act("Restore the checkpoint", checkpoint, manage("pipelines", "restore-checkpoint", name), held),
        Act("Skip lost input", lost, manage("pipelines", "skip-lost", name), held),
    ]


def driven(pipeline: PipelineStatus) -> str:
    """Return why what needs the pipeline for itself would be refused; empty if no driver holds it."""
    return f"the driver of {pipeline.name} is {pipeline.status}: stop it first" if pipeline.is_driven else ""


def manage(*words: str) -> str:
    return shlex.join(["tidegauge", *words])
