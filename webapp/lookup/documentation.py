"""What /api/schema says of each call. Nothing here runs when a request is answered."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from webapp.api_keys.models import Scope
from webapp.lookup.problems import MEDIA_TYPE
from webapp.states.models import MaintenanceRun


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "webapp.api_keys.authentication.ApiKeyAuthentication"
    name = ["bearer", "X-Api-Key"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either will do

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key, `tmk_..`"},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `tmk_..`"},
        ]


class ProblemSerializer(serializers.Serializer):
    """Problem details, RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    index = serializers.IntegerField(required=False, help_text="which key of the request is wrong, counted from 0")


class JsonValue(serializers.JSONField):
    """Any JSON value."""


class QuerySerializer(serializers.Serializer):
    keys = serializers.ListField(
        child=JsonValue(),
        help_text="each key a list of its parts in the order of the state's key columns, `[]` for a state without any; "
        "where there is one column, its bare value will do",
    )
    measures = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        allow_null=True,
        help_text="which measures to answer; all if absent",
    )


class ResultSerializer(serializers.Serializer):
    key = serializers.ListField(child=JsonValue())
    status = serializers.ChoiceField(["found", "missing", "expired"])
    value = JsonValue(allow_null=True, help_text="measure to value, or the JSON value; null unless found")


class AnswerSerializer(serializers.Serializer):
    state = serializers.CharField()
    txid = serializers.IntegerField(help_text="the committed batch that every result belongs to; 0 before the first")
    as_of = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")
    isolation = serializers.ChoiceField(
        ["committed", "uncommitted"], help_text="uncommitted: results may hold rows of a batch that is still open"
    )
    results = ResultSerializer(many=True, help_text="one per key asked, in the order asked")


class MeasureSerializer(serializers.Serializer):
    aggregate = serializers.CharField()
    type = serializers.CharField()
    since_txid = serializers.IntegerField(help_text="the measure was added after this batch; 0: with the state")


class StateSerializer(serializers.Serializer):
    name = serializers.CharField()
    pipeline = serializers.CharField()
    kind = serializers.ChoiceField(["opaque", "transactional", "non_transactional"])
    key = serializers.DictField(child=serializers.CharField(), help_text="column to SQL type, in order")
    measures = serializers.DictField(child=MeasureSerializer())
    ttl_seconds = serializers.FloatField(allow_null=True, help_text="null: rows are kept for ever")
    changelog = serializers.BooleanField()
    backend = serializers.ChoiceField(["postgres", "redis"], help_text="where its rows live")
    keys_estimate = serializers.IntegerField(
        help_text="of a state in Redis: all that are stored, with those expired or removed and not cleaned up yet"
    )
    bytes = serializers.IntegerField(
        help_text="table, indexes and changelog; of a state in Redis an estimate from a sample of its rows"
    )
    since_txid = serializers.IntegerField(help_text="the state was added after this batch; 0: it holds all there was")
    txid = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True)
    guarantee = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"])


class PendingSerializer(serializers.Serializer):
    count = serializers.IntegerField()
    unit = serializers.CharField()
    oldest = serializers.CharField(allow_null=True, required=False)
    alarm = serializers.CharField(required=False, help_text="what the source needs from people, in words")


DRIVER_STATUSES = [
    "starting", "running", "paused", "restarting", "stopped", "finished", "failed", "lost", "never started",
]  # fmt: skip


class ReprocessSerializer(serializers.Serializer):
    status = serializers.ChoiceField(DRIVER_STATUSES)
    message = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField()
    batches = serializers.IntegerField(help_text="committed so far")
    rows = serializers.IntegerField(help_text="read by them")
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True)


class PipelineSerializer(serializers.Serializer):
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    spout = serializers.CharField(help_text="what the source promises on replay")
    guarantee = serializers.CharField(allow_blank=True, help_text="the weakest of its states' guarantees")
    status = serializers.ChoiceField(DRIVER_STATUSES)
    message = serializers.CharField(allow_blank=True, help_text="why the driver failed, restarts or tries again")
    failures = serializers.IntegerField(help_text="in a row, without a batch committed between")
    max_failures = serializers.IntegerField(allow_null=True, help_text="how many failures in a row end the driver")
    next_try_at = serializers.DateTimeField(allow_null=True, help_text="when a driver that restarts tries again")
    wanted = serializers.ChoiceField(
        ["running", "paused"], help_text="as people wish it; the driver follows after the batch at hand"
    )
    wanted_by = serializers.CharField(allow_blank=True)
    wanted_at = serializers.DateTimeField(allow_null=True)
    committed_txid = serializers.IntegerField()
    committed_time = serializers.DateTimeField(allow_null=True)
    committed_at = serializers.DateTimeField(allow_null=True)
    open_txid = serializers.IntegerField(allow_null=True)
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True, help_text="input not read yet; null where unknown")
    lag_seconds = serializers.FloatField(allow_null=True)
    dead_letters = serializers.IntegerField(help_text="of all committed batches, as are late and dropped")
    late = serializers.IntegerField(help_text="events that came after the watermark")
    dropped = serializers.IntegerField(help_text="late events that were left out")
    states = serializers.ListField(child=serializers.CharField())
    reprocess = ReprocessSerializer(
        allow_null=True, help_text="its states are being fed anew while the old ones are served; null: they are not"
    )


