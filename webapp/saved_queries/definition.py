"""The definition of a saved query: typed parameters, and the reads of states that they go into.

    {"parameters": {"carrier": {"type": "text"}, "least": {"type": "bigint", "default": 0}},
     "reads": [{"state": "flights_by_carrier", "keys": [["JFK", "{carrier}"]], "measures": ["flights"]},
               {"state": "flights_by_carrier", "where": ["flights>={least}"], "order_by": "-flights", "limit": 10}]}

A read is of keys, or of entries. Text that is the name of a parameter in braces stands for its value, as a whole:
values are never put into other text, and what is read is what the API reads for anyone.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any
from uuid import UUID

from state_backends import StateSpec
from state_backends.errors import FilterError, KeyShapeError, SpecError, UnknownStateError
from state_backends.reader.bounds import check_folds, check_measures, check_order, check_range
from state_backends.reader.filters import IN, Filter, check_where, read_value
from state_backends.types import KEY_TYPES, TYPES, SqlType, type_of

PARAMETER_TYPES = {**KEY_TYPES, "numeric": TYPES["numeric"]}
PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Parameters that calls of the API have.
RESERVED = ("as_of", "cursor", "epoch", "format", "limit", "min_txid", "wait_ms")
STANDS_FOR = re.compile(r"\{([a-z][a-z0-9_]*)\}")
ESCAPED = re.compile(r"\{(\{.*\})\}", re.DOTALL)

MOST_READS, MOST_PAGES, MOST_PARAMETERS, MOST_VALUES, MOST_ENTRIES = 20, 5, 20, 1_000, 1_000
DEFAULT_LIMIT = 50

MEMBERS = {
    "": ("parameters", "reads"),
    "parameter": ("type", "default", "many", "description"),
    "keys": ("state", "measures", "keys", "combine"),
    "entries": ("state", "measures", "prefix", "where", "order_by", "limit"),
}

# Values to try a definition with, by the Python type.
SAMPLES: Mapping[type, Any] = {
    str: "a",
    int: 0,
    float: 0.0,
    Decimal: Decimal(0),
    bool: True,
    datetime: datetime(2000, 1, 1, tzinfo=UTC),
    date: date(2000, 1, 1),
    UUID: UUID(int=0),
}

Values = Mapping[str, Any]


class DefinitionError(ValueError):
    """A definition is malformed: correct the part that the message names."""


class ParameterError(ValueError):
    """The value of a parameter is missing, or is not of its type."""


@dataclass(frozen=True)
class Parameter:
    """many: it may be given several times, and stands for all of its values. default: None where it is required."""

    name: str
    type: SqlType
    default: Any = None
    many: bool = False
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is None

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value, or the list of values, that a client gives as text. Raises ParameterError."""
        if not texts:
            if self.is_required:
                raise ParameterError(f"parameter {self.name!r} is required, a value of type {self.type.name}")
            return self.default
        if len(texts) > (MOST_VALUES if self.many else 1):
            most = f"{MOST_VALUES} times" if self.many else "once"
            raise ParameterError(f"parameter {self.name!r} is given {len(texts)} times; give it {most} at most")
        values = [self._value(text) for text in texts]
        return values if self.many else values[0]

    def read_default(self, default: Any) -> Any:
        """Return a default, a JSON value, as `read` returns it. Raises ParameterError."""
        given = default if self.many and isinstance(default, list) else [default]
        return self.read([each if isinstance(each, str) else json.dumps(each) for each in given])

    @property
    def sample(self) -> Any:
        value = SAMPLES[self.type.python]
        return [value] if self.many else value

    def _value(self, text: str) -> Any:
        try:
            value = read_value(self.type, text, self.name)
            if isinstance(value, float | Decimal) and not math.isfinite(value):
                raise ValueError(text)
        except (ValueError, ArithmeticError):
            raise ParameterError(f"parameter {self.name!r} must be {self.type.name}, got {text[:80]!r}") from None
        return value


