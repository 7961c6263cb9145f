"""What /api/schema says of the calls for saved queries."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers

from tidegauge.webapp.api.answers import BatchOfAnswer, CombinedSerializer, EntrySerializer, ResultSerializer
from tidegauge.webapp.api.openapi import CONDITIONAL, OUT_OF_REACH, UNCHANGED, answers, described

RUN = (
    "Answers the reads of the query, in the order of its definition, all from one committed batch. The parameters "
    "are those that the query declares; its own OpenAPI document, `/queries/{name}/openapi`, has their types and "
    "that of the answer. A parameter that is missing, unknown or of another type is a 400."
)
VALUES = OpenApiParameter(
    "values",
    {"type": "object", "additionalProperties": {"type": "string"}},
    OpenApiParameter.QUERY,
    description="The parameters of the query, each by its own name; a parameter with many values is repeated. "
    "`as_of` is a batch, `cursor` the `next` of the page before",
    style="form",
    explode=True,
)


# By a function, as a serializer has attributes of two of these names.
QUERY_PARAMETER = inline_serializer(
    "QueryParameter",
    {
        "name": serializers.CharField(),
        "type": serializers.CharField(help_text="SQL type"),
        "required": serializers.BooleanField(),
        "many": serializers.BooleanField(help_text="whether it may be given several times"),
        "description": serializers.CharField(allow_blank=True),
    },
    many=True,
)


class SavedQuerySerializer(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.IntegerField(help_text="the newest published one")
    description = serializers.CharField(allow_blank=True)
    states = serializers.ListField(child=serializers.CharField())
    parameters = QUERY_PARAMETER
    published_at = serializers.DateTimeField()
    published_by = serializers.CharField(allow_blank=True, help_text="empty for a restricted API key or person")
    url = serializers.CharField(help_text="where it is run")
    openapi = serializers.CharField(help_text="where its own OpenAPI document is")


class ReadAnswerSerializer(serializers.Serializer):
    """One of `results`, `combined` and `entries` is there, as the read asks."""

    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"])
    results = ResultSerializer(many=True, required=False, help_text="of a read of keys: one per key")
    combined = CombinedSerializer(required=False, help_text="of a read that combines its keys: one value of them all")
    entries = EntrySerializer(many=True, required=False, help_text="of a read of a range")
    complete = serializers.BooleanField(
        required=False, help_text="of a read of a range: false where it ended before it was full, see `GET /entries`"
    )
    next = serializers.CharField(
        required=False, allow_null=True, help_text="the `cursor` of the next page, of a query with one read of entries"
    )


class SavedAnswerSerializer(BatchOfAnswer):
    query = serializers.CharField()
    version = serializers.IntegerField()
    answers = ReadAnswerSerializer(
        many=True, help_text="one per read, in the order of the definition, all of one batch"
    )


saved_queries = extend_schema(
    operation_id="list_saved_queries",
    tags=["queries"],
    summary="List the saved queries",
    description="All whose states the caller may read, each with the parameters of its newest published version.",
    parameters=CONDITIONAL,
    responses=answers(
        200,
        inline_serializer("SavedQueryList", {"queries": SavedQuerySerializer(many=True)}),
        description="The queries.",
    )
    | UNCHANGED,
)


GONE = described(
    410, "The query was withdrawn, a state or measure that it reads is gone, or the batch is.", OUT_OF_REACH
)


def _run(operation_id: str, summary: str) -> Any:
    return extend_schema(
        operation_id=operation_id,
        tags=["queries"],
        summary=summary,
        description=RUN,
        parameters=[VALUES, *CONDITIONAL],
        responses=answers(200, SavedAnswerSerializer, 404, 409, 410, description="The answers.", e410=GONE) | UNCHANGED,
    )


def _schema(operation_id: str, summary: str) -> Any:
    return extend_schema(
        operation_id=operation_id,
        tags=["queries"],
        summary=summary,
        description="OpenAPI 3.1 for this query alone, from which clients can be generated: its parameters with types "
        "and defaults, and its answer with the key columns and measures of the states.",
        parameters=CONDITIONAL,
        responses=answers(200, OpenApiTypes.OBJECT, 404, 410, description="An OpenAPI document.", e410=GONE)
        | UNCHANGED,
    )


saved_query = _run("run_saved_query", "Run the newest published version of a saved query")
saved_query_version = _run("run_saved_query_version", "Run one version of a saved query")
saved_query_schema = _schema("get_saved_query_openapi", "Describe a saved query in OpenAPI")
saved_query_version_schema = _schema(
    "get_saved_query_version_openapi", "Describe one version of a saved query in OpenAPI"
)
