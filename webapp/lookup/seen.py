"""What a confined API key sees of pipelines, batches and runs: what concerns its states, and no name of another."""

from typing import Any

from state_backends.errors import UnknownPipelineError
from webapp.api_keys.confinement import Confinement
from webapp.states import runs, selectors
from webapp.states.errors import UnknownRunError
from webapp.states.models import MaintenanceRun
from webapp.states.representations import batch_document, pipeline_document
from webapp.states.selectors import PipelineStatus


def seen_pipelines(confined: Confinement) -> list[dict[str, Any]]:
    return [_pipeline(pipeline, confined) for pipeline in selectors.pipelines() if _sees(confined, pipeline)]


def seen_pipeline(name: str, confined: Confinement) -> dict[str, Any]:
    """Raises UnknownPipelineError, also for a pipeline of none of the API key's states."""
    pipeline = selectors.pipeline(name)
    if not _sees(confined, pipeline):
        raise UnknownPipelineError(f"pipeline {name!r} does not exist")
    return _pipeline(pipeline, confined)


def seen_batches(name: str, limit: int, confined: Confinement) -> list[dict[str, Any]]:
    """Raises UnknownPipelineError."""
    if not confined.is_free:
        seen_pipeline(name, confined)
    return [_batch(batch_document(batch), confined) for batch in selectors.batches(name, limit)]


def seen_run(run_id: int, confined: Confinement) -> MaintenanceRun:
    """Raises UnknownRunError, also for a run of another state than the API key's."""
    run = runs.run(run_id)
    if not confined.sees(run.state_id):
        raise UnknownRunError(f"there is no maintenance run {run_id}")
    return run


def _sees(confined: Confinement, pipeline: PipelineStatus) -> bool:
    return not confined.states or any(confined.sees(state) for state in pipeline.states)


def _pipeline(pipeline: PipelineStatus, confined: Confinement) -> dict[str, Any]:
    document = pipeline_document(pipeline)
    return document | {"states": [state for state in pipeline.states if confined.sees(state)]}


def _batch(document: dict[str, Any], confined: Confinement) -> dict[str, Any]:
    by_state = ("keys_written", "tasks")
    seen = {name: {state: told for state, told in document[name].items() if confined.sees(state)} for name in by_state}
    return document | seen
