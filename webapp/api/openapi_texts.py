"""What /api/schema says of each call: one decorator per call. Nothing here runs when a request is answered."""

from typing import Any

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from tidegauge.webapp.accounts.issuing import LEAST_SECONDS, MOST_SECONDS
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.api.answers import (
    AnswersSerializer,
    BatchSerializer,
    EntriesSerializer,
    GroupsSerializer,
    HistorySerializer,
    KeyAnswerSerializer,
    KeySeriesSerializer,
    PipelineSerializer,
    PipelineSeriesSerializer,
    RunSerializer,
    StateAnswerSerializer,
    StateSerializer,
    UsageSerializer,
)
from tidegauge.webapp.api.export import FORMATS
from tidegauge.webapp.api.openapi import (
    CONDITIONAL,
    IDEMPOTENCY_KEY,
    LOCATION,
    NEXT,
    NO_KEY,
    NOT_YET,
    OF_BODIES,
    STILL_WAITING,
    UNCHANGED,
    answer_header,
    answers,
    problems,
)
from tidegauge.webapp.api.requests import (
    MAX_QUERIES,
    EntriesParameters,
    ExportParameters,
    GroupsParameters,
    HistoryParameters,
    KeyParameters,
    KeyPathParameters,
    KeySeriesParameters,
    ListParameters,
    QueriesSerializer,
    QuerySerializer,
    RunsParameters,
    SeriesParameters,
    UsageParameters,
)
from tidegauge.webapp.api.tokens import TokenBody, TokenSerializer

KEYS = [["JFK", "AA"], ["JFK", "ZZ"]]
BATCH = {"epoch": "8a1f0c2e9b7d4653", "txid": 42, "as_of": "2026-11-20T07:09:00.123456+00:00"}
OF_STATE = {"state": "flights_by_carrier", "isolation": "committed"}
RESULTS: list[dict[str, Any]] = [
    {"key": ["JFK", "AA"], "status": "found", "value": {"flights": 13783}},
    {"key": ["JFK", "ZZ"], "status": "missing", "value": None},
]
COMBINED = {"keys": 1, "missing": 1, "expired": 0, "value": {"flights": 13783}}
QUERY = {"keys": KEYS, "measures": ["flights"]}

EXPORT_HEADERS = [
    answer_header("Tidegauge-Epoch", "The ledger's epoch", [200]),
    answer_header("Tidegauge-Txid", "The batch that the file shows", [200], int),
    answer_header("Content-Disposition", "A name for the file", [200]),
]


REPLAYED = answer_header("Idempotent-Replayed", "`true`: the run was requested before, with this key", [202])


def _listed(name: str, child: type[serializers.Serializer]) -> serializers.Serializer:
    return inline_serializer(f"{name.capitalize()}List", {name: child(many=True)})


def _run_accepted(what: str, *errors: int) -> dict[Any, Any]:
    return answers(202, RunSerializer, *errors, description=what)


def _asked(name: str, body: dict) -> OpenApiExample:
    return OpenApiExample(name, body, request_only=True)


def _answered(name: str, body: dict) -> OpenApiExample:
    return OpenApiExample(name, body, response_only=True, status_codes=["200"], media_type="application/json")


