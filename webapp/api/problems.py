"""The problems that the API and the events process answer with, by their code: one table for answers, pages and docs.

A problem document is RFC 9457's. Its `code` is for programs and does not change; its `type` is the address of what
the page /problems says of the code; its `detail` is for people, and says which value is wrong.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from structlog.contextvars import get_contextvars

MEDIA_TYPE = "application/problem+json"
PAGE = "/problems"


class Problem(NamedTuple):
    """meaning: what has happened. remedy: what a client or its author does about it. Both may hold `code`."""

    status: int
    title: str
    meaning: str
    remedy: str


RETRY = "Try again after `Retry-After` seconds."

PROBLEMS: Mapping[str, Problem] = {
    # 400
    "invalid_request": Problem(
        400,
        "Invalid request",
        "A member of the body, a parameter, a header or a measure is missing, of the wrong type or out of range, or "
        "states of two pipelines are asked for together.",
        "Correct what `detail` names.",
    ),
    "invalid_json": Problem(
        400,
        "Invalid JSON",
        "The body is not JSON, is cut short, is nested over 254 levels deep, or is not compressed as "
        "`Content-Encoding` says.",
        "Send a JSON document in UTF-8, whole.",
    ),
    "invalid_key": Problem(
        400,
        "Invalid key",
        "A key, or the first parts of one, does not fit the state's key columns. `index` is its place in `keys`, and "
        "`lookup` that of the lookup, counted from 0.",
        "Send as many parts as `key` of `GET /states/{name}` has, each of its type.",
    ),
    "invalid_cursor": Problem(
        400,
        "Invalid cursor",
        "The cursor is of another state, other parameters or another server, or is cut short.",
        "Send `next` unchanged and alone, or start again without a cursor.",
    ),
    "invalid_filter": Problem(
        400,
        "Invalid filter",
        "A filter on values (`where`) names no measure, has an operator that its type lacks, or another type of value.",
        "Correct what `detail` names.",
    ),
    "unknown_parameter": Problem(
        400,
        "Unknown parameter",
        "The query string has a parameter that the call does not know.",
        "Correct its name: `detail` lists the known ones.",
    ),
    "too_many_keys": Problem(
        400,
        "Too many keys",
        "The request has more keys than one may have (`TIDEGAUGE_LOOKUP_MAX_KEYS`, 1,000).",
        "Spread the keys over several requests, each of `max_keys` at most.",
    ),
    "range_too_large": Problem(
        400,
        "Range too large",
        "Entries are sorted by a measure, or folded into groups, which reads their whole range, and it has more keys "
        "than a request may read (`TIDEGAUGE_SORT_MAX_KEYS`, 1,000,000; `TIDEGAUGE_GROUP_MAX_KEYS`, 50,000).",
        "Give a `prefix`, or `from` and `to`, or read the entries in key order.",
    ),
    # 401, 403
    "unauthenticated": Problem(
        401,
        "No API key",
        "The request has neither an API key nor a session.",
        "Send `Authorization: Bearer <API key>`, or sign in.",
    ),
    "invalid_credentials": Problem(
        401,
        "Invalid credentials",
        "The API key is unknown, expired or revoked, or the token's is.",
        "Ask an administrator for another API key.",
    ),
    "token_refused": Problem(
        401,
        "Token refused",
        "The token has expired or was revoked, or is for another installation or a later time.",
        "Have another one made with the API key (`POST /tokens`).",
    ),
    "permission_denied": Problem(
        403,
        "Permission denied",
        "The API key lacks a scope, the user a permission, or the request of a browser its CSRF token; or pages of "
        "this origin may not subscribe.",
        "Use an API key with the scope that `detail` names, or ask an administrator.",
    ),
    "outside_key_scope": Problem(
        403,
        "Outside the key scope",
        "The API key is restricted to some states, keys or saved queries, and this is none of them, whether it exists "
        "or not. `index` is the place of the first such key.",
        "Ask for what the API key may read, or use another one.",
    ),
    # 404
    "not_found": Problem(
        404, "Nothing at this address", "The API has no such path.", "Compare the path with `/api/docs`."
    ),
    "unknown_state": Problem(
        404,
        "Unknown state",
        "No state has this name, or none that can have a key within the key scope.",
        "Choose one of those that `GET /states` lists.",
    ),
    "key_not_found": Problem(
        404,
        "Key not found",
        "The state has no such key as of batch `txid`. `key_status`: it is missing, or past its time to live.",
        "Nothing, if the key may be absent; a bulk lookup answers such keys with null.",
    ),
    "unknown_pipeline": Problem(
        404, "Unknown pipeline", "No pipeline has this name.", "Choose one of those that `GET /pipelines` lists."
    ),
    "unknown_run": Problem(
        404,
        "Unknown run",
        "No maintenance run has this number; finished ones are deleted in time.",
        "Choose one of those that `GET /maintenance` lists.",
    ),
    "unknown_query": Problem(
        404,
        "Unknown saved query",
        "No published query has this name or version, or the API key may not read its states.",
        "Choose one of those that `GET /saved-queries` lists.",
    ),
    "unknown_token": Problem(
        404,
        "Unknown token",
        "The id is not one of a token of this API key, or of any.",
        "Use the `id` of the answer to `POST /tokens`, with the API key that made the token.",
    ),
    # 405, 406, 408, 413, 415, 421
    "method_not_allowed": Problem(
        405, "Method not allowed", "The path has other methods than this.", "Use one of those in `Allow`."
    ),
    "not_acceptable": Problem(
        406,
        "Not acceptable",
        "`Accept` excludes the content type that the path has.",
        "Accept it, or take the path of the other type: `detail` names it.",
    ),
    "request_too_slow": Problem(
        408,
        "Request too slow",
        "The body of the request did not arrive in time (`TIDEGAUGE_REQUEST_SECONDS`).",
        "Send it faster, or less at a time.",
    ),
    "request_too_large": Problem(
        413,
        "Request too large",
        "The body is larger than a request may be (4 MB), compressed or not.",
        "Spread the keys over several requests.",
    ),
    "unsupported_media_type": Problem(
        415,
        "Unsupported media type",
        "The body is not declared as JSON, or is compressed in another way than gzip.",
        "Send `Content-Type: application/json`.",
    ),
    "events_elsewhere": Problem(
        421,
        "Events come from another process",
        "Event streams are served by the events process, and this is the web process.",
        "Have the proxy send `/events/` there, or use the address that `detail` names.",
    ),
    # 409, 410
    "not_committed": Problem(
        409,
        "Not committed yet",
        "The batch in `at_txid` is later than the committed one, `committed_txid`.",
        "Wait for it with `min_txid`, or ask for an earlier one.",
    ),
    "not_reached": Problem(
        409,
        "Batch not reached in time",
        "The batch in `min_txid` was not committed within `wait_ms`; `txid` is the newest one.",
        RETRY,
    ),
    "other_epoch": Problem(
        409,
        "Another epoch",
        "The ledger went back since the batch that was named: its numbers now mean other batches. `epoch` and `txid` "
        "are those of now.",
        "Ask without `min_txid`, `at_txid` and `epoch`, and write again what is lost.",
    ),
    "state_busy": Problem(
        409,
        "State is busy",
        "Other work on the state's tables is under way.",
        "Try again when it has ended.",
    ),
    "run_unfinished": Problem(
        409,
        "A run is unfinished",
        "A maintenance run of the state waits or runs; there is one at a time.",
        "Wait until it is done, or cancel it.",
    ),
    "nothing_to_replay": Problem(
        409,
        "Nothing to replay",
        "No dead letter of the sources that was chosen can be replayed: there is none, they were replayed, no raw "
        "record of them was kept, or a partial reprocess has counted them.",
        "Choose others: `GET /pipelines/{name}/dead-letters/groups` has `replayable`.",
    ),
    "replay_under_way": Problem(
        409,
        "A replay is under way",
        "Dead letters of the pipeline wait for a batch, or are in one that is not committed.",
        "Wait until `waiting` of `GET /pipelines/{name}/dead-letters/replay` is 0.",
    ),
    "pipeline_not_driven": Problem(
        409,
        "The pipeline has no driver",
        "Only a driver replays dead letters, and none is running.",
        "Start the driver and ask again, or run the command in `detail`: then the next driver replays them.",
    ),
    "run_finished": Problem(
        409, "The run has ended", "A finished maintenance run cannot be cancelled.", "There is nothing to do."
    ),
    "too_many_revoked_tokens": Problem(
        409,
        "Too many revoked tokens",
        "The API key has 10,000 revoked tokens that have not expired.",
        "Rotate the API key without a grace period, or revoke it: either ends all of its tokens.",
    ),
    "out_of_reach": Problem(
        410,
        "Batch out of reach",
        "The batch in `at_txid` is older than what is kept; `oldest_txid` is the oldest that can be answered.",
        "Ask for that or a later one; a changelog keeps batches for longer.",
    ),
    "tiles_gone": Problem(
        410,
        "Tiles gone",
        "A window begins before the oldest tiles that the state keeps.",
        "Ask for a shorter window; `tiles` in the declaration of the state says how long they are kept.",
    ),
    "pages_gone": Problem(
        410,
        "Pages gone",
        "The batch that these pages show is no longer available, was replayed, or is of another epoch, or the state "
        "was created again.",
        "Start again without the cursor.",
    ),
    "withdrawn_query": Problem(
        410,
        "Saved query withdrawn",
        "The version of the query, or all of them, was withdrawn.",
        "Run the query without a version, or one of those that `GET /saved-queries` lists.",
    ),
    "broken_query": Problem(
        410,
        "Saved query without its state",
        "A state that the query reads was renamed, retired or lacks a measure; `detail` names the read and the state.",
        "Ask the publisher of the query for a new version.",
    ),
    "former_state": Problem(
        410,
        "State retired or renamed",
        "The state was retired or renamed; `detail` says what became of it.",
        "Use what replaced it, if anything did.",
    ),
    "former_pipeline": Problem(
        410,
        "Pipeline retired or renamed",
        "The pipeline was retired or renamed; `detail` says what became of it.",
        "Use what replaced it, if anything did.",
    ),
    # 422, 429
    "idempotency_key_reused": Problem(
        422,
        "Idempotency key reused",
        "The `Idempotency-Key` was sent with another request before.",
        "Send another key.",
    ),
    "too_many_requests": Problem(
        429,
        "Too many requests",
        "The API key, token, user or address has sent more than its rate allows, or an address too many wrong keys.",
        RETRY + " `RateLimit` says what is left.",
    ),
    "too_many_at_once": Problem(
        429,
        "Too many at once",
        "The API key, user or address has as many exports, searches or waits for a batch under way as one may have.",
        "Wait until one of them has ended.",
    ),
    "too_many_streams": Problem(
        429,
        "Too many event streams",
        "The API key or user has as many event streams open as one may have.",
        "Close some, or " + RETRY[0].lower() + RETRY[1:],
    ),
    # 500 and above
    "internal_error": Problem(
        500,
        "Internal error",
        "The server has a fault, or is set up wrongly. Its log has the details, under `request_id`.",
        "Report it to the operator with the `request_id`.",
    ),
    "exports_unavailable": Problem(
        501,
        "Exports unavailable",
        "The server reaches its database through a connection pooler, and an export needs a session of its own.",
        "The operator sets `DATABASE_DIRECT_URL`; pages of entries work without it.",
    ),
    "database_unavailable": Problem(503, "Database unavailable", "The database does not answer.", RETRY),
    "store_unavailable": Problem(503, "Store unavailable", "The store of this state does not answer.", RETRY),
    "task_queue_unavailable": Problem(
        503, "Task queue unavailable", "The request could not be given to the workers; nothing was begun.", RETRY
    ),
    "state_not_served": Problem(
        503,
        "State not served",
        "What the ledger says of the state and what its store holds do not agree, so it is not served.",
        "The operator does what `detail` says; docs/recovery.md explains each finding.",
    ),
    "changed_while_reading": Problem(
        503, "Changed while it was read", "Batches are published faster than this read advanced.", RETRY
    ),
    "too_many_clients": Problem(503, "Too many clients", "The process has as many clients as it may have.", RETRY),
    "busy": Problem(503, "Busy", "The process has as many requests of this kind under way as it may have.", RETRY),
    "shutting_down": Problem(503, "Shutting down", "The process is being stopped; another one takes over.", RETRY),
    "time_limit_exceeded": Problem(
        504,
        "Time limit exceeded",
        "The request took longer than a statement may (`TIDEGAUGE_STATEMENT_TIMEOUT_MS`).",
        "Ask for fewer keys, a shorter range, or without a search.",
    ),
}


CODES = list(PROBLEMS)


def problem(code: str, detail: str, **members: Any) -> dict[str, Any]:
    """Return a problem document. members: further ones, for programs."""
    known = PROBLEMS[code]
    body = {
        "type": f"{PAGE}#{code}",
        "code": code,
        "title": known.title,
        "status": known.status,
        "detail": detail,
        **members,
    }
    request_id = get_contextvars().get("request_id")
    return body | {"request_id": str(request_id)} if request_id else body


def codes_of(status: int) -> list[str]:
    return [code for code, known in PROBLEMS.items() if known.status == status]


def by_status() -> list[tuple[str, Problem]]:
    return sorted(PROBLEMS.items(), key=lambda each: each[1].status)


def markdown() -> str:
    """Return the page of the documentation that lists all problems."""
    lines = [
        "# Problems\n",
        "Every error is a problem document (RFC 9457) with a stable `code`, and a `type` that is the address of the "
        "code on the server's page `/problems`. [The API](../api.md#errors) shows one.\n",
        "| code | status | meaning | remedy |\n|---|---|---|---|",
    ]
    for code, known in by_status():
        lines.append(f"| <span id='{code}'>`{code}`</span> | {known.status} | {known.meaning} | {known.remedy} |")
    return "\n".join(lines) + "\n"