@dataclass(frozen=True)
class Read:
    """What is read of one state: keys, or entries where `keys` is None. limit: may be the name of a parameter."""

    state: str
    measures: list[str] | None = None
    keys: list[list[Any]] | None = None
    combine: bool = False
    prefix: list[Any] = field(default_factory=list)
    where: list[Filter] = field(default_factory=list)
    order_by: str = ""
    limit: Any = DEFAULT_LIMIT

    def typed_keys(self, values: Values) -> list[list[Any]]:
        """Return the keys; a parameter with many values gives a key for each."""
        return [list(key) for parts in self.keys or [] for key in product(*(_spread(part, values) for part in parts))]

    def number_of_keys(self, values: Values) -> int:
        """Return how many `typed_keys` gives, without making them."""
        return sum(math.prod(len(_spread(part, values)) for part in key) for key in self.keys or [])

    def typed_prefix(self, values: Values) -> list[Any]:
        return [_filled(part, values) for part in self.prefix]

    def typed_where(self, values: Values) -> list[Filter]:
        return [_filled_filter(each, values) for each in self.where]

    def typed_limit(self, values: Values) -> int:
        """Raises ParameterError."""
        limit = _filled(self.limit, values)
        if type(limit) is not int or not 1 <= limit <= MOST_ENTRIES:
            raise ParameterError(f"limit must be a whole number from 1 to {MOST_ENTRIES}, got {limit!r}")
        return limit

    @property
    def templates(self) -> Iterator[tuple[Any, bool]]:
        """Yield what may stand for a parameter, and whether for one with many values."""
        yield from ((part, True) for key in self.keys or [] for part in key)
        yield from ((part, False) for part in [*self.prefix, self.limit])
        for each in self.where:
            is_list = isinstance(each.value, list)
            yield from ((part, is_list) for part in (each.value if is_list else [each.value]))


@dataclass(frozen=True)
class Definition:
    parameters: dict[str, Parameter]
    reads: list[Read]

    @classmethod
    def parse(cls, document: Any) -> "Definition":
        """Raises DefinitionError, naming the part that is wrong."""
        members = _members(document, "", "the definition")
        parameters = members.get("parameters", {})
        if not isinstance(parameters, dict) or len(parameters) > MOST_PARAMETERS:
            raise DefinitionError(f"parameters must be an object of at most {MOST_PARAMETERS}, by name")
        reads = members.get("reads")
        if not isinstance(reads, list) or not 1 <= len(reads) <= MOST_READS:
            raise DefinitionError(f"reads must be a list of 1 to {MOST_READS} reads, each with its state")
        found = cls(
            {name: _parameter(name, options) for name, options in sorted(parameters.items())},
            [_read(read, f"reads[{place}]") for place, read in enumerate(reads)],
        )
        found._check_use()
        return found

    @property
    def states(self) -> list[str]:
        return list(dict.fromkeys(read.state for read in self.reads))

    @property
    def is_paged(self) -> bool:
        """Whether it has one read, of entries, whose pages a client can follow."""
        return len(self.reads) == 1 and self.reads[0].keys is None

    @property
    def is_search(self) -> bool:
        """Whether it may look at more entries than it answers."""
        return any(read.where or read.order_by for read in self.reads)

    def read(self, given: Callable[[str], Sequence[str]]) -> dict[str, Any]:
        """Return the values of all parameters. given: name to the texts of a client. Raises ParameterError."""
        return {name: parameter.read(given(name)) for name, parameter in self.parameters.items()}

    def problems(self, spec_of: Callable[[str], StateSpec]) -> list[str]:
        """Return what keeps the query from being answered; empty if nothing does. spec_of: may raise as a catalog."""
        found = []
        for place, read in enumerate(self.reads):
            try:
                self._try(read, spec_of(read.state))
            except (UnknownStateError, SpecError, KeyShapeError, FilterError, ParameterError) as error:
                found.append(f"reads[{place}]: {error}")
        return found

    def _try(self, read: Read, spec: StateSpec) -> None:
        """Check a read with a value of the right type for each parameter."""
        values = {name: parameter.sample for name, parameter in self.parameters.items()}
        check_measures(spec, read.measures)
        if read.keys is not None:
            spec.check_keys([tuple(key) for key in read.typed_keys(values)])
            if read.combine:
                check_folds(spec)
            return
        check_order(spec, read.order_by.removeprefix("-") or None)
        check_range(spec, read.typed_prefix(values), (), ())
        check_where(spec, read.typed_where(values))

    def _check_use(self) -> None:
        if sum(read.keys is None for read in self.reads) > MOST_PAGES:
            raise DefinitionError(f"reads: at most {MOST_PAGES} of them may be of entries; look keys up in the others")
        used = set()
        for place, read in enumerate(self.reads):
            for template, may_be_many in read.templates:
                name = _name(template)
                if name is None:
                    continue
                if name not in self.parameters:
                    raise DefinitionError(
                        f"reads[{place}]: no parameter {name!r}; write {{{{{name}}}}} for text in braces"
                    )
                if self.parameters[name].many and not may_be_many:
                    raise DefinitionError(
                        f"reads[{place}]: parameter {name!r} has many values, which go into `in` and into keys alone"
                    )
                used.add(name)
        if unused := self.parameters.keys() - used:
            raise DefinitionError(f"parameter {min(unused)!r} is not used by any read")