states = extend_schema(
    operation_id="list_states",
    tags=["states"],
    summary="List the states",
    description="All that the caller may read, each as `GET /states/{name}` answers it.",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("states", StateSerializer), description="The states.") | UNCHANGED,
)
state = extend_schema(
    operation_id="get_state",
    tags=["states"],
    summary="Describe a state",
    description="Its key columns and measures with their types, where it is stored, how many keys and bytes it has, "
    "how long entries live, and the batch that lookups show now.",
    parameters=CONDITIONAL,
    responses=answers(200, StateSerializer, 404, description="The state.") | UNCHANGED,
)
pipelines = extend_schema(
    operation_id="list_pipelines",
    tags=["pipelines"],
    summary="List the pipelines",
    description="All with a state that the caller may read, each as `GET /pipelines/{name}` answers it.",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("pipelines", PipelineSerializer), description="The pipelines.") | UNCHANGED,
)
pipeline = extend_schema(
    operation_id="get_pipeline",
    tags=["pipelines"],
    summary="Show the status of a pipeline",
    description="Whether its driver runs, and why not; the last committed batch; how much input is not read yet; how "
    "many seconds the states are behind it.",
    parameters=CONDITIONAL,
    responses=answers(200, PipelineSerializer, 404, description="The pipeline.") | UNCHANGED,
)
batches = extend_schema(
    operation_id="list_batches",
    tags=["pipelines"],
    summary="List the batches of a pipeline, newest first",
    description="The committed ones, and the one that is being written: how many seconds each took, how many rows it "
    "read and how many keys it wrote.",
    parameters=[ListParameters, *CONDITIONAL],
    responses=answers(200, _listed("batches", BatchSerializer), 404, description="The batches.") | UNCHANGED,
)
pipeline_series = extend_schema(
    operation_id="get_pipeline_series",
    tags=["pipelines"],
    summary="Show what a pipeline did over time",
    description="Rows per second, seconds of batches and of their parts, freshness, dead letters: one point for the "
    "batches of each step of time, at the commit of the last one. The step is the shortest of 1, 2, 5, 10 or 30 "
    "seconds, minutes or longer, that gives no more than `points`. A pause is marked by a time with nulls.",
    parameters=[SeriesParameters, *CONDITIONAL],
    responses=answers(200, PipelineSeriesSerializer, 404, description="The series.") | UNCHANGED,
)
pause = extend_schema(
    operation_id="pause_pipeline",
    tags=["pipelines"],
    summary="Pause a pipeline",
    description="Asks its driver to stop after the current batch, and to start no other one until it is resumed, also "
    "after a restart. The answer comes at once: `status` is `paused` when the driver has stopped. A pipeline that is "
    f"paused stays so. Scope: `{Scope.MAINTAIN.value}`.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline; `wanted` is what was requested."),
)
resume = extend_schema(
    operation_id="resume_pipeline",
    tags=["pipelines"],
    summary="Resume a paused pipeline",
    description="Asks its driver to go on, which it does within a second. A pipeline that is not paused stays as it "
    f"is. Scope: `{Scope.MAINTAIN.value}`.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline; `wanted` is what was requested."),
)
compaction = extend_schema(
    operation_id="compact_state",
    tags=["maintenance"],
    summary="Compact a state",
    description="Queues a run that frees space: it deletes versions older than histories and `as_of` reach, 168 hours "
    "by default, and what is left of removed keys. Committed values do not change. A state has one unfinished run at "
    "a time; while there is one, the answer is a 409. `Location` is where to follow the run. "
    f"Scope: `{Scope.MAINTAIN.value}`.",
    request=None,
    parameters=[IDEMPOTENCY_KEY, LOCATION, REPLAYED],
    responses=_run_accepted("The run, queued.", 404, 409, 422),
)
expiry = extend_schema(
    operation_id="expire_state",
    tags=["maintenance"],
    summary="Delete the expired entries of a state",
    description="Queues a run that deletes the entries whose time to live (`ttl_seconds` of the state) has passed. "
    "Lookups already answer `expired` for them, afterwards `missing`. A state has one unfinished run at a time; while "
    f"there is one, the answer is a 409. `Location` is where to follow the run. Scope: `{Scope.MAINTAIN.value}`.",
    request=None,
    parameters=[IDEMPOTENCY_KEY, LOCATION, REPLAYED],
    responses=_run_accepted("The run, queued.", 404, 409, 422),
)
runs = extend_schema(
    operation_id="list_runs",
    tags=["maintenance"],
    summary="List the maintenance runs, newest first",
    description="Those that were requested, and those of the schedule. Finished ones are deleted after some days, 30 "
    "by default.",
    parameters=[RunsParameters, *CONDITIONAL],
    responses=answers(200, _listed("runs", RunSerializer), description="The runs.") | UNCHANGED,
)
run = extend_schema(
    operation_id="get_run",
    tags=["maintenance"],
    summary="Show a maintenance run",
    description="Its status, how many rows it has looked at and removed, and once it has ended, rows and bytes before "
    "and after, or the error.",
    parameters=CONDITIONAL,
    responses=answers(200, RunSerializer, 404, description="The run.") | UNCHANGED,
)
cancel = extend_schema(
    operation_id="cancel_run",
    tags=["maintenance"],
    summary="Cancel a maintenance run",
    description="A queued run ends at once, a running one after the page of rows that it is at; what it has deleted "
    f"stays deleted. A run that has ended is a 409. Scope: `{Scope.MAINTAIN.value}`.",
    parameters=[LOCATION],
    responses=_run_accepted("The run, cancelled.", 404, 409),
)
tokens = extend_schema(
    operation_id="create_token",
    tags=["access"],
    summary="Make a short-lived token",
    description="For a program that must not have the API key, such as a page in a browser. A token can only read, and "
    "only what the API key can: restrictions in the body narrow it further, to states, a key prefix, saved "
    f"queries or a rate. It is valid {LEAST_SECONDS} to {MOST_SECONDS} seconds, and never longer than the API key. "
    f"The server does not store it; its `id` revokes it. Scope: `{Scope.ISSUE_TOKENS.value}`.",
    request=TokenBody,
    responses=answers(201, TokenSerializer, *OF_BODIES, description="The token and its restrictions."),
    examples=[
        _asked("for a page", {"states": ["flights_by_carrier"], "key_prefix": ["JFK"], "rate": 120, "sub": "user-17"})
    ],
)
revoke_token = extend_schema(
    operation_id="revoke_token",
    tags=["access"],
    summary="Revoke a token",
    description="The token is refused from now on, by other processes some seconds later, and its event streams end. "
    "An API key revokes its own tokens; a session needs the permission `api_keys.change_apikey`. "
    f"Scope: {Scope.ISSUE_TOKENS.value}.",
    responses=answers(204, None, 404, 409, description="The token is revoked, also if it was before."),
)
usage = extend_schema(
    operation_id="list_usage",
    tags=["access"],
    summary="List what API keys have used, by hour and state, newest first",
    description="Requests, keys looked up, bytes sent and refusals. An API key that is restricted to states or keys "
    "gets its own usage only, others get that of all API keys. A token gets a 403, and so does a session without the "
    "permission `api_keys.view_usagehour`. A request is counted some seconds after its answer.",
    parameters=[UsageParameters, *CONDITIONAL],
    responses=answers(200, _listed("usage", UsageSerializer), description="Usage.") | UNCHANGED,
)
state_query = extend_schema(
    operation_id="query_state",
    tags=["states"],
    summary="Look up keys of a state",
    description="Answers one result per key, in the order of the request, all from one committed batch. `status` is "
    "`found`, `missing`, or `expired` for a key past its time to live; `value` is null unless found. `combine` merges "
    "the keys into one value instead. By default the batch is the newest one; `min_txid` waits until that batch is "
    "committed (a 503 after `wait_ms`), and `as_of` answers as after an earlier one (a 410 if that is too old).\n\n"
    f"At most {settings.TIDEGAUGE_LOOKUP_MAX_KEYS} keys; more are a 400 with `max_keys`. A wrong key is a 400 with its "
    "`index`.",
    request=QuerySerializer,
    responses=answers(
        200,
        StateAnswerSerializer,
        *(404, 409, 410, *OF_BODIES),
        description="One result per key asked, or all of them combined.",
        e409=NOT_YET,
        e503=STILL_WAITING,
    )
    | UNCHANGED,
    parameters=CONDITIONAL,
    examples=[
        _asked("two keys", QUERY),
        _asked("combined", QUERY | {"combine": True}),
        _asked("read your own write", QUERY | {"min_txid": 42, "epoch": BATCH["epoch"], "wait_ms": 1000}),
        _answered("two keys", OF_STATE | BATCH | {"results": RESULTS}),
        _answered("combined", OF_STATE | BATCH | {"combined": COMBINED}),
    ],
)


