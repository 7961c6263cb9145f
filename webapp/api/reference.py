"""The API reference: the OpenAPI document, arranged for the pages /api/docs, each call with its schemas in place."""

import json
from collections.abc import Iterator, Mapping, Sequence
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

# Calls that change nothing, though they are sent by POST.
READING = {"look_up_state", "look_up_states", "filter_entries", "filter_groups"}
NO_TYPE = mark_safe("")


@dataclass(frozen=True)
class Row:
    """A parameter, or a member of a body or an answer. place: path, query or header; empty for a member.

    members: those of the objects that it holds.
    """

    name: str
    place: str
    type: SafeString
    is_required: bool
    description: str
    limits: str
    members: Sequence["Row"] = ()


@dataclass(frozen=True)
class Content:
    """What a body or an answer has. example: JSON or other text, empty if the document has none."""

    media_types: Sequence[str] = ()
    type: SafeString = NO_TYPE
    members: Sequence[Row] = ()
    example: str = ""


@dataclass(frozen=True)
class DescribedAnswer:
    status: str
    description: str
    content: Content


@dataclass(frozen=True)
class Operation:
    """id: as in the document. server: the address of the process that answers. body: None if it has none."""

    id: str
    group: str
    method: str
    path: str
    summary: str
    description: str
    parameters: Sequence[Row]
    body: Content | None
    answers: Sequence[DescribedAnswer]
    server: str

    @property
    def changes_something(self) -> bool:
        return self.method != "GET" and self.id not in READING

    @property
    def curl(self) -> str:
        return curl(self, f"{self.server}{self.path}", self.body.example if self.body else "")


@dataclass(frozen=True)
class Reference:
    """groups: name, description and operations of each tag."""

    introduction: list[list[str]]
    groups: list[tuple[str, str, list[Operation]]]

    def operation(self, wanted: str) -> Operation | None:
        return next((each for _, _, operations in self.groups for each in operations if each.id == wanted), None)


def reference(document: Schema, url: str) -> Reference:
    """Arrange an OpenAPI document. url: of this server, for examples."""
    schemas = document["components"]["schemas"]
    operations = [
        _operation(schemas, url, method, path, call)
        for path, item in document["paths"].items()
        for method, call in item.items()
        if method in METHODS
    ]
    groups = [
        (tag["name"], tag["description"], [each for each in operations if each.group == tag["name"]])
        for tag in document["tags"]
    ]
    introduction = [block.removeprefix("- ").split("\n- ") for block in document["info"]["description"].split("\n\n")]
    return Reference(introduction, groups)


def curl(operation: Operation, address: str, body: str) -> str:
    lines = [f'curl -fsS "{address}"', '-H "Authorization: Bearer $TIDEGAUGE_API_KEY"']
    if operation.method == "DELETE" or (operation.method == "POST" and not body):
        lines.insert(1, f"-X {operation.method}")
    if body:
        lines += ['-H "Content-Type: application/json"', "-d '" + body.replace("'", "'\\''") + "'"]
    return " \\\n  ".join(lines)


def _operation(schemas: Schema, url: str, method: str, path: str, call: Schema) -> Operation:
    parameters = [
        Row(
            each["name"],
            each["in"],
            type_of(each["schema"], schemas),
            each.get("required", False),
            each.get("description", ""),
            _limits(each["schema"]),
        )
        for each in call.get("parameters", [])
    ]
    body = call.get("requestBody", {}).get("content", {})
    return Operation(
        id=call["operationId"],
        group=call["tags"][0],
        method=method.upper(),
        path=path,
        summary=call.get("summary", ""),
        description=call.get("description", ""),
        parameters=sorted(parameters, key=lambda row: ("path", "query", "header").index(row.place)),
        body=_content(schemas, body) if body else None,
        answers=[_answer(schemas, status, answer) for status, answer in sorted(call["responses"].items())],
        server=call.get("servers", [{"url": url}])[0]["url"].rstrip("/") or url,
    )


def _answer(schemas: Schema, status: str, answer: Schema) -> DescribedAnswer:
    # Examples of problems differ in their texts alone.
    content = _content(schemas, answer.get("content", {}), has_example=status < "400", indent=2)
    return DescribedAnswer(status, answer.get("description", ""), content)


def _content(schemas: Schema, content: Schema, *, has_example: bool = True, indent: int | None = None) -> Content:
    first: Schema = next(iter(content.values()), {})
    if "schema" not in first:
        return Content(list(content), example=_example(first, indent) if has_example else "")
    return Content(
        list(content),
        type_of(first["schema"], schemas),
        list(_members(first["schema"], schemas, frozenset())),
        _example(first, indent) if has_example else "",
    )


def _example(content: Schema, indent: int | None = None) -> str:
    examples = [each["value"] for each in content.get("examples", {}).values()]
    if not examples:
        return ""
    return examples[0] if isinstance(examples[0], str) else json.dumps(examples[0], indent=indent, ensure_ascii=False)


def _members(schema: Schema, schemas: Schema, seen: frozenset[str]) -> Iterator[Row]:
    """Yield the members of the objects that a schema describes. seen: the named schemas around it, which end it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from _members(schemas[name], schemas, seen | {name})
        return
    for several in ("oneOf", "anyOf", "allOf"):
        for each in schema.get(several, []):
            yield from _members(each, schemas, seen)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _members(inner, schemas, seen)
    for name, member in schema.get("properties", {}).items():
        required, within = name in schema.get("required", []), list(_members(member, schemas, seen))
        description = member.get("description", "")
        yield Row(name, "", type_of(member, schemas), required, description, _limits(member), within)


SHOWN_FORMATS = ("date-time", "uuid", "date")


def type_of(schema: Schema, schemas: Schema) -> SafeString:
    """Return the type of a schema in words. schemas: those that it may name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return type_of(schemas[name], schemas) if "enum" in schemas.get(name, {}) else format_html("{}", name)
    if isinstance(schema.get("type"), list):
        kinds = ((type_of({**schema, "type": each}, schemas),) for each in schema["type"])
        return format_html_join(" or ", "{}", kinds)
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return format_html_join(" or ", "{}", ((type_of(each, schemas),) for each in schema[several]))
    if schema.get("type") == "array":
        return format_html("list of {}", type_of(schema.get("items", {}), schemas))
    if schema.get("type") == "null":
        return mark_safe("null")
    if isinstance(schema.get("additionalProperties"), Mapping):
        return format_html("object of {}", type_of(schema["additionalProperties"], schemas))
    if "enum" in schema:
        return format_html_join(", ", "<code>{}</code>", ((each,) for each in schema["enum"] if each not in ("", None)))
    kind = format_html("{}", schema.get("type", "any JSON value"))
    return format_html("{} ({})", kind, schema["format"]) if schema.get("format") in SHOWN_FORMATS else kind


def _limits(schema: Schema) -> str:
    return ", ".join(f"{words} {schema[name]}" for name, words in LIMITS.items() if name in schema)
