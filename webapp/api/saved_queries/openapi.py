"""The OpenAPI document of one saved query: its address, its parameters, and what its reads answer."""

from collections.abc import Mapping
from datetime import datetime

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.api.problems import CODES, MEDIA_TYPE
from tidegauge.webapp.api.saved_queries.definition import Definition, Read
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.parameters import MOST_VALUES, Parameter, as_json
from tidegauge.webapp.api.typed_schemas import FORMATS, Schema, key_of, nullable, object_of, value_of

BATCH: Schema = {
    "epoch": {"type": "string", "description": "the ledger's incarnation; batches of two have nothing in common"},
    "txid": {"type": "integer", "format": "int64", "description": "the batch that everything here belongs to"},
    "batch_time": {"type": ["string", "null"], "format": "date-time", "description": "the time of that batch"},
}
PROBLEM: Schema = {
    "type": "object",
    "description": "Problem details, RFC 9457.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "for people"},
        "code": {"type": "string", "enum": CODES, "description": "for programs; the page /problems lists them"},
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code"],
}
PROBLEMS = {
    400: "A parameter is missing, unknown or of another type.",
    401: "No valid API key.",
    403: "The API key lacks the scope `read`, or may not read these keys.",
    404: "The query is unknown, or the API key may not read its states.",
    409: "The batch in `at_txid` or `at_time` is not committed yet.",
    410: "The query was withdrawn or cannot be answered any more, or the batch in `at_txid` is no longer available.",
    429: "Too many requests: `Retry-After` says when to retry.",
    503: "The database does not answer; `Retry-After` says when to retry.",
    504: "The request exceeded the time limit.",
}
TXID = {"type": "integer", "format": "int64", "minimum": 0}


def document(query: SavedQuery, definition: Definition, specs: Mapping[str, StateSpec]) -> Schema:
    """Return OpenAPI 3.1, which can type each answer by its place.

    specs: of the states that the query reads, by name.
    """
    answers = {f"Answer{place}": _answer(read, specs[read.state], definition) for place, read in _placed(definition)}
    return {
        "openapi": "3.1.0",
        "info": {"title": query.name, "version": str(query.version), "description": query.description},
        "servers": [{"url": "/"}],  # of the host that the document is read from, whatever a proxy makes of it
        "security": [{"bearer": []}],
        "paths": {query.get_absolute_url(): {"get": _operation(query, definition)}},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "An API key, `tmk_..`"}},
            "schemas": {"Problem": PROBLEM, "Result": _result(definition, list(answers)), **answers},
        },
    }


def _placed(definition: Definition) -> list[tuple[int, Read]]:
    return list(enumerate(definition.reads, start=1))


def _operation(query: SavedQuery, definition: Definition) -> Schema:
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    problems = {str(status): {"description": text, "content": problem} for status, text in PROBLEMS.items()}
    result = {"application/json": {"schema": {"$ref": "#/components/schemas/Result"}}}
    more = [
        _asked("at_txid", TXID, "Answer as after this batch; the committed one if absent"),
        _asked("at_time", FORMATS[datetime], "Instead: the last batch whose time is not after this one"),
    ]
    if definition.is_paged:
        more.append(
            _asked("cursor", {"type": "string"}, "`next` of the page before, with the values of the first page")
        )
    return {
        "operationId": query.name.replace("-", "_"),
        "summary": query.description.partition("\n")[0] or query.name,
        "parameters": [*map(_parameter, definition.parameters.values()), *more],
        "responses": {"200": {"description": "The answer, of one batch.", "content": result}, **problems},
    }


def _asked(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _parameter(parameter: Parameter) -> Schema:
    schema: Schema = dict(FORMATS[parameter.type.python])
    if parameter.many:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": MOST_VALUES}
    if not parameter.is_required:
        default = parameter.default
        schema["default"] = [as_json(each) for each in default] if parameter.many else as_json(default)
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "schema": schema,
        "description": parameter.description,
    }


def _result(definition: Definition, answers: list[str]) -> Schema:
    listed = {
        "type": "array",
        "prefixItems": [{"$ref": f"#/components/schemas/{answer}"} for answer in answers],
        "minItems": len(answers),
        "maxItems": len(answers),
        "description": f"one per read, in this order: {', '.join(read.state for read in definition.reads)}",
    }
    return object_of({"query": {"type": "string"}, "version": {"type": "integer"}, **BATCH, "answers": listed})


def _answer(read: Read, spec: StateSpec, definition: Definition) -> Schema:
    state = {"type": "string", "enum": [read.state]}
    common: Schema = {"state": state, "isolation": {"type": "string", "enum": ["committed", "uncommitted"]}}
    value = value_of(spec, list(spec.measures) if read.measures is None else read.measures)
    if read.keys is None:
        entry = object_of(
            {"key": key_of(spec), "value": value, "txid": nullable(TXID), "updated_at": nullable(FORMATS[datetime])}
        )
        page: Schema = {"complete": {"type": "boolean"}, "entries": {"type": "array", "items": entry}}
        paged: Schema = {"next": nullable({"type": "string"})} if definition.is_paged else {}
        return object_of(common | page | paged)
    if read.combine:
        counts = {name: {"type": "integer"} for name in ("keys", "missing", "expired")}
        return object_of(common | {"combined": object_of({**counts, "value": value})})
    status = {"type": "string", "enum": ["found", "missing", "expired"]}
    result = object_of({"key": key_of(spec), "status": status, "value": nullable(value)})
    return object_of(common | {"results": {"type": "array", "items": result}})