def _key(operation_id: str, where: str, *parameters: Any) -> Any:
    return extend_schema(
        operation_id=operation_id,
        tags=["states"],
        summary=f"Look up one key, {where}",
        description="Answers what `POST /states/{name}/query` does for one key, by GET, so that clients can cache it "
        "by its `ETag`. A key that is missing or expired is a 404, whose `key_status` says which, as of the batch "
        "`txid`.",
        parameters=[*parameters, *CONDITIONAL],
        responses=answers(
            200,
            KeyAnswerSerializer,
            *(404, 409, 410),
            description="The key.",
            e404=NO_KEY,
            e409=NOT_YET,
            e503=STILL_WAITING,
        )
        | UNCHANGED,
        examples=[_answered("one key", BATCH | OF_STATE | RESULTS[0])],
    )


PARTS = OpenApiParameter(
    "key",
    str,
    OpenApiParameter.PATH,
    description="The parts of the key in the order of the key columns, percent-encoded, slashes between: `JFK/AA`, "
    "`2013-01-01T05:00:00Z/JFK`. A key with a slash in a part, or an empty part, is sent as the parameter `key` of "
    "`/keys`, unless there is one key column",
)
key_at_path = _key("get_key", "given in the path", PARTS, KeyPathParameters)
key = _key("get_key_as_json", "given as a parameter", KeyParameters)
queries = extend_schema(
    operation_id="query_states",
    tags=["states"],
    summary="Look up keys of several states",
    description="Answers one query per state, in the order of the request, all from one committed batch; each is as in "
    "`POST /states/{name}/query`. The states must be of one pipeline, since others have no batch in common: a 400.\n\n"
    f"At most {MAX_QUERIES} queries, and {settings.TIDEGAUGE_LOOKUP_MAX_KEYS} keys over all of them.",
    request=QueriesSerializer,
    responses=answers(
        200,
        AnswersSerializer,
        *(404, 409, 410, *OF_BODIES),
        description="One answer per query, in the order asked.",
        e409=NOT_YET,
        e503=STILL_WAITING,
    )
    | UNCHANGED,
    parameters=CONDITIONAL,
    examples=[
        _asked(
            "two states", {"queries": [{"state": "flights_by_carrier", **QUERY}, {"state": "totals", "keys": [[]]}]}
        ),
        _answered("one state", BATCH | {"answers": [OF_STATE | {"results": RESULTS}]}),
    ],
)
entries = extend_schema(
    operation_id="list_entries",
    tags=["states"],
    summary="List entries of a state, in pages",
    description="Entries that have not expired: all, those of a range or prefix of keys, those that meet conditions, "
    "or the largest by a measure. Send `next` of a page as `cursor` to get the following one; it is null on the last "
    "page. No key is repeated or left out.\n\n"
    "In key order each page is of the batch that is committed then, unless `as_of` says otherwise; with `order_by` all "
    "pages are of the batch of the first one. If that batch is no longer available, the answer is a 410: start again "
    "without `cursor`. A page with `where` or `search` looks at 50,000 keys at most, so it may have fewer entries than "
    "`limit`, or none, and a `next` all the same. To read a whole range at once, use `export.csv`, `export.ndjson` or "
    "`export.arrow`.",
    parameters=[EntriesParameters, NEXT, *CONDITIONAL],
    responses=answers(200, EntriesSerializer, *(404, 409, 410), description="A page.", e409=NOT_YET) | UNCHANGED,
)


