"""JSON schemas of the keys and values of one state, by its columns and measures."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.spec.types import SqlType, type_of

Schema = dict[str, Any]

NOT_FINITE: Schema = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}
FORMATS: Mapping[type, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    Decimal: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    UUID: {"type": "string", "format": "uuid"},
    bytes: {"type": "string"},
}


def key_of(spec: StateSpec) -> Schema:
    parts = ", ".join(f"{name} ({sql_type})" for name, sql_type in spec.key.items())
    columns = [_finite_or_text(FORMATS[type_of(sql_type).python]) for sql_type in spec.key.values()]
    items: Schema = {"prefixItems": columns} if columns else {"items": {}}
    return {"type": "array", **items, "minItems": len(columns), "maxItems": len(columns), "description": parts}


def value_of(spec: StateSpec, measures: Sequence[str] | None = None) -> Schema:
    """measures: those that a value has; None: any of them, as a request asks."""
    if not spec.measures:
        return {"description": "any JSON value"}
    names = spec.measures if measures is None else measures
    members = {name: _measure(type_of(spec.measures[name].result_type)) for name in names}
    return {"type": "object", "properties": members} if measures is None else object_of(members)


def nullable(schema: Schema) -> Schema:
    if "oneOf" in schema:
        return {"oneOf": [*schema["oneOf"], {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]} if "type" in schema else schema  # any value may be null


def object_of(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _measure(sql_type: SqlType) -> Schema:
    known = FORMATS.get(sql_type.python)
    return {} if known is None else nullable(_finite_or_text(known))


def _finite_or_text(schema: Schema) -> Schema:
    return {"oneOf": [schema, NOT_FINITE]} if schema["type"] == "number" else schema
