"""What /api/schema says of each call: one decorator per call. Nothing here runs when a request is answered."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from webapp.accounts.models import Scope
from webapp.api.answers import (
    AnswersSerializer,
    BatchSerializer,
    EntriesSerializer,
    HistorySerializer,
    KeyAnswerSerializer,
    PipelineSerializer,
    RunSerializer,
    StateAnswerSerializer,
    StateSerializer,
    UsageSerializer,
)
from webapp.api.export import FORMATS
from webapp.api.openapi import (
    CONDITIONAL,
    IDEMPOTENCY_KEY,
    LOCATION,
    NO_KEY,
    NOT_YET,
    OF_BODIES,
    STILL_WAITING,
    UNCHANGED,
    answer_header,
    answers,
    problems,
)
from webapp.api.requests import (
    EntriesParameters,
    ExportParameters,
    HistoryParameters,
    KeyParameters,
    KeyPathParameters,
    ListParameters,
    QueriesSerializer,
    QuerySerializer,
    RunsParameters,
    UsageParameters,
)
from webapp.api.tokens import TokenBody, TokenSerializer

KEYS = [["JFK", "AA"], ["JFK", "ZZ"]]
BATCH = {"epoch": "8a1f0c2e9b7d4653", "txid": 42, "as_of": "2026-11-20T07:09:00.123456+00:00"}
OF_STATE = {"state": "flights_by_carrier", "isolation": "committed"}
RESULTS: list[dict[str, Any]] = [
    {"key": ["JFK", "AA"], "status": "found", "value": {"flights": 13783}},
    {"key": ["JFK", "ZZ"], "status": "missing", "value": None},
]
COMBINED = {"keys": 1, "missing": 1, "expired": 0, "value": {"flights": 13783}}
QUERY = {"keys": KEYS, "measures": ["flights"]}

NEXT = answer_header("Link", 'Where the next page is, `rel="next"`', [200])
EXPORT_HEADERS = [
    answer_header("Tidemark-Epoch", "The ledger's epoch", [200]),
    answer_header("Tidemark-Txid", "The batch that the file shows", [200], int),
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
    summary="All states",
    description="Those that the caller may read, each as `GET /states/{name}` has it.",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("states", StateSerializer), description="The states.") | UNCHANGED,
)
state = extend_schema(
    operation_id="get_state",
    tags=["states"],
    summary="One state",
    description="Its schema, where its rows live, how large it is, and the batch that lookups show.",
    parameters=CONDITIONAL,
    responses=answers(200, StateSerializer, 404, description="The state.") | UNCHANGED,
)
pipelines = extend_schema(
    operation_id="list_pipelines",
    tags=["pipelines"],
    summary="All pipelines",
    description="Those with a state that the caller may read, each as `GET /pipelines/{name}` has it.",
    parameters=CONDITIONAL,
    responses=answers(200, _listed("pipelines", PipelineSerializer), description="The pipelines.") | UNCHANGED,
)
pipeline = extend_schema(
    operation_id="get_pipeline",
    tags=["pipelines"],
    summary="One pipeline",
    description="What its driver does, what was committed, and how much input waits.",
    parameters=CONDITIONAL,
    responses=answers(200, PipelineSerializer, 404, description="The pipeline.") | UNCHANGED,
)
batches = extend_schema(
    operation_id="list_batches",
    tags=["pipelines"],
    summary="A pipeline's batches, the newest first",
    description="Committed ones, and the open one: how long each took, how many rows it read and keys it wrote.",
    parameters=[ListParameters, *CONDITIONAL],
    responses=answers(200, _listed("batches", BatchSerializer), 404, description="The batches.") | UNCHANGED,
)
pause = extend_schema(
    operation_id="pause_pipeline",
    tags=["pipelines"],
    summary="Pause a pipeline",
    description="Its driver ends the current batch, then waits; so does one that starts later. Repeating it changes "
    f"nothing. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline, with the request noted."),
)
resume = extend_schema(
    operation_id="resume_pipeline",
    tags=["pipelines"],
    summary="Resume a paused pipeline",
    description=f"Its driver continues within a second. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    responses=answers(202, PipelineSerializer, 404, description="The pipeline, with the request noted."),
)
compaction = extend_schema(
    operation_id="compact_state",
    tags=["maintenance"],
    summary="Compact a state",
    description=f"Asks the workers to delete what no read can need. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    parameters=[IDEMPOTENCY_KEY, LOCATION, REPLAYED],
    responses=_run_accepted("The run, queued.", 404, 409, 422),
)
expiry = extend_schema(
    operation_id="expire_state",
    tags=["maintenance"],
    summary="Free expired rows of a state",
    description=f"Asks the workers to delete the rows whose time to live is over. Scope: {Scope.MAINTAIN.value}.",
    request=None,
    parameters=[IDEMPOTENCY_KEY, LOCATION, REPLAYED],
    responses=_run_accepted("The run, queued.", 404, 409, 422),
)
runs = extend_schema(
    operation_id="list_runs",
    tags=["maintenance"],
    summary="Maintenance runs, the newest first",
    description="Those that were requested and those of the schedule; finished ones are deleted in time.",
    parameters=[RunsParameters, *CONDITIONAL],
    responses=answers(200, _listed("runs", RunSerializer), description="The runs.") | UNCHANGED,
)
run = extend_schema(
    operation_id="get_run",
    tags=["maintenance"],
    summary="One maintenance run",
    description="How far it is, and once it has ended, the sizes before and after.",
    parameters=CONDITIONAL,
    responses=answers(200, RunSerializer, 404, description="The run.") | UNCHANGED,
)
cancel = extend_schema(
    operation_id="cancel_run",
    tags=["maintenance"],
    summary="Cancel a maintenance run",
    description=f"A queued run ends at once, a running one after its current page. Scope: {Scope.MAINTAIN.value}.",
    parameters=[LOCATION],
    responses=_run_accepted("The run, cancelled.", 404, 409),
)
tokens = extend_schema(
    operation_id="create_token",
    tags=["access"],
    summary="Make a short-lived token",
    description="For a program that must not have the API key, such as a page in a browser. A token reads, within "
    "restrictions that are never wider than the key's, and ends with the key. It is not stored: `id` revokes it. "
    f"Scope: {Scope.ISSUE_TOKENS.value}.",
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
    summary="Usage of API keys by hour and state, the newest first",
    description="A restricted API key gets its own usage. A session needs the permission `api_keys.view_usagehour`, "
    "and a token gets none. Requests are shown some seconds after they were answered.",
    parameters=[UsageParameters, *CONDITIONAL],
    responses=answers(200, _listed("usage", UsageSerializer), description="Usage.") | UNCHANGED,
)
state_query = extend_schema(
    operation_id="query_state",
    tags=["states"],
    summary="Look keys up, all at one committed batch",
    description="One result per key, in the order asked; a key that is absent has a null. `combine` folds the keys "
    "into one value. `min_txid` waits for a batch, `as_of` answers as of an earlier one.",
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
        summary=f"Look one key up, {where}",
        description="The same as a bulk lookup of one key, for clients and caches that know GET. A key that is missing "
        "or expired is a 404 with `key_status`, `txid` and `epoch`.",
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
key_at_path = _key("get_key", "its parts in the path", PARTS, KeyPathParameters)
key = _key("get_key_as_json", "as a JSON list", KeyParameters)
queries = extend_schema(
    operation_id="query_states",
    tags=["states"],
    summary="Look keys up in several states of one pipeline, all at one committed batch",
    description="One answer per query, in the order asked. States of two pipelines have no batch in common: a 400.",
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
    summary="Live entries in pages: a range, a prefix, the top keys",
    description="`next` of a page is the `cursor` of the one behind it, and null on the last one. Whole ranges come as "
    "files from `export.csv`, `export.ndjson` and `export.arrow`.",
    parameters=[EntriesParameters, NEXT, *CONDITIONAL],
    responses=answers(200, EntriesSerializer, *(404, 409, 410), description="A page.", e409=NOT_YET) | UNCHANGED,
)


def _export(file_format: str, label: str, content: Any, rows: str) -> Any:
    file = {(200, FORMATS[file_format].media_type): OpenApiResponse(content, "The file.")}
    return extend_schema(
        operation_id=f"export_{file_format}",
        tags=["states"],
        summary=f"Live entries as {label}: a range, or all",
        description="Streams the entries in key order, all as of one batch, which `Tidemark-Txid` names. "
        f"{rows} Key columns come first, then measures. A transfer that ends without its terminator is incomplete.",
        parameters=[ExportParameters, *EXPORT_HEADERS],
        responses=file | problems(404, 409, 410, 501, e409=NOT_YET),
    )


export_csv = _export("csv", "CSV", OpenApiTypes.STR, "A row of names comes first. A null is an empty field.")
export_ndjson = _export("ndjson", "JSON lines", OpenApiTypes.STR, "One object per line, every digit kept.")
export_arrow = _export("arrow", "an Arrow stream", OpenApiTypes.BINARY, "In Arrow's IPC stream format.")
history = extend_schema(
    operation_id="get_history",
    tags=["states"],
    summary="The committed versions of a key, the newest first",
    description="From the changelog; without one, the one or two versions that the row itself carries. The next page "
    "is `before` the last txid of this one.",
    parameters=[HistoryParameters, *CONDITIONAL],
    responses=answers(200, HistorySerializer, 404, description="The versions.") | UNCHANGED,
)
