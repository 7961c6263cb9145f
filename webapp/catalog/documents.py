"""JSON documents of pipelines, states, batches and runs, for the API and the commands."""

from dataclasses import asdict
from typing import Any

from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.queries import PipelineStatus, StateSummary
from tidegauge.webapp.catalog.series import PipelineSeries, TimeRange
from tidegauge.webapp.catalog.verdicts import verdict


def pipeline_document(pipeline: PipelineStatus) -> dict[str, Any]:
    found = verdict(pipeline)
    return asdict(pipeline) | {"verdict": found.name, "verdict_reason": found.reason}


def state_document(state: StateSummary) -> dict[str, Any]:
    document = asdict(state)
    ttl = document.pop("ttl")
    return document | {"ttl_seconds": None if ttl is None else ttl.total_seconds()}


def batch_document(batch: BatchSummary) -> dict[str, Any]:
    return asdict(batch)


def range_document(asked: TimeRange) -> dict[str, Any]:
    return {"from": asked.since, "to": asked.until, "step_seconds": asked.step_seconds}


def series_document(found: PipelineSeries) -> dict[str, Any]:
    own = {"pipeline": found.pipeline, "epoch": found.epoch, "txid": found.txid, "times": found.times}
    return own | range_document(found.range) | {"series": found.series, "phases": found.phases}


def run_document(run: MaintenanceRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "kind": run.kind,
        "state": run.state_id,
        "status": run.status,
        "requested_by": run.requested_by,
        "requested_at": run.requested_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "cancel_requested": run.cancel_requested,
        "progress": run.progress.get("steps", []),
        "before": run.before,
        "after": run.after,
        "error": run.error,
    }
