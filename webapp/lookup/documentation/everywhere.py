"""What holds for every call, added to the schema once it is made: headers of answers, bodies without other members."""

from typing import Any

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