groups = extend_schema(
    operation_id="group_entries",
    tags=["states"],
    summary="Fold entries of a state by key columns",
    description="The entries that have not expired, or those of a range or that meet conditions, folded into one for "
    "each value of the key columns `by`. Each measure is folded as its aggregator does: counts add, a mean is that of "
    "all events, distinct counts are unions, quantiles merge. A state of JSON values cannot be folded.\n\n"
    "All of the range is read, so it may have 50,000 keys (`TIDEGAUGE_GROUP_MAX_KEYS`), and a tenth of that where a "
    "measure is folded outside the database, as sketches are; beyond, the answer is a 400, `range_too_large`.",
    parameters=[GroupsParameters, *CONDITIONAL],
    responses=answers(200, GroupsSerializer, *(404, 409, 410), description="The groups.", e409=NOT_YET) | UNCHANGED,
)


def _export(file_format: str, label: str, content: Any, rows: str) -> Any:
    file = {(200, FORMATS[file_format].media_type): OpenApiResponse(content, "The file.")}
    return extend_schema(
        operation_id=f"export_{file_format}",
        tags=["states"],
        summary=f"Export entries of a state as {label}",
        description="Sends all entries that have not expired, or those of a range, in key order and from one batch, "
        f"whose number is in the header `Tidegauge-Txid`. {rows} Key columns come first, then measures.\n\n"
        "The size has no limit. The file is sent while it is read: an error in the middle ends the transfer without "
        "the end of chunked transfer encoding, which HTTP clients report as an incomplete answer. A client that reads "
        "nothing for a minute, or too slowly, is disconnected. An API key may have a few exports under way; one more "
        "is a 429.",
        parameters=[ExportParameters, *EXPORT_HEADERS],
        responses=file | problems(404, 409, 410, 501, e409=NOT_YET),
    )


export_csv = _export(
    "csv", "CSV", OpenApiTypes.STR, "The first row has the names of the columns. A null is an empty field."
)
export_ndjson = _export(
    "ndjson",
    "JSON lines",
    OpenApiTypes.STR,
    "Each line is an object, its members named by the columns; numbers have all digits.",
)
export_arrow = _export("arrow", "an Arrow stream", OpenApiTypes.BINARY, "The format is Arrow's IPC stream.")
history = extend_schema(
    operation_id="get_history",
    tags=["states"],
    summary="List the versions of a key, newest first",
    description="Each value that the key has had, with the batch that wrote it and the time of that batch, as far back "
    "as the state's changelog is kept; of a state without a changelog the last one or two. `complete` is false if "
    "there were older ones. For the next page send the last `txid` of this one as `before`.",
    parameters=[HistoryParameters, *CONDITIONAL],
    responses=answers(200, HistorySerializer, 404, description="The versions.") | UNCHANGED,
)
key_series = extend_schema(
    operation_id="get_key_series",
    tags=["states"],
    summary="Show the values of a key over time",
    description="One number for each measure and time, from the changelog: of the versions in one step of time the "
    "last one. A value holds until the next time: the first one is that of the range's beginning, the last one that of "
    "its end, or of now. Without a changelog there are the last one or two versions. Members of a "
    "measure that has several, such as quantiles, are named `measure.member`.",
    parameters=[KeySeriesParameters, *CONDITIONAL],
    responses=answers(200, KeySeriesSerializer, 404, description="The series.") | UNCHANGED,
)
