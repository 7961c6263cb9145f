"""What /api/schema says of the calls that read values, call by call."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema

from webapp.lookup.documentation.lookups import (
    AnswersSerializer,
    EntriesSerializer,
    HistorySerializer,
    QueriesSerializer,
    QuerySerializer,
    StateAnswerSerializer,
)
from webapp.lookup.documentation.parameters import CONDITIONAL, ENTRIES, HISTORY
from webapp.lookup.documentation.refusals import NOT_YET, STILL_WAITING, UNCHANGED, answers

KEYS = [["JFK", "AA"], ["JFK", "ZZ"]]
BATCH = {"txid": 42, "as_of": "2026-11-20T07:09:00.123456+00:00"}
OF_STATE = {"state": "flights_by_carrier", "isolation": "committed"}
RESULTS = [
    {"key": ["JFK", "AA"], "status": "found", "value": {"flights": 13783}},
    {"key": ["JFK", "ZZ"], "status": "missing", "value": None},
]
COMBINED = {"keys": 1, "missing": 1, "expired": 0, "value": {"flights": 13783}}
QUERY = {"keys": KEYS, "measures": ["flights"]}


def _asked(name: str, body: dict) -> OpenApiExample:
    return OpenApiExample(name, body, request_only=True)


def _told(name: str, body: dict) -> OpenApiExample:
    return OpenApiExample(name, body, response_only=True, status_codes=["200"], media_type="application/json")


state_query = extend_schema(
    operation_id="query_state",
    tags=["states"],
    summary="Look keys up, all at one committed batch",
    request=QuerySerializer,
    responses=answers(
        200,
        StateAnswerSerializer,
        *(400, 404, 409, 410, 413, 415),
        description="One result per key asked, or all of them combined.",
        e409=NOT_YET,
        e503=STILL_WAITING,
    )
    | UNCHANGED,
    parameters=CONDITIONAL,
    examples=[
        _asked("two keys", QUERY),
        _asked("combined", QUERY | {"combine": True}),
        _asked("read your own write", QUERY | {"min_txid": 42, "wait_ms": 1000}),
        _told("two keys", OF_STATE | BATCH | {"results": RESULTS}),
        _told("combined", OF_STATE | BATCH | {"combined": COMBINED}),
    ],
)
queries = extend_schema(
    operation_id="query_states",
    tags=["states"],
    summary="Look keys up in several states of one pipeline, all at one committed batch",
    request=QueriesSerializer,
    responses=answers(
        200,
        AnswersSerializer,
        *(400, 404, 409, 410, 413, 415),
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
        _told("one state", BATCH | {"answers": [OF_STATE | {"results": RESULTS}]}),
    ],
)
entries = extend_schema(
    operation_id="list_entries",
    tags=["states"],
    summary="Live entries: a range, a prefix, the largest; in pages, or the whole of it as a stream",
    description="JSON comes in pages. `Accept: text/csv`, `application/x-ndjson` or "
    "`application/vnd.apache.arrow.stream` streams all entries in key order, from one batch; `limit` then has no "
    "default and no upper bound, and there is neither search, order nor cursor.",
    parameters=[*ENTRIES, *CONDITIONAL],
    responses=answers(200, EntriesSerializer, *(400, 404, 409, 410), description="A page, or everything.", e409=NOT_YET)
    | UNCHANGED
    | {
        (200, media_type): OpenApiResponse(kind, "A page, or everything.")
        for media_type, kind in {
            "text/csv": OpenApiTypes.STR,
            "application/x-ndjson": OpenApiTypes.STR,
            "application/vnd.apache.arrow.stream": OpenApiTypes.BINARY,
        }.items()
    },
)
history = extend_schema(
    operation_id="get_history",
    tags=["states"],
    summary="The committed versions of a key, the newest first",
    description="From the changelog; without one, the one or two versions that the row itself carries. The next page "
    "is `before` the last txid of this one.",
    parameters=[*HISTORY, *CONDITIONAL],
    responses=answers(200, HistorySerializer, 400, 404) | UNCHANGED,
)