def as_condition(condition: Filter) -> str:
    """Return a typed condition as text that means the same."""
    if condition.operator == IN:
        return f"{condition.column} in {json.dumps([_text(each) for each in condition.value])}"
    if condition.value is None:
        return f"{condition.column} {condition.operator}"
    return f"{condition.column} {condition.operator} {json.dumps(_text(condition.value))}"


def as_json(value: Any) -> Any:
    """Return a value as requests write it in JSON."""
    return value if isinstance(value, bool | int | float | str) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _name(template: Any) -> str | None:
    found = STANDS_FOR.fullmatch(template) if isinstance(template, str) else None
    return None if found is None else found[1]


def _filled(template: Any, values: Values) -> Any:
    name = _name(template)
    if name is not None:
        return values[name]
    escaped = ESCAPED.fullmatch(template) if isinstance(template, str) else None
    return template if escaped is None else escaped[1]


def _spread(template: Any, values: Values) -> list[Any]:
    value = _filled(template, values)
    return value if isinstance(value, list) else [value]


def _filled_filter(condition: Filter, values: Values) -> Filter:
    if isinstance(condition.value, list):
        return condition._replace(value=[each for part in condition.value for each in _spread(part, values)])
    return condition._replace(value=_filled(condition.value, values))


def _members(document: Any, kind: str, where: str) -> dict[str, Any]:
    known = MEMBERS[kind]
    if not isinstance(document, dict):
        raise DefinitionError(f"{where} must be an object with {', '.join(known)}")
    if unknown := document.keys() - set(known):
        raise DefinitionError(f"{where} has an unknown member {min(unknown)!r}; there are {', '.join(known)}")
    return document


def _parameter(name: str, options: Any) -> Parameter:
    where = f"parameter {name!r}"
    if not PARAMETER_NAME.fullmatch(name) or name in RESERVED:
        raise DefinitionError(f"{where} has an invalid name; use a lower case letter, then letters, digits or _, and "
                              f"none of {', '.join(RESERVED)}")  # fmt: skip
    members = _members(options, "parameter", where)
    if members.get("type") not in PARAMETER_TYPES:
        raise DefinitionError(f"{where} has type {members.get('type')!r}; choose one of {', '.join(PARAMETER_TYPES)}")
    many, description = members.get("many", False), members.get("description", "")
    if type(many) is not bool or not isinstance(description, str):
        raise DefinitionError(f"{where}: many must be true or false, and description text")
    parameter = Parameter(name, type_of(members["type"]), None, many, description)
    if members.get("default") is None:
        return parameter
    try:
        default = parameter.read_default(members["default"])
    except ParameterError as error:
        raise DefinitionError(f"{where}: its default does not fit: {error}") from None
    return Parameter(name, parameter.type, default, many, description)


def _read(document: Any, where: str) -> Read:
    kind = "keys" if isinstance(document, dict) and "keys" in document else "entries"
    members = _members(document, kind, where)
    if not isinstance(members.get("state"), str):
        raise DefinitionError(f"{where}: state must be the name of a state")
    _check_texts(members.get("measures"), f"{where}: measures")
    if kind == "keys":
        keys, combine = members["keys"], members.get("combine", False)
        if not isinstance(keys, list) or not keys or not all(isinstance(key, list) for key in keys):
            raise DefinitionError(f"{where}: keys must be a list of keys, each a list of its parts")
        if type(combine) is not bool:
            raise DefinitionError(f"{where}: combine must be true or false")
        return Read(members["state"], members.get("measures"), keys, combine)
    return _entries(members, where)


def _entries(members: Mapping[str, Any], where: str) -> Read:
    prefix, conditions = members.get("prefix", []), members.get("where") or []
    if not isinstance(prefix, list) or not isinstance(members.get("order_by", ""), str):
        raise DefinitionError(f"{where}: prefix must be a list of key parts, and order_by text")
    _check_texts(conditions, f"{where}: where")
    limit = members.get("limit", DEFAULT_LIMIT)
    try:
        filters = [Filter.parse(text) for text in conditions]
        read = Read(
            members["state"], members.get("measures"), None, False, prefix, filters, members.get("order_by", ""), limit
        )
        if _name(limit) is None:
            read.typed_limit({})
    except (FilterError, ParameterError) as error:
        raise DefinitionError(f"{where}: {error}") from None
    return read


def _check_texts(given: Any, where: str) -> None:
    if given is not None and not (isinstance(given, list) and all(isinstance(each, str) for each in given)):
        raise DefinitionError(f"{where} must be a list of texts")