class TasksSerializer(serializers.Serializer):
    tasks = serializers.IntegerField(help_text="how many tasks wrote the state")
    largest = serializers.IntegerField(help_text="keys of the task that had the most")


class MetricsSerializer(serializers.Serializer):
    duration_ms = serializers.DictField(
        child=serializers.IntegerField(), required=False, help_text="by Spark's names: triggerExecution, addBatch, .."
    )
    input_rows = serializers.IntegerField(required=False)
    input_rows_per_second = serializers.FloatField(required=False)
    processed_rows_per_second = serializers.FloatField(required=False)


class BatchSerializer(serializers.Serializer):
    pipeline = serializers.CharField()
    txid = serializers.IntegerField()
    attempt = serializers.IntegerField()
    status = serializers.ChoiceField(["open", "committed"])
    batch_time = serializers.DateTimeField()
    committed_at = serializers.DateTimeField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    rows_in = serializers.IntegerField(allow_null=True)
    keys_written = serializers.DictField(child=serializers.IntegerField(), help_text="state to number of keys")
    dead_letters = serializers.IntegerField()
    late = serializers.IntegerField(help_text="events that came after the watermark")
    dropped = serializers.IntegerField(help_text="late events that were left out")
    tasks = serializers.DictField(child=TasksSerializer(), help_text="by state: how its keys were spread over tasks")
    watermark = serializers.DateTimeField(allow_null=True, help_text="the event time that the batch had reached")
    metrics = MetricsSerializer(help_text="what Spark measured; empty until it has")


class StepSerializer(serializers.Serializer):
    step = serializers.CharField()
    seen = serializers.IntegerField()
    removed = serializers.IntegerField()


class RunSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(MaintenanceRun.Kind.values)
    state = serializers.CharField()
    status = serializers.ChoiceField(MaintenanceRun.Status.values)
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested = serializers.BooleanField()
    progress = StepSerializer(many=True)
    before = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes before the run")
    after = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes after it")
    error = serializers.CharField(allow_blank=True)


def _listed(name: str, child: type[serializers.Serializer]) -> serializers.Serializer:
    return inline_serializer(f"{name.capitalize()}List", {name: child(many=True)})


def _problem(description: str, *examples: OpenApiExample) -> OpenApiResponse:
    return OpenApiResponse(ProblemSerializer, description, examples=list(examples))


def _example(name: str, status: int, title: str, detail: str, **members: Any) -> OpenApiExample:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    return OpenApiExample(name, body, media_type=MEDIA_TYPE, response_only=True, status_codes=[str(status)])


UNAUTHORIZED = _example("no key", 401, "Unauthorized", "Authentication credentials were not provided.")
FORBIDDEN = _example("scope", 403, "Forbidden", "this API key lacks the scope 'maintain'; it has read")
UNKNOWN_STATE = _example("unknown", 404, "Not Found", "state 'route' does not exist; there are routes, totals")
WRONG_KEY = _example("key", 400, "Bad Request", "key 3: origin must be text, got 9", index=3)
BUSY = _example(
    "busy", 409, "Conflict",
    "state 'routes': compaction 7 is running already, asked for by schedule; wait until it is done, or cancel it",
)  # fmt: skip

DESCRIPTIONS = {
    400: _problem("The request does not fit.", WRONG_KEY),
    401: _problem("No API key, or an unknown or revoked one, and no session.", UNAUTHORIZED),
    403: _problem("The key lacks the scope, or the session is not staff's.", FORBIDDEN),
    404: _problem("There is no such thing; the detail names those there are.", UNKNOWN_STATE),
    406: _problem("The answer is JSON, and the request accepts none."),
    409: _problem("The run cannot be had now; the detail says why.", BUSY),
    413: _problem("The body is too large."),
    415: _problem("The body must be JSON, and say so in Content-Type."),
    503: _problem("The database, or the task queue, does not answer."),
}


