"""The API reference: the OpenAPI document, arranged for the page /api/docs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from tidegauge.webapp.api.openapi import METHODS

Schema = Mapping[str, Any]

# What a schema says beside its type, in words.
LIMITS = {
    "default": "default",
    "minimum": "from",
    "maximum": "to",
    "maxItems": "items at most",
    "maxLength": "characters at most",
}


@dataclass(frozen=True)
class Row:
    """A parameter, or a member of a body or schema. place: path, query or header; empty for a member."""

    name: str
    place: str
    type: SafeString
    is_required: bool
    description: str
    limits: str


@dataclass(frozen=True)
class DescribedAnswer:
    """example: JSON, empty if the document has none."""

    status: str
    description: str
    media_types: list[str]
    type: SafeString
    example: str


@dataclass(frozen=True)
class Operation:
    """anchor: its id in the document. body: the type of the request's body, empty if it has none."""

    anchor: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Row]
    body: SafeString
    answers: list[DescribedAnswer]
    curl: str
    opens: bool


@dataclass(frozen=True)
class Reference:
    """groups: name, description and operations of each tag. schemas: name, description, enum and members of each."""

    introduction: list[list[str]]
    groups: list[tuple[str, str, list[Operation]]]
    schemas: list[tuple[str, str, list[str], list[Row]]]


def reference(document: Schema, url: str) -> Reference:
    """Arrange an OpenAPI document. url: of this server, for examples."""
    operations = [
        (call["tags"][0], _operation(url, method, path, call))
        for path, item in document["paths"].items()
        for method, call in item.items()
        if method in METHODS
    ]
    groups = [
        (tag["name"], tag["description"], [operation for name, operation in operations if name == tag["name"]])
        for tag in document["tags"]
    ]
    schemas = [
        (name, schema.get("description", ""), [str(each) for each in schema.get("enum", [])], list(_members(schema)))
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    introduction = [block.removeprefix("- ").split("\n- ") for block in document["info"]["description"].split("\n\n")]
    return Reference(introduction, groups, schemas)


def _operation(url: str, method: str, path: str, call: Schema) -> Operation:
    parameters = [
        Row(
            each["name"],
            each["in"],
            type_of(each["schema"]),
            each.get("required", False),
            each.get("description", ""),
            _limits(each["schema"]),
        )
        for each in call.get("parameters", [])
    ]
    content = call.get("requestBody", {}).get("content", {})
    body: Schema = next(iter(content.values()), {})
    answers = [_answer(status, answer) for status, answer in sorted(call["responses"].items())]
    opens = method == "get" and path.startswith("/api/") and not any(row.is_required for row in parameters)
    return Operation(
        call["operationId"],
        method.upper(),
        path,
        call.get("summary", ""),
        call.get("description", ""),
        sorted(parameters, key=lambda row: ("path", "query", "header").index(row.place)),
        type_of(body["schema"]) if body else mark_safe(""),
        answers,
        _curl(call.get("servers", [{"url": url}])[0]["url"].rstrip("/") or url, method, path, _example(body)),
        opens,
    )


def _answer(status: str, answer: Schema) -> DescribedAnswer:
    content = answer.get("content", {})
    first: Schema = next(iter(content.values()), {})
    kind = type_of(first["schema"]) if "schema" in first else mark_safe("")
    # Those of problems differ in their texts alone.
    example = "" if status >= "400" else _example(first, indent=2)
    return DescribedAnswer(status, answer.get("description", ""), list(content), kind, example)


def _example(content: Schema, indent: int | None = None) -> str:
    examples = [each["value"] for each in content.get("examples", {}).values()]
    if not examples:
        return ""
    return examples[0] if isinstance(examples[0], str) else json.dumps(examples[0], indent=indent, ensure_ascii=False)


def _curl(url: str, method: str, path: str, body: str) -> str:
    lines = [f'curl -fsS "{url}{path}"', '-H "Authorization: Bearer $TIDEGAUGE_API_KEY"']
    if method == "delete" or (method == "post" and not body):
        lines.insert(1, f"-X {method.upper()}")
    if body:
        lines += ['-H "Content-Type: application/json"', "-d '" + body.replace("'", "'\\''") + "'"]
    return " \\\n  ".join(lines)


def _members(schema: Schema) -> Iterator[Row]:
    for name, member in schema.get("properties", {}).items():
        required = name in schema.get("required", [])
        yield Row(name, "", type_of(member), required, member.get("description", ""), _limits(member))


SHOWN_FORMATS = ("date-time", "uuid", "date")


def type_of(schema: Schema) -> SafeString:
    """Return the type of a schema, with links to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return format_html('<a href="#schema-{0}">{0}</a>', name)
    if isinstance(schema.get("type"), list):
        return format_html_join(" or ", "{}", ((type_of({**schema, "type": each}),) for each in schema["type"]))
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return format_html_join(" or ", "{}", ((type_of(each),) for each in schema[several]))
    if schema.get("type") == "array":
        return format_html("list of {}", type_of(schema.get("items", {})))
    if schema.get("type") == "null":
        return mark_safe("null")
    if isinstance(schema.get("additionalProperties"), Mapping):
        return format_html("object of {}", type_of(schema["additionalProperties"]))
    if "enum" in schema:
        return format_html_join(", ", "<code>{}</code>", ((each,) for each in schema["enum"] if each not in ("", None)))
    kind = format_html("{}", schema.get("type", "any JSON value"))
    return format_html("{} ({})", kind, schema["format"]) if schema.get("format") in SHOWN_FORMATS else kind


def _limits(schema: Schema) -> str:
    return ", ".join(f"{words} {schema[name]}" for name, words in LIMITS.items() if name in schema)
