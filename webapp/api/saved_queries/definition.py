"""The definition of a saved query: typed parameters, and the reads of states that they go into.

    {"parameters": {"carrier": {"type": "text"}, "least": {"type": "bigint", "default": 0}},
     "reads": [{"state": "flights_by_carrier", "keys": [["JFK", "{carrier}"]], "measures": ["flights"]},
               {"state": "flights_by_carrier", "where": ["flights>={least}"], "order_by": "-flights", "limit": 10}]}

A read is of keys, or of entries. Text that is the name of a parameter in braces stands for its value, as a whole:
values are never put into other text, and what is read is what the API reads for anyone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import FilterError, KeyShapeError, SpecError, UnknownStateError
from tidegauge.state_backends.reader.bounds import check_folds, check_measures, check_order, check_range
from tidegauge.state_backends.reader.filters import Filter, check_where
from tidegauge.webapp.api.saved_queries.parameters import (
    DefinitionError,
    Parameter,
    ParameterError,
    Values,
    checked_members,
    filled,
    filled_filter,
    name_in,
    parse_parameter,
    spread,
)

MOST_READS, MOST_PAGES, MOST_PARAMETERS, MOST_ENTRIES = 20, 5, 20, 1_000
DEFAULT_LIMIT = 50

OF_DEFINITION = ("parameters", "reads")
OF_KEYS = ("state", "measures", "keys", "combine")
OF_ENTRIES = ("state", "measures", "prefix", "where", "order_by", "limit")


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
        return [list(key) for parts in self.keys or [] for key in product(*(spread(part, values) for part in parts))]

    def number_of_keys(self, values: Values) -> int:
        """Return how many `typed_keys` gives, without making them."""
        return sum(math.prod(len(spread(part, values)) for part in key) for key in self.keys or [])

    def typed_prefix(self, values: Values) -> list[Any]:
        return [filled(part, values) for part in self.prefix]

    def typed_where(self, values: Values) -> list[Filter]:
        return [filled_filter(each, values) for each in self.where]

    def typed_limit(self, values: Values) -> int:
        """Raises ParameterError."""
        limit = filled(self.limit, values)
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
        members = checked_members(document, OF_DEFINITION, "the definition")
        parameters = members.get("parameters", {})
        if not isinstance(parameters, dict) or len(parameters) > MOST_PARAMETERS:
            raise DefinitionError(f"parameters must be an object of at most {MOST_PARAMETERS}, by name")
        reads = members.get("reads")
        if not isinstance(reads, list) or not 1 <= len(reads) <= MOST_READS:
            raise DefinitionError(f"reads must be a list of 1 to {MOST_READS} reads, each with its state")
        found = cls(
            {name: parse_parameter(name, options) for name, options in sorted(parameters.items())},
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
                name = name_in(template)
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


def _read(document: Any, where: str) -> Read:
    is_of_keys = isinstance(document, dict) and "keys" in document
    members = checked_members(document, OF_KEYS if is_of_keys else OF_ENTRIES, where)
    if not isinstance(members.get("state"), str):
        raise DefinitionError(f"{where}: state must be the name of a state")
    _check_texts(members.get("measures"), f"{where}: measures")
    if is_of_keys:
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
        if name_in(limit) is None:
            read.typed_limit({})
    except (FilterError, ParameterError) as error:
        raise DefinitionError(f"{where}: {error}") from None
    return read


def _check_texts(given: Any, where: str) -> None:
    if given is not None and not (isinstance(given, list) and all(isinstance(each, str) for each in given)):
        raise DefinitionError(f"{where} must be a list of texts")
