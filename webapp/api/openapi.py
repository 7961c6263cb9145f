"""What several calls share in /api/schema: headers, names in paths, problems, how an API key is sent."""

from collections.abc import Mapping, Set
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from tidegauge.webapp.api.problems import CODES, MEDIA_TYPE, PAGE, PROBLEMS, codes_of, problem

HEADER: Literal["header"] = "header"
METHODS = ("get", "post", "delete")

# Headers of all answers, and of those with a certain status.
HEADERS = {
    "X-Request-ID": "That of the request, or a generated one; the log has it, too",
    "Cache-Control": "Shared caches may store no answer, clients those that have an ETag",
    "Vary": "What an answer depends on beside its address: the API key, the session, the encoding",
    "RateLimit-Policy": "How many requests may be sent at once (`q`), and in how many seconds that many become "
    "available (`w`)",
    "RateLimit": "How many requests are left (`r`), and in how many seconds all of them are available again (`t`)",
}
HEADERS_OF_STATUS = {
    "401": {"WWW-Authenticate": "How to authenticate"},
    "429": {"Retry-After": "Seconds"},
    "503": {"Retry-After": "Seconds"},
}


# Parameters of paths; a `name` by the collection that it is in.
NAMES_IN = {
    "states": "The name of a state, as `GET /states` lists it",
    "pipelines": "The name of a pipeline, as `GET /pipelines` lists it",
    "saved-queries": "The name of a saved query, as `GET /saved-queries` lists it",
}
IDS_IN = {
    "run_id": "The `id` of a run",
    "token_id": "The `id` of a token",
    "version": "The number of a published version",
}


def answer_header(name: str, description: str, statuses: list[int], schema: Any = str) -> OpenApiParameter:
    """Return a header of the answers that have one of these statuses."""
    return OpenApiParameter(name, schema, HEADER, description=description, response=statuses)


LOCATION = answer_header("Location", "Where the run is", [202])
NEXT = answer_header("Link", 'Where the next page is, `rel="next"`', [200])
ETAG = answer_header("ETag", "Changes when the answer does", [200, 304])
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, HEADER, description="The ETag of the last answer: 304 if nothing has changed"
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key", str, HEADER,
    description="A text of yours, such as a UUID. The same request with the same key within 24 hours changes "
    "nothing, and gets `Idempotent-Replayed: true`; a request for maintenance gets the run of the first one",
)  # fmt: skip
REPLAYED = answer_header("Idempotent-Replayed", "`true`: this request was carried out before, with this key", [202])
ONCE = [IDEMPOTENCY_KEY, REPLAYED]
CONDITIONAL = [IF_NONE_MATCH, ETAG]


class ProblemSerializer(serializers.Serializer):
    """Problem details, RFC 9457."""

    type = serializers.CharField(help_text=f"the address of what this server's page {PAGE} says of the code")
    code = serializers.ChoiceField(CODES, help_text="what is wrong, for programs; further ones may be added")
    title = serializers.CharField(help_text="the same for all problems of a code; for people")
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="what is wrong, with which value, and what to do; for people")
    request_id = serializers.CharField(required=False, help_text="of this request, as in X-Request-ID and in the log")
    index = serializers.IntegerField(required=False, help_text="which key of the request is wrong, counted from 0")
    max_keys = serializers.IntegerField(required=False, help_text="how many keys a request may have")
    lookup = serializers.IntegerField(required=False, help_text="which of several lookups is wrong, counted from 0")
    txid = serializers.IntegerField(required=False, help_text="the batch that is committed now")
    min_txid = serializers.IntegerField(required=False, help_text="the batch that was waited for")
    oldest_txid = serializers.IntegerField(
        required=False, help_text="the oldest batch at which the request can be answered"
    )
    epoch = serializers.CharField(required=False, allow_blank=True, help_text="the ledger's epoch now")
    key_status = serializers.ChoiceField(["missing", "expired"], required=False, help_text="of a key that is not found")
    committed_txid = serializers.IntegerField(required=False, help_text="the newest batch that can be requested")


def example(name: str, code: str, detail: str, **members: Any) -> OpenApiExample:
    status = str(PROBLEMS[code].status)
    body = problem(code, detail, **members)
    return OpenApiExample(name, body, media_type=MEDIA_TYPE, response_only=True, status_codes=[status])


def described(status: int, description: str, *examples: OpenApiExample) -> OpenApiResponse:
    codes = ", ".join(f"`{code}`" for code in codes_of(status))
    return OpenApiResponse(ProblemSerializer, f"{description} Codes of this status: {codes}.", examples=list(examples))


