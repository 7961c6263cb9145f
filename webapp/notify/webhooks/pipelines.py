"""What a webhook is told of pipelines: that one fails, is late, or has recovered, each once."""

from typing import Any

from tidegauge.webapp.catalog.limits import Limits
from tidegauge.webapp.catalog.queries import PipelineStatus
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.webhooks.models import Webhook
from tidegauge.webapp.notify.webhooks.outbox import Message, News

OK, LATE, FAILING, FAILED = "ok", "late", "failing", "failed"

CONDITIONS = {"failed": FAILED, "lost": FAILED, "retrying": FAILING, "stale": LATE}

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
    # Below the half of it, so that a lag about the limit is not a message every few seconds.
    most = late_seconds / 2 if late_seconds is not None and before == LATE else late_seconds
    condition = CONDITIONS.get(verdict(pipeline, Limits(most, rejected_share=None)).name, OK)
    if condition in (FAILED, FAILING):
        return condition
    if pipeline.status not in ("running", "finished"):
        return before  # it starts, or somebody has stopped or paused it, which mends nothing
    is_unknown = pipeline.lag_seconds is None and late_seconds is not None
    return LATE if before == LATE and is_unknown else condition


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
