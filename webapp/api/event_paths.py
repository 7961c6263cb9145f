"""The event streams in /api/schema. The events process serves them, which has no views to describe."""

from typing import Any

from django.conf import settings

from webapp.api.problems import MEDIA_TYPE, PROBLEMS

EVENT_STREAM = "text/event-stream"
STATUSES = (400, 401, 403, 404, 406, 410, 421, 429, 500, 503, 504)
LISTS = {
    "keys": 'Only these keys, as a JSON list: `[["JFK", "AA"]]`. Excludes `prefix`',
    "prefix": 'Only keys with these first parts, as a JSON list: `["JFK"]`',
    "measures": "Which to send, with commas between; all if absent",
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The id of the last event seen: the stream goes on behind it, or begins with a `reset`",
}
TOKEN = {
    "name": "token",
    "in": "query",
    "schema": {"type": "string"},
    "description": "A short-lived token, for an `EventSource`, which sends no headers; without other credentials",
}
NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The name of the state",
}


def describe_events(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the paths of the events process, and where it is. A hook of drf-spectacular."""
    filters = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": LISTS[name]} for name in LISTS
    ]
    result["paths"]["/events/states/{name}"] = _path(
        "follow_state",
        "Follow a state, or some keys of it",
        "Sends each committed batch once, in order: `ready` or `snapshot` first, then `batch`, and `reset` where what "
        "was sent is no longer valid. Values are complete, not differences.",
        [NAME, *filters, TOKEN, LAST_EVENT_ID],
    )
    result["paths"]["/events/tide"] = _path(
        "follow_commits",
        "Follow the commits of all pipelines",
        "Sends `tide` when a pipeline has committed, or its driver has started, stopped or failed.",
        [TOKEN],
    )
    return result


def _path(operation_id: str, summary: str, description: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    stream = {"description": "The stream.", "content": {EVENT_STREAM: {"schema": {"type": "string"}}}}
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
    url = settings.TIDEMARK_EVENTS_URL or "/"
    return {"get": operation | {"servers": [{"url": url, "description": "The events process"}]}}
