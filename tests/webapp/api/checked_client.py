"""A test client that checks every answer of the API against /api/schema."""

from functools import cache
from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator, FormatChecker

from tidegauge.state_backends import BACKENDS


class CheckedClient(Client):
    """A client for which an undocumented answer is a failure. Paths are given without /api/v1."""

    def __init__(self, key: str | None = None, **options: Any) -> None:
        super().__init__(headers={"Authorization": f"Bearer {key}"} if key else None, **options)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> HttpResponse:
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        content_type = options.pop("content_type", "application/json")
        response = self.generic(method, f"/api/v1{path}", data, content_type=content_type, **options)
        check(method.lower(), response)
        return response


def check(method: str, response: HttpResponse) -> None:
    """Fail unless status, content type and body are the documented ones."""
    documented = _operation(method, response.wsgi_request.resolver_match.route)["responses"]
    assert str(response.status_code) in documented, f"{response.status_code} is not documented: {response.content!r}"
    content = documented[str(response.status_code)].get("content")
    if content is None:
        assert response.content == b""
        return
    media_type = response.headers["Content-Type"].partition(";")[0]
    assert media_type in content, f"{media_type} is not documented"
    if response.streaming:
        return
    schema = content[media_type]["schema"] | {"components": _schema()["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(orjson.loads(response.content))


def _operation(method: str, route: str) -> dict[str, Any]:
    path = "/" + route.replace("<name:", "{").replace("<int:", "{").replace(">", "}")
    return _schema()["paths"][path][method]


def _schema() -> dict[str, Any]:
    return _schema_with(tuple(BACKENDS))


@cache
def _schema_with(backends: tuple[str, ...]) -> dict[str, Any]:
    """backends: whose names are in the schema; a test may register its own."""
    return SchemaGenerator().get_schema(request=None, public=True)