UNAUTHORIZED = example("no key", "unauthenticated", "Authentication credentials were not provided.")
FORBIDDEN = example("scope", "permission_denied", "this API key lacks the scope 'maintain'; it has read")
UNKNOWN_STATE = example("unknown", "unknown_state", "state 'route' does not exist; there are routes, totals")
WRONG_KEY = example("key", "invalid_key", "key 3: origin must be text, got 9", index=3)
BUSY = example(
    "busy", "run_unfinished",
    "state 'routes': compaction 7 is running already, asked for by schedule; wait until it is done, or cancel it",
)  # fmt: skip
KEY_REUSED = example(
    "another request", "idempotency_key_reused",
    "Idempotency-Key '7f0c' was sent with another request, of compaction of routes, run 7; send another key",
)  # fmt: skip
NOT_COMMITTED = example(
    "not yet", "not_committed",
    "state 'routes': batch 44 is not committed, the newest one is 42; wait for it, or ask for an earlier one",
    committed_txid=42,
)  # fmt: skip
OUT_OF_REACH = example(
    "too long ago", "out_of_reach",
    "state 'routes': batch 3 is out of reach, this query can be answered from batch 17 on; ask for that or a later one",
    oldest_txid=17,
)  # fmt: skip
OTHER_EPOCH = example(
    "another epoch", "other_epoch",
    "state 'routes': epoch '8a1f0c2e9b7d4653' is no longer valid: the ledger was restored and is at batch 40 of epoch "
    "'51d0f7a3c2e84b96'; retry without min_txid, at_txid and epoch, and re-send lost writes",
    epoch="51d0f7a3c2e84b96", txid=40,
)  # fmt: skip
NOT_REACHED = example(
    "still waiting", "not_reached",
    "state 'routes': batch 44 was not committed within 5000 ms, the newest one is 42; ask again",
    txid=42, min_txid=44,
)  # fmt: skip

DESCRIPTIONS = {
    400: described(400, "The request is invalid.", WRONG_KEY),
    401: described(401, "No API key, or an unknown or revoked one, and no session.", UNAUTHORIZED),
    403: described(
        403,
        "The API key lacks the scope or is restricted to other states or keys, or the user lacks the permission.",
        FORBIDDEN,
    ),
    404: described(404, "It does not exist, or the caller may not know of it.", UNKNOWN_STATE),
    406: described(406, "The request accepts none of the formats that the answer can have."),
    408: described(408, "The body did not arrive in time."),
    409: described(409, "Not possible now; the detail says why.", BUSY),
    410: described(410, "The batch is no longer available, or the state was retired or renamed.", OUT_OF_REACH),
    413: described(413, "The body is too large, compressed or not."),
    415: described(415, "The body must be JSON, and Content-Type must say so; it may be compressed with gzip."),
    422: described(422, "The `Idempotency-Key` was sent with another request.", KEY_REUSED),
    429: described(429, "Too many requests, or too many of a kind at once: `Retry-After` says when to retry."),
    501: described(501, "The server is not set up for exports; the detail says what is missing."),
    503: described(
        503, "The process is busy, or a database or queue does not answer; `Retry-After` says when to retry."
    ),
    504: described(504, "The request exceeded the time limit: request less."),
}
NO_KEY = described(
    404,
    "No such state, or no such key in it.",
    UNKNOWN_STATE,
    example(
        "no key",
        "key_not_found",
        'state \'routes\': key ["JFK","ZZ"] is missing as of batch 42',
        key_status="missing",
        txid=42,
        epoch="8a1f0c2e9b7d4653",
    ),
)
NOT_YET = described(
    409, "The requested batch is not committed yet, or is of another epoch.", NOT_COMMITTED, OTHER_EPOCH
)
NOT_YET_OR_IN_TIME = described(
    409,
    "The batch of `at_txid` is not committed yet, or that of `min_txid` was not in time (`Retry-After` says when to "
    "retry), or the epoch is another one.",
    NOT_COMMITTED,
    NOT_REACHED,
    OTHER_EPOCH,
)

UNCHANGED = {304: OpenApiResponse(description="The answer is still the one that `If-None-Match` identifies.")}

# An unknown parameter is a 400 of every call.
ALWAYS = (400, 401, 403, 406, 429, 503, 504)
OF_BODIES = (408, 413, 415)


def problems(errors: Set[int], instead: Mapping[int, OpenApiResponse]) -> dict[Any, Any]:
    """Return the problems that a call may have: its own, and those of every call. instead: other descriptions."""
    statuses = sorted({*ALWAYS, *errors})
    return {(status, MEDIA_TYPE): instead.get(status, DESCRIPTIONS[status]) for status in statuses}


def describe_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add what holds for every call: headers of answers, names in paths, no unknown members in bodies.

    A hook of drf-spectacular.
    """
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Request"):
            schema["additionalProperties"] = False
        for member in schema.get("properties", {}).values():
            # drf-spectacular writes "any JSON value, or null", of which null is both.
            if member.get("oneOf") == [{}, {"type": "null"}]:
                del member["oneOf"]
    calls = [(path, item[method]) for path, item in result["paths"].items() for method in METHODS if method in item]
    for path, call in calls:
        in_path = IDS_IN | {"name": NAMES_IN.get(path.split("/")[3], "")}
        for parameter in call.get("parameters", []):
            if parameter["in"] == "path" and "description" not in parameter:
                parameter["description"] = in_path[parameter["name"]]
        for status, response in call["responses"].items():
            headers = HEADERS | HEADERS_OF_STATUS.get(status, {})
            response["headers"] = _described(headers) | response.get("headers", {})
    return result


def _described(headers: dict[str, str]) -> dict[str, Any]:
    return {name: {"schema": {"type": "string"}, "description": text} for name, text in headers.items()}


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "tidegauge.webapp.accounts.authentication.ApiKeyAuthentication"
    name = ["bearer", "X-Api-Key"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either will do

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key, `tmk_..`, or a token"},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `tmk_..`"},
        ]
