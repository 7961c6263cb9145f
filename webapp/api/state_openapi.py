"""The OpenAPI document of one state: the calls of states, with its address and the types of its columns."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.api.typed_schemas import Schema, key_of, nullable, value_of

STATES = "/api/v1/states/{name}"
# Says nothing of the state's own types.
LEFT_OUT = f"{STATES}/openapi"
WINDOWS = f"{STATES}/windows"  # of states with tiles
NAME = ("name", "path")


def document(general: Schema, spec: StateSpec) -> Schema:
    """general: the document of the whole API, which is not changed."""
    paths = {
        path.replace("{name}", quote(spec.name, safe="")): _of_one_state(item)
        for path, item in general["paths"].items()
        if path.startswith(STATES) and path != LEFT_OUT and (spec.tiling or path != WINDOWS)
    }
    components = deepcopy(general["components"])
    _set_types(components["schemas"], spec)
    schemas = components["schemas"]
    used = _used(schemas, [paths])
    return {
        **general,
        "info": {"title": spec.name, "version": general["info"]["version"], "description": f"The state {spec.name}."},
        "paths": paths,
        "components": components | {"schemas": {name: schemas[name] for name in schemas if name in used}},
    }


def _of_one_state(item: Schema) -> Schema:
    """Return the calls of a path without the parameter that names the state."""
    return {
        method: call | {"parameters": [each for each in call["parameters"] if (each["name"], each["in"]) != NAME]}
        for method, call in deepcopy(item).items()
    }


def _set_types(schemas: Schema, spec: StateSpec) -> None:
    key, value = key_of(spec), value_of(spec)
    for name in ("Result", "Entry", "KeyAnswer", "History", "KeySeries"):
        schemas[name]["properties"]["key"] = key
    for name in ("Entry", "KeyAnswer", "Combined", "Group"):
        schemas[name]["properties"]["value"] = value
    for name in ("Result", "Version"):
        schemas[name]["properties"]["value"] = nullable(value)
    schemas["LookupRequest"]["properties"]["keys"]["items"] = key
    without_tile = key_of(spec.untiled)
    schemas["AskedWindowsRequest"]["properties"]["keys"]["items"] = without_tile
    schemas["WindowResult"]["properties"] |= {"key": without_tile, "values": {"type": "array", "items": value}}


def _used(schemas: Schema, parts: list[Any]) -> set[str]:
    """Return the names of the schemas that some parts of a document refer to, and those that these refer to."""
    found: set[str] = set()
    while parts:
        for name in set(_references(parts.pop())) - found:
            found.add(name)
            parts.append(schemas[name])
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for each in part.values():
            yield from _references(each)
    elif isinstance(part, list):
        for each in part:
            yield from _references(each)
