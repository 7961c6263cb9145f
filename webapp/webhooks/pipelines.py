"""What a webhook is told of pipelines: that one fails, is late, or has recovered, each once."""

from typing import Any

from webapp.states.queries import PipelineStatus
from webapp.states.visible import Visible
from webapp.webhooks.models import Webhook
from webapp.webhooks.outbox import Message, News

OK, LATE, FAILING, FAILED = "ok", "late", "failing", "failed"

# Of messages of drivers, which may quote the input.
MOST_CHARACTERS = 1_000


def find_pipelines(webhook: Webhook, position: dict[str, str] | None, room: int) -> News:
    """Return what has changed, and the condition of each pipeline that the webhook was told of."""
    told: dict[str, str] = position or {}
    now: dict[str, str] = {}
    messages: list[Message] = []
    for pipeline in Visible(webhook.scope).pipelines():
        before = told.get(pipeline.name, OK)
        after = now[pipeline.name] = _condition(pipeline, before, webhook.late_seconds)
        if after != before and len(messages) < room:
            messages.append(Message("pipeline.recovered" if after == OK else f"pipeline.{after}", _data(pipeline)))
        elif after != before:
            now[pipeline.name] = before
    return News(messages, now)


def _condition(pipeline: PipelineStatus, before: str, late_seconds: float | None) -> str:
    if pipeline.status in ("failed", "lost"):
        return FAILED
    if pipeline.failures and pipeline.is_driven:
        return FAILING
    if pipeline.status not in ("running", "finished"):
        return before  # it starts, or somebody has stopped or paused it, which mends nothing
    lag = pipeline.lag_seconds
    if late_seconds is None or lag is None:
        return OK if before != LATE or late_seconds is None else LATE
    # Below the half of it, so that a lag about the limit is not a message every few seconds.
    return LATE if lag > (late_seconds / 2 if before == LATE else late_seconds) else OK


def _data(pipeline: PipelineStatus) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "states": pipeline.states,
        "status": pipeline.status,
        "message": pipeline.message[:MOST_CHARACTERS],
        "failures": pipeline.failures,
        "lag_seconds": pipeline.lag_seconds,
        "epoch": pipeline.epoch,
        "txid": pipeline.committed_txid,
        "as_of": pipeline.committed_time,
    }
