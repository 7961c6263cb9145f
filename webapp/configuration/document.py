"""The document of a configuration: a mapping per kind, of names to fields. Several files are merged into one.

webhooks:
  ops: {url: https://hooks.example.com/ops}
alert_rules:
  lag: {lag_seconds: 300, webhooks: [ops]}
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import REQUIRED, Field, Fields, is_same
from tidegauge.webapp.configuration.kinds import KINDS


class Part(NamedTuple):
    """What one file declares. file: its name, for messages."""

    file: str
    content: Any


class Declared(NamedTuple):
    """An object, with all fields. file: where it is declared."""

    fields: Fields
    file: str


# By kind and name. A kind without objects is mentioned, so pruning concerns it.
Document = dict[str, dict[str, Declared]]


def merged(parts: Iterable[Part]) -> Document:
    """Return what files declare together. Raises ConfigurationError naming the file and the place in it."""
    document: Document = {}
    for part in parts:
        for kind, objects in _mapping(part.content, f"{part.file}: the document").items():
            if kind not in KINDS:
                raise ConfigurationError(f"{part.file}: unknown kind {kind!r}; there are {', '.join(KINDS)}")
            known = document.setdefault(kind, {})
            for name, given in _mapping(objects, f"{part.file}: {kind}").items():
                if name in known:
                    raise ConfigurationError(
                        f"{kind}: {name!r} is declared in {known[name].file} and again in {part.file}; remove one"
                    )
                fields = KINDS[kind].fields
                known[name] = Declared(_complete(fields, given, f"{part.file}: {kind}: {name!r}"), part.file)
    return document


def as_document(objects: Mapping[str, Mapping[str, Fields]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return objects as a file has them, without fields that have their default."""
    return {
        kind: {name: _shortened(KINDS[kind].fields, fields) for name, fields in sorted(named.items())}
        for kind, named in objects.items()
    }


def comparable(fields: Mapping[str, Field], values: Fields) -> dict[str, Any]:
    """Return stored values as `merged` returns declared ones."""
    return {name: field.read(values[name]) for name, field in fields.items()}


def _complete(fields: Mapping[str, Field], given: Any, where: str) -> dict[str, Any]:
    given = _mapping(given, where)
    if unknown := given.keys() - fields.keys():
        raise ConfigurationError(f"{where}: unknown field {min(unknown)!r}; there are {', '.join(fields)}")
    if missing := [name for name, field in fields.items() if field.default is REQUIRED and name not in given]:
        raise ConfigurationError(f"{where}: {missing[0]} is missing")
    return {name: _read(field, given.get(name, field.default), f"{where}: {name}") for name, field in fields.items()}


def _read(field: Field, value: Any, where: str) -> Any:
    try:
        return field.read(value)
    except TypeError:
        # Not the value itself, because what is in a wrong place may be a secret.
        raise ConfigurationError(f"{where} must be {field.type.says}, got {type(value).__name__}") from None


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a mapping, which is {{}} if it is empty")
    if others := [name for name in value if not isinstance(name, str) or not name.strip()]:
        raise ConfigurationError(f"{where}: {others[0]!r} must be text; write it in quotes")
    return value


def _shortened(fields: Mapping[str, Field], values: Fields) -> dict[str, Any]:
    return {
        name: values[name]
        for name, field in fields.items()
        if field.default is REQUIRED or not is_same(values[name], field.default)
    }
