"""Problem details as /api/schema describes them: one shape, and what each status means."""

from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from rest_framework import serializers

from webapp.lookup.problems import MEDIA_TYPE


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
    "state 'routes': batch 3 is out of reach, what is asked can be told from batch 17 on; ask for that or a later one",
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
