"""What /api/schema says of pipelines, states and maintenance, call by call."""

from typing import Any

from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers

from webapp.api_keys.models import Scope
from webapp.lookup.documentation.parameters import CONDITIONAL, LIMIT, LOCATION, query
from webapp.lookup.documentation.refusals import UNCHANGED, answers
from webapp.lookup.documentation.registry import BatchSerializer, PipelineSerializer, RunSerializer, StateSerializer
from webapp.states.models import MaintenanceRun


def _listed(name: str, child: type[serializers.Serializer]) -> serializers.Serializer:
    return inline_serializer(f"{name.capitalize()}List", {name: child(many=True)})


def _run_accepted(what: str, *errors: int) -> dict[Any, Any]:
    return answers(202, RunSerializer, *errors, description=what)


states = extend_schema(
    operation_id="list_states",
    tags=["states"],
    summary="All states",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("states", StateSerializer)) | UNCHANGED,
)
state = extend_schema(
    operation_id="get_state",
    tags=["states"],
    summary="One state",
    parameters=CONDITIONAL,
    responses=answers(200, StateSerializer, 404) | UNCHANGED,
)
pipelines = extend_schema(
    operation_id="list_pipelines",
    tags=["pipelines"],
    summary="All pipelines",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("pipelines", PipelineSerializer)) | UNCHANGED,
)
pipeline = extend_schema(
    operation_id="get_pipeline",
    tags=["pipelines"],
    summary="One pipeline",
    parameters=CONDITIONAL,
    responses=answers(200, PipelineSerializer, 404) | UNCHANGED,
)
batches = extend_schema(
    operation_id="list_batches",
    tags=["pipelines"],
    summary="A pipeline's batches, the newest first",
    parameters=[LIMIT, *CONDITIONAL],
    responses=answers(200, _listed("batches", BatchSerializer), 400, 404) | UNCHANGED,
)
pause = extend_schema(
    operation_id="pause_pipeline",
    tags=["pipelines"],
    summary="Pause a pipeline",
    description="Its driver ends the batch at hand, then waits; so does one that starts later. Asking twice changes "
    f"nothing. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline, with the wish noted."),
)
resume = extend_schema(
    operation_id="resume_pipeline",
    tags=["pipelines"],
    summary="Resume a paused pipeline",
    description=f"Its driver goes on within a second. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline, with the wish noted."),
)
compaction = extend_schema(
    operation_id="compact_state",
    tags=["maintenance"],
    summary="Compact a state",
    description=f"Asks the workers to drop what nobody could need any more. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    parameters=[LOCATION],
    responses=_run_accepted("The run, queued.", 404, 409),
)
expiry = extend_schema(
    operation_id="expire_state",
    tags=["maintenance"],
    summary="Free expired rows of a state",
    description=f"Asks the workers to free the rows whose time to live has run out. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    parameters=[LOCATION],
    responses=_run_accepted("The run, queued.", 404, 409),
)
runs = extend_schema(
    operation_id="list_runs",
    tags=["maintenance"],
    summary="Maintenance runs, the newest first",
    parameters=[
        query("state", str),
        query("kind", str, enum=MaintenanceRun.Kind.values),
        query("status", str, enum=MaintenanceRun.Status.values),
        LIMIT,
        *CONDITIONAL,
    ],
    responses=answers(200, _listed("runs", RunSerializer), 400) | UNCHANGED,
)
run = extend_schema(
    operation_id="get_run",
    tags=["maintenance"],
    summary="One maintenance run",
    parameters=CONDITIONAL,
    responses=answers(200, RunSerializer, 404) | UNCHANGED,
)
cancel = extend_schema(
    operation_id="cancel_run",
    tags=["maintenance"],
    summary="Cancel a maintenance run",
    description=f"A queued run ends at once, a running one after the page it is at. Scope: {Scope.MAINTAIN.value}.",
    parameters=[LOCATION],
    responses=_run_accepted("The run, called off.", 404, 409),
)
