"""The verdict on a pipeline: how it is doing in a word or two, why, and what to do about it.

Pages, /readyz, metrics and webhooks all ask here, so that they never disagree. The first rule that applies decides: a
pipeline that failed is `failed` however far it is behind. No verdict quotes input or a driver's messages.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegauge.webapp.catalog.limits import Limits, limits_of
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.core.writing import number, percent

# How bad each verdict is: bad, watch, good or calm.
TONES = {
    "failed": "bad",
    "lost": "bad",
    "stale": "bad",
    "reprocess failed": "bad",
    "retrying": "watch",
    "rejecting": "watch",
    "source alarm": "watch",
    "falling behind": "watch",
    "stopped": "watch",
    "paused": "watch",
    "catching up": "good",
    "caught up": "good",
    "running": "good",
    "starting": "calm",
    "finished": "calm",
    "never started": "calm",
}
WORST_FIRST = list(TONES)

# Verdicts with which the served values are behind the input, or will be, because no driver makes progress.
STALE = {"failed", "lost", "stale", "retrying", "stopped", "never started"}

CHANGES = {1: "growing", 0: "steady", -1: "shrinking"}
MORE_INPUT = "Input arrives faster than it is counted, or a batch hangs: compare rows per second with pending input."


@dataclass(frozen=True)
class Verdict:
    """reason: a clause without a full stop. remedy: a sentence, with commands between backticks; may be empty."""

    name: str
    reason: str
    remedy: str = ""

    @property
    def tone(self) -> str:
        return TONES[self.name]

    @property
    def is_problem(self) -> bool:
        return self.tone in ("bad", "watch")

    @property
    def is_stale(self) -> bool:
        return self.name in STALE


def verdict(pipeline: PipelineStatus, limits: Limits | None = None) -> Verdict:
    """Return the verdict on a pipeline. limits: in place of the pipeline's own limits."""
    limits = limits or limits_of(pipeline.name)
    return next(found for rule in RULES if (found := rule(pipeline, limits)))


def worst_first(pipelines: Iterable[PipelineStatus]) -> list[PipelineStatus]:
    """Return the pipelines by verdict, then by name, so that the order is stable between refreshes."""
    return sorted(pipelines, key=lambda each: (_rank(verdict(each)), each.name))


def _rank(found: Verdict) -> int:
    # All good verdicts rank the same, so that pipelines do not swap places with every batch.
    return WORST_FIRST.index("catching up" if found.tone == "good" else found.name)


def _without_driver(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    match pipeline.status:
        case "failed":
            return Verdict("failed", "its driver has given up", f"Correct the cause, then {_again(pipeline)}")
        case "lost":
            return Verdict("lost", "its driver stopped responding", f"To continue, {_again(pipeline)}")
    return None


def _again(pipeline: PipelineStatus) -> str:
    """Return the rest of a sentence that says how to start the driver again."""
    command = pipeline.start.again(pipeline.name)
    if command:
        return f"start it again: `{command}`"
    return f"start its application {pipeline.start.program[0]} again, in {pipeline.start.folder}"


def _retrying(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    if pipeline.status != "restarting" and not (pipeline.failures and pipeline.status == "running"):
        return None
    times = f" {pipeline.failures} times in a row" if pipeline.failures > 1 else ""
    return Verdict("retrying", f"it failed{times} and tries again", "Nothing is committed until an attempt succeeds.")


def _stale(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    lag, most = pipeline.lag_seconds, limits.stale_seconds
    if pipeline.status not in ("running", "starting") or lag is None or most is None or lag <= most:
        return None
    reason = f"its oldest input has waited for {_length(lag)}, more than {_length(most)}"
    left = pipeline.trend.left(_pending(pipeline)) if pipeline.trend else ""
    remedy = left if left else "Compare rows per second with pending input; a batch may hang."
    return Verdict("stale", reason, f"{remedy[0].upper()}{remedy[1:]}{'.' if left else ''}")


def _reprocess_failed(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    if pipeline.reprocess is None or pipeline.reprocess.status not in ("failed", "lost"):
        return None
    resume = pipeline.start.command("run", pipeline.name, "--reprocess")
    return Verdict("reprocess failed", "the reprocess of its states has ended early", f"Continue it: `{resume}`")


def _rejecting(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    share, most = pipeline.rejected_share, limits.rejected_share
    if share is None or most is None or share <= most or not pipeline.is_driven:
        return None
    reason = f"{percent(share)} of the rows of recent batches are dead letters, more than {percent(most)}"
    return Verdict("rejecting", reason, "Dead letters show line and reason; correct the source or the pipeline.")


def _source_alarm(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    if not (pipeline.pending or {}).get("alarm"):
        return None
    return Verdict("source alarm", "its source needs attention", "The pipeline's page says what the source reports.")


def _by_status(pipeline: PipelineStatus, limits: Limits) -> Verdict | None:
    match pipeline.status:
        case "stopped":
            return Verdict("stopped", "its driver was stopped", f"To continue, {_again(pipeline)}")
        case "paused":
            return Verdict("paused", "it was paused", "Input waits at the source until the pipeline is resumed.")
        case "never started":
            start = pipeline.start.command("run", pipeline.name)
            return Verdict("never started", "it was never started", f"Start it: `{start}`")
        case "starting":
            return Verdict("starting", "its driver starts")
        case "finished":
            return Verdict("finished", "its driver has read all input and ended")
    return None


def _by_lag(pipeline: PipelineStatus, limits: Limits) -> Verdict:
    lag, pending, trend = pipeline.lag_seconds, _pending(pipeline), pipeline.trend
    if lag is None and not pending:
        return Verdict("running", "its source does not report unread input")
    if lag == 0:
        return Verdict("caught up", "it has counted all input")
    if not pipeline.committed_txid:
        return Verdict("starting", "its first batch is running")
    if trend is None or not trend.is_behind(lag):
        return Verdict("catching up", "it is counting new input")
    change, left = trend.change(lag, pending), trend.left(pending)
    behind = f"{number(pending)} {trend.unit} wait" if lag is None else f"behind {_length(lag)}"
    said = f"{behind}, {CHANGES[change]}" if trend.is_known else behind
    reason = "; ".join(filter(None, [said, left]))
    # While files that landed together are counted, the lag grows to the end. That is no problem if it ends in time.
    seconds, limit = trend.seconds_left(pending), limits.stale_seconds
    is_in_time = lag is not None and seconds is not None and limit is not None and lag + seconds <= limit
    if change > 0 and not is_in_time:
        return Verdict("falling behind", reason, "" if left else MORE_INPUT)
    return Verdict("catching up", reason)


def _pending(pipeline: PipelineStatus) -> int:
    return int((pipeline.pending or {}).get("count") or 0)


Rule = Callable[[PipelineStatus, Limits], Verdict | None]
RULES: list[Rule] = [
    _without_driver, _retrying, _stale, _reprocess_failed, _rejecting, _source_alarm, _by_status, _by_lag,
]  # fmt: skip


def _length(seconds: float) -> str:
    """Return a rounded duration, so that the text of a page does not change at every refresh."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min" if seconds < 7200 else f"{seconds // 3600:.0f} h"
