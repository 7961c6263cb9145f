"""Batches and dead letters further back than the newest ones: pages by number, and one batch with all that is known."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from webapp.states.models import Batch, DeadLetter
from webapp.states.queries import BatchSummary, DeadLetterSummary, PipelineStatus


@dataclass(frozen=True)
class BatchDetail:
    """offsets: what the source was read up to, as the source spells it; None where it has none."""

    summary: BatchSummary
    batch_id: int
    fence: int
    started_at: datetime
    offsets: Any


@dataclass(frozen=True)
class DeadLetterPage:
    """following: `before` of the next page; None on the last one."""

    letters: list[DeadLetterSummary]
    following: tuple[int, int] | None


def batch_page(pipeline: PipelineStatus, *, before: int | None, limit: int) -> list[BatchSummary]:
    """Return the newest batches, or those older than `before`, the newest first."""
    wanted = Batch.objects.filter(pipeline=pipeline.name)
    if before is not None:
        wanted = wanted.filter(txid__lt=before)
    return [_summary(batch, pipeline) for batch in wanted.order_by("-txid")[:limit]]


def batch_detail(pipeline: PipelineStatus, txid: int) -> BatchDetail | None:
    """Return one batch; None for one that is not there yet, or that compaction has forgotten."""
    batch = Batch.objects.filter(pipeline=pipeline.name, txid=txid).first()
    if batch is None:
        return None
    return BatchDetail(_summary(batch, pipeline), batch.batch_id, batch.fence, batch.started_at, batch.offsets)


def dead_letter_page(
    pipeline: PipelineStatus, *, state: str, txid: int | None, before: tuple[int, int] | None, limit: int
) -> DeadLetterPage:
    """Return dead letters of committed batches, newest first.

    state, txid: of this one alone; empty, None: of all. before: batch and id of the last letter of the page before.
    """
    wanted = DeadLetter.objects.filter(pipeline=pipeline.name, txid__lte=pipeline.committed_txid)
    if state:
        wanted = wanted.filter(state=state)
    if txid is not None:
        wanted = wanted.filter(txid=txid)
    if before is not None:
        wanted = _older(wanted, *before)
    found = [_letter(letter) for letter in wanted.order_by("-txid", "-id")[: limit + 1]]
    shown = found[:limit]
    return DeadLetterPage(shown, (shown[-1].txid, shown[-1].id) if len(found) > limit else None)


def _older(letters: QuerySet[DeadLetter], txid: int, letter_id: int) -> QuerySet[DeadLetter]:
    return letters.filter(txid__lte=txid).exclude(txid=txid, id__gte=letter_id)


def _summary(batch: Batch, pipeline: PipelineStatus) -> BatchSummary:
    is_committed = batch.txid <= pipeline.committed_txid
    seconds = (batch.committed_at - batch.started_at).total_seconds() if batch.committed_at else None
    return BatchSummary(
        pipeline=batch.pipeline_id,
        txid=batch.txid,
        attempt=batch.attempt,
        status="committed" if is_committed else "open",
        batch_time=batch.batch_time,
        committed_at=batch.committed_at,
        seconds=seconds,
        rows_in=batch.rows_in,
        keys_written=batch.keys_written or {},
        dead_letters=batch.dead_letters,
        late=batch.late,
        dropped=batch.dropped,
        tasks=batch.tasks or {},
        watermark=batch.watermark,
        metrics=batch.metrics or {},
    )


def _letter(letter: DeadLetter) -> DeadLetterSummary:
    return DeadLetterSummary(
        id=letter.id,
        pipeline=letter.pipeline_id,
        txid=letter.txid,
        state=letter.state,
        source=letter.source,
        line_number=letter.line_number,
        line=letter.line,
        reason=letter.reason,
        at=letter.at,
    )
