"""What exists and how it is doing: states, pipelines and their batches; pausing and resuming a pipeline."""

from functools import partial

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import STEER_PIPELINES, key_scope
from tidegauge.webapp.api import general_openapi, state_openapi
from tidegauge.webapp.api.api_view import ApiView, link_to_next, requester, visible_to
from tidegauge.webapp.api.calls import call, listed, page_of
from tidegauge.webapp.api.general_openapi import BUILDING, variant
from tidegauge.webapp.api.idempotent import idempotent, once
from tidegauge.webapp.api.list_cursor import ListQuery
from tidegauge.webapp.api.one_key import spec_of
from tidegauge.webapp.api.openapi import NEXT, ONCE
from tidegauge.webapp.api.parameters import ListParameters, SeriesParameters, read_range
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.documents import (
    BatchSerializer,
    PipelineSerializer,
    PipelineSeriesSerializer,
    StateSerializer,
)
from tidegauge.webapp.maintenance import operations

WANTED = "The pipeline; `wanted` is what was requested."


class StatesView(ApiView):
    @call("list_states", "states", listed("states", StateSerializer), "The states.")
    def get(self, request: Request) -> Response:
        """List the states.

        All that the caller may read, each as `GET /states/{name}` answers it.
        """
        return Response({"states": StateSerializer(visible_to(request).states(), many=True).data})


class StateView(ApiView):
    @call("get_state", "states", StateSerializer, "The state.")
    def get(self, request: Request, name: str) -> Response:
        """Describe a state.

        Its key columns and measures with their types, where it is stored, how many keys and bytes it has, how long
        entries live, and the batch that lookups show now.
        """
        return Response(StateSerializer(visible_to(request).state(name)).data)


class StateSchemaView(ApiView):
    @call("get_state_openapi", "states", OpenApiTypes.OBJECT, "An OpenAPI document.")
    def get(self, request: Request, name: str) -> Response:
        """Describe the calls of a state in OpenAPI.

        OpenAPI 3.1 for this state only, from which clients can be generated: its keys with the types of its key
        columns, and its values with its measures.
        """
        spec = spec_of(name, key_scope(request))
        with BUILDING:
            general = general_openapi.document(variant())
        return Response(state_openapi.document(general, spec))


class PipelinesView(ApiView):
    @call("list_pipelines", "pipelines", listed("pipelines", PipelineSerializer), "The pipelines.")
    def get(self, request: Request) -> Response:
        """List the pipelines.

        All with a state that the caller may read, each as `GET /pipelines/{name}` answers it.
        """
        return Response({"pipelines": PipelineSerializer(visible_to(request).pipelines(), many=True).data})


class PipelineView(ApiView):
    @call("get_pipeline", "pipelines", PipelineSerializer, "The pipeline.")
    def get(self, request: Request, name: str) -> Response:
        """Show the status of a pipeline.

        Whether its driver runs, and why not; the last committed batch; how much input is not read yet; how many seconds
        the states are behind it.
        """
        return Response(PipelineSerializer(visible_to(request).pipeline(name)).data)


class BatchesView(ApiView):
    parameters = {"GET": ListParameters}

    @call("list_batches", "pipelines", page_of("batches", BatchSerializer), "A page.", headers=[NEXT])
    def get(self, request: Request, name: str) -> Response:
        """List the batches of a pipeline, newest first, in pages.

        The committed ones, and the one that is being written: how many seconds each took, how many rows it read and how
        many keys it wrote. Send `next` of a page as `cursor` to get the following one; it is null on the last page.
        """
        asked = ListParameters.read(request.query_params.dict())
        query, limit = ListQuery.read(f"batches of {name}", asked), asked["limit"]
        found = visible_to(request).batches(name, limit + 1, query.before)
        batches, cursor = query.page(found, limit, lambda batch: batch.txid)
        document = {"batches": BatchSerializer(batches, many=True).data, "next": cursor}
        return Response(document, headers=link_to_next(request, cursor))


class PipelineSeriesView(ApiView):
    parameters = {"GET": SeriesParameters}

    @call("get_pipeline_series", "pipelines", PipelineSeriesSerializer, "The series.")
    def get(self, request: Request, name: str) -> Response:
        """Show what a pipeline did over time.

        Rows per second, seconds of batches and of their parts, freshness, dead letters: one point for the batches of
        each step of time, at the commit of the last one. The step is the shortest of 1, 2, 5, 10 or 30 seconds, minutes
        or longer, that gives no more than `points`. A pause is marked by a time with nulls.
        """
        asked = read_range(SeriesParameters.read(request.query_params.dict()))
        return Response(PipelineSeriesSerializer(visible_to(request).series(name, asked)).data)


class PauseView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @call("pause_pipeline", "pipelines", PipelineSerializer, WANTED, 422, status=202, headers=ONCE)
    def post(self, request: Request, name: str) -> Response:
        """Pause a pipeline.

        Asks its driver to stop after the current batch, and to start no other one until it is resumed, also after a
        restart. The answer comes at once: `status` is `paused` when the driver has stopped. A pipeline that is paused
        stays paused.
        """
        key_scope(request).check_unrestricted()
        act = partial(operations.pause_pipeline, name=name, requested_by=requester(request))
        return once(idempotent(request), act, partial(_accepted, name))


class ResumeView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @call("resume_pipeline", "pipelines", PipelineSerializer, WANTED, 422, status=202, headers=ONCE)
    def post(self, request: Request, name: str) -> Response:
        """Resume a paused pipeline.

        Asks its driver to go on, which it does within a second. A pipeline that is not paused stays as it is.
        """
        key_scope(request).check_unrestricted()
        act = partial(operations.resume_pipeline, name=name, requested_by=requester(request))
        return once(idempotent(request), act, partial(_accepted, name))


def _accepted(name: str) -> Response:
    return Response(PipelineSerializer(queries.pipeline(name)).data, status=202)
