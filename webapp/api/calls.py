"""What /api/schema says of a call, taken from the call itself.

The docstring of a view's method is the text of its call: the first line is the summary, the rest the description, in
which `$name` stands for an attribute of the view or a setting. Scope, parameters and body are those that the view
checks. `@call` adds what no code says. Nothing here runs when a request is answered.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from django.conf import settings
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, inline_serializer
from rest_framework import serializers

from tidegauge.webapp.api.export import FORMATS
from tidegauge.webapp.api.openapi import CONDITIONAL, OF_BODIES, UNCHANGED, problems
from tidegauge.webapp.api.requests import RequestSerializer

# Answers by operation; `@call` has those of lookups, which show more than one case, and of alerts.
EXAMPLES: Mapping[str, Any] = json.loads((Path(__file__).parent / "examples.json").read_text())

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Call:
    """operation_id, tag: as in OpenAPI. answer: what a success has; None: no body. says: what that is, in words.

    errors: statuses beside those that every call has, every call with a name in its path, and every call with a body.
    instead: how a status is described, in place of its usual text. headers: of the answer, and of requests.
    is_conditional: whether the answer has an ETag; None: every GET but that of a file has.
    """

    operation_id: str
    tag: str
    answer: Any
    says: str
    errors: tuple[int, ...] = ()
    status: int = 200
    body: type[RequestSerializer] | None = None
    headers: Sequence[OpenApiParameter] = ()
    examples: Sequence[OpenApiExample] = ()
    is_conditional: bool | None = None
    instead: Mapping[int, OpenApiResponse] | None = None


def call(
    operation_id: str, tag: str, answer: Any, says: str, *errors: int, **options: Any
) -> Callable[[Method], Method]:
    """Describe a method of an ApiView, see Call."""

    def described(method: Method) -> Method:
        method.call = Call(operation_id, tag, answer, says, errors, **options)  # type: ignore[attr-defined]
        return method

    return described


def listed(name: str, child: type[serializers.Serializer], title: str = "") -> serializers.Serializer:
    """Return the description of a document whose one member, `name`, is a list. title: its name in the schema."""
    return inline_serializer(title or f"{name.capitalize()}List", {name: child(many=True)})


def page_of(name: str, child: type[serializers.Serializer], title: str = "") -> serializers.Serializer:
    """Return the description of a page of a list. title: its name in the schema."""
    following = serializers.CharField(allow_null=True, help_text="the cursor of the next page; null on the last one")
    return inline_serializer(title or name.capitalize(), {name: child(many=True), "next": following})


def asked(name: str, body: dict[str, Any]) -> OpenApiExample:
    return OpenApiExample(name, body, request_only=True)


def answered(name: str, body: Any, status: int = 200, media_type: str = "application/json") -> OpenApiExample:
    return OpenApiExample(name, body, response_only=True, status_codes=[str(status)], media_type=media_type)


class CallSchema(AutoSchema):
    """Describes a view's method by its docstring, its `@call` and what the view checks."""

    @property
    def _call_view(self) -> Any:
        """The ApiView that answers the call."""
        return self.view

    @property
    def _described(self) -> Any:
        return getattr(self._call_view, self.method.lower())

    @property
    def _call(self) -> Call:
        found: Call = self._described.call
        return found

    @property
    def _is_file(self) -> bool:
        return bool(getattr(self.view, "formats", ()))

    @property
    def _is_conditional(self) -> bool:
        declared = self._call.is_conditional
        return self.method == "GET" and not self._is_file if declared is None else declared

    def _text(self) -> list[str]:
        """Return the paragraphs of the docstring, each on one line."""
        text = self._filled(inspect.getdoc(self._described) or "")
        return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]

    def _filled(self, text: str) -> str:
        template = Template(text)
        names = template.get_identifiers()
        return template.substitute({name: getattr(self.view, name, None) or getattr(settings, name) for name in names})

    def get_operation_id(self) -> str:
        return self._filled(self._call.operation_id)

    def get_tags(self) -> list[str]:
        return [self._call.tag]

    def get_summary(self) -> str:
        return self._text()[0].removesuffix(".")

    def get_description(self) -> str:  # type: ignore[override]
        return "\n\n".join(self._text()[1:]) + self._scope()

    def _scope(self) -> str:
        scope = getattr(self.view, "scopes", {}).get(self.method)
        if scope is None:
            return ""
        permission = getattr(self.view, "permission", "")
        session = f" A session needs the permission `{permission}`." if permission else ""
        return f" Scope: `{scope.value}`.{session}"

    def get_override_parameters(self) -> list[Any]:
        checked = self._call_view.parameters.get(self.method)
        parameters = [*([checked] if checked else []), *self._call.headers]
        return parameters + (CONDITIONAL if self._is_conditional else [])

    def get_request_serializer(self) -> Any:
        return self._call.body

    def get_response_serializers(self) -> Any:
        call = self._call
        answer: dict[Any, Any] = {call.status: OpenApiResponse(call.answer, call.says)}
        if self._is_file:
            formats = [FORMATS[name] for name in self._call_view.formats]
            answer = {(call.status, each.media_type): OpenApiResponse(each.content, call.says) for each in formats}
        unchanged = UNCHANGED if self._is_conditional else {}
        named = (404,) if "{" in self.path else ()
        of_body = OF_BODIES if call.body else ()
        return answer | problems({*call.errors, *named, *of_body}, call.instead or {}) | unchanged

    def get_examples(self) -> list[OpenApiExample]:
        recorded = EXAMPLES.get(self.get_operation_id())
        if recorded is None:
            return list(self._call.examples)
        media_type = FORMATS[self._call_view.formats[0]].media_type if self._is_file else "application/json"
        return [*self._call.examples, answered("an answer", recorded, self._call.status, media_type)]
