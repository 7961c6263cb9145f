"""First, Last and Latest: values chosen by event time, regardless of the order in which events arrive."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, LiteralString

from tidegauge.state_backends.aggregators.column import VALUE_TYPES, as_json, cast, order, stored_type
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Input
from tidegauge.state_backends.spec.state_spec import NAME, NAME_RULE
from tidegauge.state_backends.spec.types import TYPES

# A PostgreSQL function takes 100 arguments; jsonb_build_object takes two per field.
MAX_FIELDS = 50

# Types that exist in JSON and that PostgreSQL and Python write in the same way.
FIELD_TYPES: dict[str, LiteralString] = {
    name: TYPES[name].name for name in ("text", "bigint", "double precision", "boolean")
}


def _fold_sql(wins: LiteralString, loses: LiteralString, pick: LiteralString) -> dict[str, LiteralString]:
    # If a time is null, neither comparison is true. ELSE is correct then, because the value of a null time is null too.
    return {
        "": f"CASE WHEN {{stored_at}} {wins} {{partial_at}} THEN {{stored}} "
        f"WHEN {{stored_at}} {loses} {{partial_at}} THEN {{partial}} ELSE {pick}({{stored}}, {{partial}}) END",
        "at": f"{pick}({{stored_at}}, {{partial_at}})",
    }


class _ByTime:
    """Shared by First and Last. `pick` chooses among pairs of time and value in Python, `spark_pick` in Spark SQL."""

    name: ClassVar[str]
    pick: ClassVar[Callable[..., Any]]
    spark_pick: ClassVar[str]
    fold_sql: ClassVar[Mapping[str, LiteralString]]
    fold_lua: ClassVar[Mapping[str, str]] = {}
    finish_sql: LiteralString = "{stored}"

    def __init__(self, column: str, by: str, type: str | None = None) -> None:
        self.column = column
        self.by = by
        self.has_type = type is not None
        type = type or "double precision"
        whose = f"{self.__class__.__name__}({column!r})"
        self.columns = {"": stored_type(type, whose, VALUE_TYPES), "at": VALUE_TYPES["timestamptz"]}
        self.result_type: str = type

    def partial(self) -> dict[str, str]:
        return _partial(self.spark_pick, self.column, self.result_type, self.by, "", "at")

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return _fold(self.pick, stored, partial, "", "at")

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return Input(self.column, self.result_type, is_given=self.has_type), Input(self.by, "timestamptz")

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "by": self.by, "type": self.result_type}


class First(_ByTime):
    """The value of the earliest event; if several have the same time, the smallest. Stored: the value and its time.

    column: what to keep. by: the event time, a timestamp. type: `double precision`, `bigint`, `numeric`, `text`,
    `timestamptz` or `boolean`. None means `double precision`; a pipeline whose column has values that a double cannot
    hold is then refused.
    Empty input gives null; events whose time or value is null do not count. Raises SpecError for another type.
    """

    name = "first"
    pick = staticmethod(min)
    spark_pick = "min"
    fold_sql: ClassVar[Mapping[str, LiteralString]] = _fold_sql("<", ">", "least")


class Last(_ByTime):
    """The value of the latest event; if several have the same time, the largest. Stored: the value and its time.

    column, by, type: as for First. Empty input gives null; events whose time or value is null do not count.
    Raises SpecError for another type.
    """

    name = "last"
    pick = staticmethod(max)
    spark_pick = "max"
    fold_sql: ClassVar[Mapping[str, LiteralString]] = _fold_sql(">", "<", "greatest")


class Latest:
    """The latest value of each of several columns, as one JSON object. It can join two streams of changes into one row.

    `Latest("name", "city", age="bigint", by="changed_at")` keeps name and city as text and age as a number. A null
    leaves its column unchanged, so each stream can set its own columns, in any order.
    Stored: per column its value, and `at_COLUMN`, the time of that value. Of two values with the same time, the larger
    is kept. Empty input gives an object of nulls; events whose time is null do not count.

    columns: names that a stored column can have. by: the event time, a timestamp. types: column to type, one of `text`,
    `bigint`, `double precision` and `boolean`.
    Raises SpecError for another type, for a name that cannot be stored, and unless there are 1 to 50 columns.
    """

    name: ClassVar[str] = "latest"
    fold_lua: ClassVar[Mapping[str, str]] = {}
    result_type = "jsonb"

    def __init__(self, /, *columns: str, by: str, **types: str) -> None:
        self.by = by
        self.fields = dict.fromkeys(columns, "text") | types
        self._check()
        self.columns: dict[str, LiteralString] = {}
        self.fold_sql: dict[str, LiteralString] = {}
        for field, sql_type in self.fields.items():
            self.columns |= {field: FIELD_TYPES[sql_type], f"at_{field}": VALUE_TYPES["timestamptz"]}
            self.fold_sql |= _of_field(Last.fold_sql, field)
        pairs = ", ".join(f"'{field}', {{stored_{field}}}" for field in self.fields)
        self.finish_sql: LiteralString = f"jsonb_build_object({pairs})"

    def partial(self) -> dict[str, str]:
        partials: dict[str, str] = {}
        for field, sql_type in self.fields.items():
            partials |= _partial("max", field, sql_type, self.by, field, f"at_{field}")
        return partials

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        folded: dict[str, Any] = {}
        for field in self.fields:
            folded |= _fold(max, stored, partial, field, f"at_{field}")
        return folded

    def finish(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return {field: as_json(stored[field]) for field in self.fields}

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (*(Input(field, sql_type) for field, sql_type in self.fields.items()), Input(self.by, "timestamptz"))

    def arguments(self) -> dict[str, Any]:
        return {"by": self.by, **self.fields}

    def _check(self) -> None:
        if not 1 <= len(self.fields) <= MAX_FIELDS:
            raise SpecError(f"Latest: {len(self.fields)} columns given; declare 1 to {MAX_FIELDS}")
        names = [*self.fields, *(f"at_{field}" for field in self.fields)]
        for field, sql_type in self.fields.items():
            stored_type(sql_type, f"Latest({field!r})", FIELD_TYPES)
            if not NAME.fullmatch(field) or field == "by" or names.count(field) > 1:
                raise SpecError(
                    f"Latest({field!r}): not a valid name for a stored column, or the name of a time column; rename "
                    f"the column in each(): {NAME_RULE}"
                )


def _partial(pick: str, column: str, sql_type: str, by: str, suffix: str, at_suffix: str) -> dict[str, str]:
    value, at = cast(column, sql_type), cast(by, "timestamptz")
    chosen = f"{pick}(if({at} is null or {value} is null, null, struct({at} as at, {value} as value)))"
    return {suffix: f"{chosen}.value", at_suffix: f"{chosen}.at"}


def _fold(
    pick: Callable[..., Any], stored: Mapping[str, Any], partial: Mapping[str, Any], value: str, at: str
) -> dict[str, Any]:
    sides = [(side[at], side[value]) for side in (stored, partial) if side[at] is not None]
    chosen = pick(sides, key=lambda side: (side[0], order(side[1])), default=(None, None))
    return {at: chosen[0], value: chosen[1]}


def _of_field(fold_sql: Mapping[str, LiteralString], field: str) -> dict[str, LiteralString]:
    """Return the templates of `Last.fold_sql` over the columns FIELD and at_FIELD."""
    names = {
        "stored": f"{{stored_{field}}}",
        "stored_at": f"{{stored_at_{field}}}",
        "partial": f"{{partial_{field}}}",
        "partial_at": f"{{partial_at_{field}}}",
    }
    return {(f"at_{field}" if suffix else field): template.format(**names) for suffix, template in fold_sql.items()}
