"""The event streams in /api/schema. The events process serves them, which has no views to describe."""

from typing import Any

from django.conf import settings

from tidegauge.webapp.api.fields import PART
from tidegauge.webapp.api.problems import MEDIA_TYPE, PROBLEMS

EVENT_STREAM = "text/event-stream"
STATUSES = (400, 401, 403, 404, 406, 410, 421, 429, 500, 503, 504)
LISTS = {
    "keys": 'Only these keys, as a JSON list: `[["JFK", "AA"]]`. Excludes `prefix`',
    "prefix": 'Only keys with these first parts, as a JSON list: `["JFK"]`',
    "measures": "Names of the measures to send, separated by commas; all if absent",
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The id of the last event that was received: the stream goes on after it, or begins with a `reset`",
}
TOKEN = {
    "name": "token",
    "in": "query",
    "schema": {"type": "string"},
    "description": "A token of `POST /tokens`, for an `EventSource`, which sends no headers; without other credentials",
}
NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The name of the state",
}


def _event(description: str, members: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = members | (optional or {})
    return {"type": "object", "description": description, "properties": properties, "required": list(members)}


TXID = {"type": "integer", "format": "int64"}
STATE_AT = {
    "state": {"type": "string"},
    "epoch": {"type": "string", "description": "the ledger's incarnation"},
    "txid": TXID | {"description": "the batch"},
}
BATCH_TIME = {"batch_time": {"type": "string", "format": "date-time", "description": "the time of the batch"}}
ISOLATION = {"isolation": {"$ref": "#/components/schemas/IsolationEnum"}}
RESULTS = {"results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}}}
CHANGE = {
    "type": "object",
    "description": "The complete new value of a key, not a difference.",
    "properties": {
        "key": {"type": "array", "items": PART},
        "status": {
            "type": "string",
            "enum": ["found", "removed", "missing", "expired"],
            "description": "`missing` and `expired` in streams of keys of a state without a changelog",
        },
        "value": {"description": "measure to value, or the JSON value; null unless found"},
    },
    "required": ["key", "status", "value"],
}
BATCH = {
    "changes": {"type": "array", "items": {"$ref": "#/components/schemas/Change"}},
    "complete": {
        "type": "boolean",
        "description": "false where the batch has more changes than one event may have, or the state no changelog: "
        "read the state again",
    },
}
RESUMED = {"resumed": {"type": "boolean", "description": "true: nothing was missed; absent otherwise"}}
REASON = {"reason": {"type": "string", "description": "for people"}}
PIPELINES = {"type": "object", "additionalProperties": TXID, "description": "name to its committed batch"}
COMMIT = {
    "pipeline": {"type": "string"},
    "txid": TXID | {"type": ["integer", "null"], "description": "null: it was removed"},
}

# The data of the events of both streams, by the event's name.
OF_STATE = {
    "ready": _event("First, for a state or prefix: read it with this `min_txid`.", STATE_AT, BATCH_TIME | RESUMED),
    "snapshot": _event("First, for keys: their values.", STATE_AT | ISOLATION | RESULTS, BATCH_TIME),
    "batch": _event("A batch was committed.", STATE_AT | BATCH, BATCH_TIME),
    "reset": _event(
        "What was sent is no longer valid. For keys their values; a state is to be read again.",
        STATE_AT | REASON,
        BATCH_TIME | ISOLATION | RESULTS,
    ),
}
OF_COMMITS = {
    "ready": _event("First: where every pipeline is.", {"pipelines": PIPELINES}),
    "tide": _event("A pipeline has committed, or its driver has started, stopped or failed.", COMMIT),
}

BATCH_EVENT = """\
id: 42-8a1f0c2e9b7d4653
event: batch
data: {"state":"flights_by_carrier","epoch":"8a1f0c2e9b7d4653","txid":42,"batch_time":"2026-11-20T07:24:36+00:00",\
"changes":[{"key":["JFK","AA"],"status":"found","value":{"flights":13783}}],"complete":true}

"""
COMMIT_EVENT = """\
event: tide
data: {"pipeline":"flights","txid":42}

"""


def describe_events(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the paths of the events process, and where it is. A hook of drf-spectacular."""
    result["components"]["schemas"] |= {"Change": CHANGE} | _named("State", OF_STATE) | _named("Commits", OF_COMMITS)
    filters = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": LISTS[name]} for name in LISTS
    ]
    result["paths"]["/events/states/{name}"] = _path(
        "follow_state",
        "Follow the changes of a state, or of some keys",
        "Sends an event for each batch as soon as it is committed, in order and once, with the new values of the "
        "keys that it changed. The first event is `ready`, or with `keys` `snapshot`, which has their values. `reset` "
        "says that what was sent before is no longer valid. After a disconnect, send the last id as `Last-Event-ID` to "
        "go on without a gap. A client that reads nothing for 20 seconds is disconnected.",
        [NAME, *filters, TOKEN, LAST_EVENT_ID],
        _named("State", OF_STATE),
        BATCH_EVENT,
    )
    result["paths"]["/events/tide"] = _path(
        "follow_commits",
        "Follow the commits of all pipelines",
        "Sends `ready` with the committed batch of every pipeline that the caller may know of, then `tide` whenever "
        "one has committed a batch, or its driver has started, stopped or failed. Events have no ids: after a "
        "disconnect, `ready` comes again.",
        [TOKEN],
        _named("Commits", OF_COMMITS),
        COMMIT_EVENT,
    )
    return result


def _named(stream: str, events: dict[str, Any]) -> dict[str, Any]:
    return {f"{stream}{event.capitalize()}Event": schema for event, schema in events.items()}


def _path(
    operation_id: str,
    summary: str,
    description: str,
    parameters: list[dict[str, Any]],
    events: dict[str, Any],
    example: str,
) -> dict[str, Any]:
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    # OpenAPI 3.1 has no word for events: generators of clients read this as the type of an event's data.
    data = {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in events]}
    stream = {
        "description": "The stream; the schema is of each event's data.",
        "content": {EVENT_STREAM: {"schema": data, "examples": {"an event": {"value": example}}}},
    }
    codes = {status: [code for code in PROBLEMS if PROBLEMS[code].status == status] for status in STATUSES}
    refusals = {
        str(status): problem | {"description": "Codes: " + ", ".join(f"`{code}`" for code in codes[status]) + "."}
        for status in STATUSES
    }
    operation = {
        "operationId": operation_id,
        "tags": ["events"],
        "summary": summary,
        "description": description,
        "parameters": parameters,
        "security": [{"bearer": []}, {"X-Api-Key": []}],
        "responses": {"200": stream, **refusals},
    }
    url = settings.TIDEGAUGE_EVENTS_URL or "/"
    return {"get": operation | {"servers": [{"url": url, "description": "The events process"}]}}
