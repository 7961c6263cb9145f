"""Parameters and headers that several calls share, as /api/schema describes them."""

from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from webapp.api.errors import MEDIA_TYPE
from webapp.api.serializers import MAX_ENTRIES, MAX_VERSIONS

HEADER: Literal["header"] = "header"


def query(name: str, schema: Any = str, description: str = "", **options: Any) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.QUERY, description=description, **options)


def told(name: str, description: str, statuses: list[int], schema: Any = str) -> OpenApiParameter:
    """Return a header of these answers."""
    return OpenApiParameter(name, schema, HEADER, description=description, response=statuses)


def limit(most: int, default: int) -> OpenApiParameter:
    return query("limit", {"type": "integer", "minimum": 1, "maximum": most, "default": default})


LIMIT = limit(500, 50)
LOCATION = told("Location", "Where the run is", [202])
ETAG = told("ETag", "Changes when the answer does", [200, 304])
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, HEADER, description="The ETag of the last answer: 304 if nothing has changed"
)
CONDITIONAL = [IF_NONE_MATCH, ETAG]
MEASURES = query("measures", str, "Which to answer, with commas between; all if absent")
AS_OF = query("as_of", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "As after this batch")

FIRST_PARTS = 'as a JSON list, `["JFK"]`; bare text is the first part alone'
ENTRIES = [
    query("prefix", str, f"The first parts of the keys, {FIRST_PARTS}"),
    query("from", str, f"Keys from here on, {FIRST_PARTS}"),
    query("to", str, f"Keys before this one, {FIRST_PARTS}"),
    query("search", str, "Keys with a part that begins so, whatever its case"),
    query("order_by", str, "A measure, `-` before it for the largest first; in key order if absent"),
    query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES},
        "Of a page, 50 if absent. A stream has all entries if absent, and may be asked for more",
    ),
    query("cursor", str, "`next` of the page before, which carries the whole question"),
    query(
        "as_of",
        {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, {"type": "string", "enum": ["committed"]}]},
        "As after this batch, on all pages; `committed`: as after the one that is committed at the first page",
    ),
    MEASURES,
    query("format", {"type": "string", "enum": ["json", "csv", "ndjson", "arrow"]}, "In place of `Accept`"),
    told("Link", 'Where the next page is, `rel="next"`', [200]),
    told("Tidemark-Txid", "Of a stream: the batch that it is of", [200], int),
    told("Content-Disposition", "Of a stream: a name for the file", [200]),
]
HISTORY = [
    query("key", str, "As a JSON list; where there is one key column, its bare value. Not needed where there is none"),
    limit(MAX_VERSIONS, 100),
    query("before", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "Versions of earlier batches than this"),
]


# Problem details as /api/schema describes them: one shape, and what each status means.


