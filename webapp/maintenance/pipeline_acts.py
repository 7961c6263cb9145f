"""Actions on a pipeline that need Spark or a stopped driver: what each would do now, and its command.

They run from the command line, because a web process does not load Spark. Pages show beforehand what can be known
without Spark: why an action would be refused, what a rewind undoes and how it does so for each state, and which
operations are running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidegauge.state_backends.errors import RewindError, TidegaugeError
from tidegauge.state_backends.repair.rewind import Rewind
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.state_summary import StateSummary

RECOVERY = "See docs/recovery.md for when this is needed."


@dataclass(frozen=True)
class Act:
    """An action that a command carries out. refusal: why it would be refused now; empty if no reason is known."""

    title: str
    says: str
    command: str
    refusal: str = ""


@dataclass(frozen=True)
class Work:
    """An operation that has the lock of a state's tables now; see state_backends/ledger/state_lock.py."""

    state: str
    work: str
    host: str
    pid: int
    since: datetime


@dataclass(frozen=True)
class RewindPlan:
    """What a rewind to batch `to` undoes. rows: the rows of the undone batches; letters: their dead letters.

    steps: how each state that can go back does so. refusal: why it would be refused, as far as the ledger knows.
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
    start, command = pipeline.start, ["pipelines", "rewind", pipeline.name, "--to", str(to)]
    return RewindPlan(
        to,
        **taken,
        steps=steps,
        refusal=refusal,
        commands=[start.command(*command, "--dry-run"), start.command(*command)],
    )


def reprocess_acts(pipeline: PipelineStatus) -> Iterator[Act]:
    """Yield the actions that are possible now: begin, continue or abort a reprocess, or put the former states back."""
    again = pipeline.reprocess

    def run(option: str) -> str:
        return pipeline.start.command("run", pipeline.name, option)

    if again is None:
        says = (
            "Counts the input again from its start with the present code, beside the served states; then swaps them in "
            "one transaction and continues as the driver. The former states are kept for a day."
        )
        yield Act("Reprocess all states", says, run("--reprocess"))
    elif again.status not in ("starting", "running"):
        rows = f"It continues after the {again.rows:,} rows that it has counted."
        yield Act("Continue the reprocess", rows, run("--reprocess"))
    if again is not None:
        gone = f"Drops what it has counted, {again.rows:,} rows in {again.batches:,} batches. The served states stay."
        under_way = "it runs: stop its process first" if again.status in ("starting", "running") else ""
        yield Act("Abort the reprocess", gone, run("--abort-reprocess"), under_way)
    last = pipeline.last_reprocess
    if last is not None and last.kept_until is not None:
        back = "Restores the states that the last reprocess replaced, at the batch that they had reached."
        yield Act("Take the reprocess back", back, run("--roll-back"), driven(pipeline))


def rebuild_act(pipeline: PipelineStatus, state: StateSummary) -> Act:
    says = (
        f"Replaces about {state.keys_estimate:,} rows of {state.name} from its changelog, as of the committed batch. "
        "The state is not served until the rebuild ends; an interrupted rebuild can be continued."
    )
    refusal = driven(pipeline) if state.changelog else "it has no changelog"
    return Act(f"Rebuild {state.name}", says, pipeline.start.command("rebuild", state.name), refusal)


def recovery_acts(pipeline: PipelineStatus) -> list[Act]:
    held, name, command = driven(pipeline), pipeline.name, pipeline.start.command
    checkpoint = f"Rebuilds the checkpoint from the ledger's offsets, if it is lost or was restored. {RECOVERY}"
    lost = f"Continues after input that its source has lost, and records the gap among the dead letters. {RECOVERY}"
    return [
        Act("Restore the checkpoint", checkpoint, command("pipelines", "restore-checkpoint", name), held),
        Act("Skip lost input", lost, command("pipelines", "skip-lost", name), held),
    ]


def driven(pipeline: PipelineStatus) -> str:
    """Return why an action that needs the pipeline without a driver would be refused; empty if it has none."""
    return f"the driver of {pipeline.name} is {pipeline.status}: stop it first" if pipeline.is_driven else ""