def _responses(status: int, success: Any, *errors: int, description: str = "") -> dict[Any, Any]:
    answer = OpenApiResponse(success, description)
    always = (401, 403, 406, 503)
    return {status: answer} | {(code, MEDIA_TYPE): DESCRIPTIONS[code] for code in sorted({*always, *errors})}


def _run_accepted(what: str, *errors: int) -> dict[Any, Any]:
    return _responses(202, RunSerializer, *errors, description=what)


LIMIT = OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50})
LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="Where the run is")
ETAG = OpenApiParameter(
    "ETag", str, OpenApiParameter.HEADER, response=[200, 304],
    description="State, txid, attempt, and a digest of the results",
)  # fmt: skip
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="The ETag of the last answer: 304 if nothing changed"
)

QUERY_EXAMPLE = OpenApiExample(
    "two keys", {"keys": [["JFK", "AA"], ["JFK", "ZZ"]], "measures": ["flights"]}, request_only=True
)
ANSWER_EXAMPLE = OpenApiExample(
    "two keys",
    {
        "state": "flights_by_carrier",
        "txid": 42,
        "as_of": "2026-11-20T07:09:00.123456+00:00",
        "isolation": "committed",
        "results": [
            {"key": ["JFK", "AA"], "status": "found", "value": {"flights": 13783}},
            {"key": ["JFK", "ZZ"], "status": "missing", "value": None},
        ],
    },
    response_only=True,
    status_codes=["200"],
)

state_query = extend_schema(
    operation_id="query_state",
    tags=["states"],
    summary="Look keys up, all at one committed batch",
    request=QuerySerializer,
    responses=_responses(200, AnswerSerializer, 400, 404, 413, 415, description="One result per key asked.")
    | {304: OpenApiResponse(description="The answer is the one that If-None-Match names.")},
    parameters=[IF_NONE_MATCH, ETAG],
    examples=[QUERY_EXAMPLE, ANSWER_EXAMPLE],
)
states = extend_schema(
    operation_id="list_states",
    tags=["states"],
    summary="All states",
    responses=_responses(200, _listed("states", StateSerializer)),
)
state = extend_schema(
    operation_id="get_state", tags=["states"], summary="One state", responses=_responses(200, StateSerializer, 404)
)
pipelines = extend_schema(
    operation_id="list_pipelines",
    tags=["pipelines"],
    summary="All pipelines",
    responses=_responses(200, _listed("pipelines", PipelineSerializer)),
)
pipeline = extend_schema(
    operation_id="get_pipeline",
    tags=["pipelines"],
    summary="One pipeline",
    responses=_responses(200, PipelineSerializer, 404),
)
batches = extend_schema(
    operation_id="list_batches",
    tags=["pipelines"],
    summary="A pipeline's batches, the newest first",
    parameters=[LIMIT],
    responses=_responses(200, _listed("batches", BatchSerializer), 400, 404),
)
pause = extend_schema(
    operation_id="pause_pipeline",
    tags=["pipelines"],
    summary="Pause a pipeline",
    description="Its driver ends the batch at hand, then waits; so does one that starts later. Asking twice changes "
    f"nothing. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=_responses(202, PipelineSerializer, 404, description="The pipeline, with the wish noted."),
)
resume = extend_schema(
    operation_id="resume_pipeline",
    tags=["pipelines"],
    summary="Resume a paused pipeline",
    description=f"Its driver goes on within a second. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=_responses(202, PipelineSerializer, 404, description="The pipeline, with the wish noted."),
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
        OpenApiParameter("state", str),
        OpenApiParameter("kind", str, enum=MaintenanceRun.Kind.values),
        OpenApiParameter("status", str, enum=MaintenanceRun.Status.values),
        LIMIT,
    ],
    responses=_responses(200, _listed("runs", RunSerializer), 400),
)
run = extend_schema(
    operation_id="get_run",
    tags=["maintenance"],
    summary="One maintenance run",
    responses=_responses(200, RunSerializer, 404),
)
cancel = extend_schema(
    operation_id="cancel_run",
    tags=["maintenance"],
    summary="Cancel a maintenance run",
    description=f"A queued run ends at once, a running one after the page it is at. Scope: {Scope.MAINTAIN.value}.",
    parameters=[LOCATION],
    responses=_run_accepted("The run, called off.", 404, 409),
)