class ProblemSerializer(serializers.Serializer):
    """Problem details, RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="what is wrong, with which value, and what to do; for people")
    request_id = serializers.CharField(required=False, help_text="of this request, as in X-Request-ID and in the log")
    index = serializers.IntegerField(required=False, help_text="which key of the request is wrong, counted from 0")
    query = serializers.IntegerField(required=False, help_text="which of several queries is wrong, counted from 0")
    txid = serializers.IntegerField(required=False, help_text="the batch that is committed now")
    min_txid = serializers.IntegerField(required=False, help_text="the batch that was waited for")
    oldest_txid = serializers.IntegerField(required=False, help_text="the oldest batch the question can be answered at")
    committed_txid = serializers.IntegerField(required=False, help_text="the newest batch that can be asked for")


def example(name: str, status: int, title: str, detail: str, **members: Any) -> OpenApiExample:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    return OpenApiExample(name, body, media_type=MEDIA_TYPE, response_only=True, status_codes=[str(status)])


def problem(description: str, *examples: OpenApiExample) -> OpenApiResponse:
    return OpenApiResponse(ProblemSerializer, description, examples=list(examples))


UNAUTHORIZED = example("no key", 401, "Unauthorized", "Authentication credentials were not provided.")
FORBIDDEN = example("scope", 403, "Forbidden", "this API key lacks the scope 'maintain'; it has read")
UNKNOWN_STATE = example("unknown", 404, "Not Found", "state 'route' does not exist; there are routes, totals")
WRONG_KEY = example("key", 400, "Bad Request", "key 3: origin must be text, got 9", index=3)
BUSY = example(
    "busy", 409, "Conflict",
    "state 'routes': compaction 7 is running already, asked for by schedule; wait until it is done, or cancel it",
)  # fmt: skip
NOT_COMMITTED = example(
    "not yet", 409, "Conflict",
    "state 'routes': batch 44 is not committed, the newest one is 42; wait for it, or ask for an earlier one",
    committed_txid=42,
)  # fmt: skip
OUT_OF_REACH = example(
    "too long ago", 410, "Gone",
    "state 'routes': batch 3 is out of reach, this query can be answered from batch 17 on; ask for that or a later one",
    oldest_txid=17,
)  # fmt: skip
NOT_REACHED = example(
    "still waiting", 503, "Service Unavailable",
    "state 'routes': batch 44 was not committed within 5000 ms, the newest one is 42; ask again",
    txid=42, min_txid=44,
)  # fmt: skip

DESCRIPTIONS = {
    400: problem("The request does not fit.", WRONG_KEY),
    401: problem("No API key, or an unknown or revoked one, and no session.", UNAUTHORIZED),
    403: problem("The key lacks the scope or is confined to other rows, or the user lacks the permission.", FORBIDDEN),
    404: problem("There is no such thing; the detail names those there are.", UNKNOWN_STATE),
    406: problem("The request accepts none of the formats that the answer can have."),
    409: problem("This cannot be had now; the detail says why.", BUSY),
    410: problem("The batch is too long ago to be told.", OUT_OF_REACH),
    413: problem("The body is too large, packed or unpacked."),
    415: problem("The body must be JSON, and say so in Content-Type; it may be packed by gzip."),
    429: problem("Too many requests: `Retry-After` says when to come again."),
    503: problem("The database or the task queue does not answer; `Retry-After` says when to ask again."),
    504: problem("The question took longer than the server lets one take: ask for less."),
}
NOT_YET = problem("The batch asked for is not committed yet.", NOT_COMMITTED)
STILL_WAITING = problem("The batch waited for did not come in time, or the database does not answer.", NOT_REACHED)

UNCHANGED = {304: OpenApiResponse(description="The answer is the one that `If-None-Match` names.")}

ALWAYS = (401, 403, 406, 429, 503, 504)


def answers(
    status: int, success: Any, *errors: int, description: str = "", **instead: OpenApiResponse
) -> dict[Any, Any]:
    """Return the answers of a call: the success, its own problems, and those that every call may have.

    instead: other words for a problem, as `e409=..`.
    """
    told = {code: instead.get(f"e{code}", DESCRIPTIONS[code]) for code in sorted({*ALWAYS, *errors})}
    return {status: OpenApiResponse(success, description)} | {(code, MEDIA_TYPE): told[code] for code in told}


# What holds for every call, added to the schema once it is made: headers of answers, bodies without other members.


HEADERS = {
    "X-Request-ID": "The request's own, or one made here; the log has it, too",
    "RateLimit-Limit": "Requests that may come at once",
    "RateLimit-Remaining": "How many of them are left",
    "RateLimit-Reset": "Seconds until all of them are back",
}
OF_STATUS = {
    "401": {"WWW-Authenticate": "How to come in"},
    "429": {"Retry-After": "Seconds"},
    "503": {"Retry-After": "Seconds"},
}
METHODS = ("get", "post", "delete")


def describe_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A postprocessing hook of drf-spectacular."""
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Request"):
            schema["additionalProperties"] = False
    calls = [path[method] for path in result["paths"].values() for method in METHODS if method in path]
    for call in calls:
        for status, response in call["responses"].items():
            headers = HEADERS | OF_STATUS.get(status, {})
            response["headers"] = _described(headers) | response.get("headers", {})
    return result


def _described(headers: dict[str, str]) -> dict[str, Any]:
    return {name: {"schema": {"type": "string"}, "description": text} for name, text in headers.items()}


# How /api/schema says that an API key is shown.


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "webapp.accounts.authentication.ApiKeyAuthentication"
    name = ["bearer", "X-Api-Key"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either will do

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key, `tmk_..`"},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `tmk_..`"},
        ]
