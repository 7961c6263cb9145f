"""The calls for saved queries: list them, run one, describe one."""

from contextlib import nullcontext
from typing import Any

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.concurrency import SEARCHES, client_of
from tidegauge.webapp.accounts.permissions import KeyScope, key_scope
from tidegauge.webapp.api.api_view import ApiView
from tidegauge.webapp.api.calls import call, listed
from tidegauge.webapp.api.fields import NumberParameter, TextParameter, TimeParameter
from tidegauge.webapp.api.openapi import OUT_OF_REACH, described
from tidegauge.webapp.api.parameters import check_parameters
from tidegauge.webapp.api.requests import RequestSerializer, when_of
from tidegauge.webapp.api.saved_queries import selectors
from tidegauge.webapp.api.saved_queries.answers import SavedAnswerSerializer, SavedQuerySerializer
from tidegauge.webapp.api.saved_queries.definition import Definition
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.openapi import document
from tidegauge.webapp.api.saved_queries.parameters import ParameterError
from tidegauge.webapp.api.saved_queries.run import run
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.documents import LARGEST_TXID
from tidegauge.webapp.core.metrics import looked_up
from tidegauge.webapp.core.pools import saved_query_ran


class RunParameters(RequestSerializer):
    """Parameters that every saved query has, beside its own."""

    at_txid = NumberParameter(0, LARGEST_TXID, required=False)
    at_time = TimeParameter()
    cursor = TextParameter()


VALUES = OpenApiParameter(
    "values",
    {"type": "object", "additionalProperties": {"type": "string"}},
    OpenApiParameter.QUERY,
    description="The parameters of the query, each by its own name; a parameter with many values is repeated. "
    "`at_txid` is a batch, `at_time` a time instead, `cursor` the `next` of the page before",
    style="form",
    explode=True,
)
GONE = {
    410: described(
        410, "The query was withdrawn, a state or measure that it reads is gone, or the batch is.", OUT_OF_REACH
    )
}


class SavedQueriesView(ApiView):
    for_saved_queries = True

    @call(
        "list_saved_queries",
        "saved queries",
        listed("saved_queries", SavedQuerySerializer, "SavedQueryList"),
        "The queries.",
    )
    def get(self, request: Request) -> Response:
        """List the saved queries.

        All whose states the caller may read, each with the parameters of its newest published version.
        """
        scope = key_scope(request)
        return Response({"saved_queries": [_listed(query, scope) for query in selectors.published(scope)]})


class SavedQueryView(ApiView):
    for_saved_queries = True
    which = "the newest published version"
    operation = "run_saved_query"

    def check_parameters(self, request: Any) -> None:
        """Each query has parameters of its own, which `_run` checks."""

    @call(
        "$operation", "saved queries", SavedAnswerSerializer, "The answers.", 409, 410, headers=[VALUES], instead=GONE
    )
    def get(self, request: Request, name: str, version: int | None = None) -> Response:
        """Run $which of a saved query.

        Answers the reads of the query, in the order of its definition, all from one committed batch. The parameters are
        those that the query declares; its own OpenAPI document, `/saved-queries/{name}/openapi`, has their types and
        that of the answer. A parameter that is missing, unknown or of another type is a 400.
        """
        return _run(request, name, version)


class SavedQueryVersionView(SavedQueryView):
    which = "one version"
    operation = "run_saved_query_version"


class SavedQuerySchemaView(ApiView):
    for_saved_queries = True
    which = "a saved query"
    operation = "get_saved_query_openapi"

    @call("$operation", "saved queries", OpenApiTypes.OBJECT, "An OpenAPI document.", 410, instead=GONE)
    def get(self, request: Request, name: str, version: int | None = None) -> Response:
        """Describe $which in OpenAPI.

        OpenAPI 3.1 for this query only, from which clients can be generated: its parameters with types and defaults,
        and its answer with the key columns and measures of the states.
        """
        return _described(request, name, version)


class SavedQueryVersionSchemaView(SavedQuerySchemaView):
    which = "one version of a saved query"
    operation = "get_saved_query_version_openapi"


def _run(request: Request, name: str, version: int | None) -> Response:
    scope = key_scope(request)
    query = selectors.find(name, version, scope)
    definition, given = Definition.parse(query.definition), request.query_params
    saved_query_ran(query.name, version, is_search=definition.is_search)
    own = ["at_time", "at_txid", *(["cursor"] if definition.is_paged else [])]
    check_parameters(given, [*definition.parameters, *own])
    asked = RunParameters.read({name: given[name] for name in own if name in given})
    try:
        values = definition.read(given.getlist)
    except ParameterError as error:
        raise ParseError(f"query {query.name!r}: {error}") from None
    with SEARCHES.held(client_of(request)) if definition.is_search else nullcontext():
        answer = run(query, definition, values, scope, when_of(asked), cursor=asked.get("cursor"))
    for read in definition.reads:
        looked_up(request, read.state, len(read.keys or ()))
    return Response(answer)


def _described(request: Request, name: str, version: int | None) -> Response:
    scope = key_scope(request)
    query = selectors.find(name, version, scope)
    definition = Definition.parse(query.definition)
    if found := selectors.problems_of(definition):
        raise selectors.BrokenQueryError(query, found, scope)
    specs = readers.read(lambda conn: {state: readers.reader(conn, state).spec for state in definition.states})
    return Response(document(query, definition, specs))


def _listed(query: SavedQuery, scope: KeyScope) -> dict[str, Any]:
    definition = Definition.parse(query.definition)
    return {
        "name": query.name,
        "version": query.version,
        "description": query.description,
        "states": definition.states,
        "parameters": [
            {
                "name": parameter.name,
                "type": parameter.type.name,
                "required": parameter.is_required,
                "many": parameter.many,
                "description": parameter.description,
            }
            for parameter in definition.parameters.values()
        ],
        "published_at": query.published_at,
        "published_by": query.published_by if scope.is_unrestricted else "",
        "url": reverse("lookup:saved_query", args=[query.name]),
        "openapi": reverse("lookup:saved_query_schema", args=[query.name]),
    }
