"""StateSpec: the declaration of a state, its checks, and the checks of a state's keys."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, LiteralString, TypeVar, get_args

from tidegauge.state_backends.errors import FoldRangeError, KeyShapeError, SpecError
from tidegauge.state_backends.protocols import BACKENDS, Aggregator
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.tiles import Tiles, check_tiles
from tidegauge.state_backends.spec.types import KEY_TYPES, SqlType, shown, type_of

Kind = Literal["opaque", "transactional", "non_transactional"]


# What a source and a state guarantee together, from the strongest to the weakest.
Guarantee = Literal["exactly once", "at least once", "approximate"]
GUARANTEES: tuple[str, ...] = get_args(Guarantee)
AnyGuarantee = TypeVar("AnyGuarantee", bound=str)

# PostgreSQL's b-tree refuses entries over 2,704 bytes. The difference leaves room for other columns and headers.
MAX_KEY_BYTES = 2048

# PostgreSQL's limit of columns per index. States with more measures have not been tried.
MAX_KEY_COLUMNS, MAX_MEASURES = 32, 50

# PostgreSQL's limits of a table: 1,600 columns, and 8,160 bytes per row with its header, because it must fit on a page.
MAX_COLUMNS, MAX_ROW_BYTES = 1600, 8000

# Bytes that a value takes in the row if the value itself is stored outside of it (TOAST).
POINTER_BYTES = 18

# A migration takes five locks for each partition, old and new, and PostgreSQL has room for 6,400 by default.
MAX_PARTITIONS = 256

# PostgreSQL cuts identifiers at 63 bytes; each stored column exists a second time with the prefix `prev_`.
MAX_COLUMN = 63 - len("prev_")
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_RULE = "use a lower case letter, then letters, digits or underscores, at most 40 in all"

RESERVED = {"txid", "removed", "updated_at", "singleton", "ordinality", "ttl", "committed_txid"}
RESERVED |= {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}  # PostgreSQL's own


@dataclass(frozen=True)
class StateSpec:
    """The declaration of one state.

    name: also names the table `tidegauge_state.<name>`; see NAME_RULE.
    key: the key columns in order, name to type (see KEY_TYPES in types.py); empty for a global aggregate, whose key is
        `()`.
    measures: name to aggregator; or `value="jsonb"` instead, for a state whose value is any JSON value.
    kind: what a row stores, and so which replays count once: `opaque` (any), `transactional` (identical ones),
        `non_transactional` (none).
    ttl: how long after its last update a row is served; None: unlimited.
    changelog: store every version, for history and reads in the past.
    partitions: the number of hash partitions: of the table, or in Redis of buckets that a cluster spreads over its
        nodes.
    backend: where the rows are stored, a name in BACKENDS. Ledger and changelogs are always in PostgreSQL.
    tiles: for windows such as the last 24 hours: how long tiles of a `second`, `minute`, `hour` or `day` are kept until
        compaction folds them into the next coarser one; the coarsest are dropped then, or None: never. The last key
        column is the start of the finest tile.
    Raises SpecError, naming the part that is wrong.
    """

    name: str
    key: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, Aggregator] = field(default_factory=dict)
    value: str | None = None
    kind: Kind = "opaque"
    ttl: timedelta | None = None
    changelog: bool = False
    partitions: int = 1
    backend: str = "postgres"
    tiles: Mapping[str, timedelta | None] | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_values()
        if self.kind not in get_args(Kind):
            raise SpecError(f"state {self.name!r}: kind {self.kind!r} is not one of {', '.join(get_args(Kind))}")
        if self.ttl is not None and self.ttl <= timedelta():
            raise SpecError(f"state {self.name!r}: ttl {self.ttl!r} must be longer than zero; None means unlimited")
        if not 1 <= self.partitions <= MAX_PARTITIONS or (self.partitions > 1 and not self.key):
            raise SpecError(
                f"state {self.name!r}: partitions {self.partitions!r} must be from 1 to {MAX_PARTITIONS}, and 1 for a "
                "state without a key"
            )
        self._check_backend()
        self._check_tiles()

    def _check_tiles(self) -> None:
        if self.tiles is None:
            return
        check_tiles(self.name, self.key, self.tiles)
        refused = {
            "a JSON value has no fold": self.value is not None,
            f"a {self.kind} state cannot show whole batches": self.kind != "opaque",
            "a changelog does not know of compacted tiles": self.changelog,
            "`tiles` says how long rows are kept, so it takes no ttl": self.ttl is not None,
            f"{self.backend} cannot compact them in one transaction": BACKENDS[self.backend].tables is None,
        }
        for reason, is_so in refused.items():
            if is_so:
                raise SpecError(f"state {self.name!r}: cannot have tiles: {reason}")

    def _check_backend(self) -> None:
        if self.backend not in BACKENDS:
            raise SpecError(f"state {self.name!r}: backend {self.backend!r} is not one of {', '.join(BACKENDS)}")
        if self.partitions > 1 and not BACKENDS[self.backend].has_partitions:
            raise SpecError(
                f"state {self.name!r}: partitions {self.partitions!r}, but a state in {self.backend} cannot be "
                "divided; leave them at 1"
            )

    def _check_names(self) -> None:
        for name in (self.name, *self.key, *self.measures):
            if not NAME.fullmatch(name):
                raise SpecError(f"state {self.name!r}: {name!r} is not a valid name; {NAME_RULE}")
        stored = [stored_column(name, suffix) for name, measure in self.measures.items() for suffix in measure.columns]
        # The columns of the table, then those of the view: names must be unique in each.
        for columns in [*self.key, *(stored or self.value_columns)], [*self.key, *self.measures]:
            for name in columns:
                if name in RESERVED or name.startswith("prev_") or columns.count(name) > 1:
                    raise SpecError(f"state {self.name!r}: column {name!r} is taken or reserved; choose another name")
                if len(name) > MAX_COLUMN:
                    raise SpecError(
                        f"state {self.name!r}: column {name!r} is over {MAX_COLUMN} characters; shorten the measure's "
                        "name or its part"
                    )
        for name, sql_type in self.key.items():
            if sql_type not in KEY_TYPES:
                raise SpecError(
                    f"state {self.name!r}: key {name!r} has type {sql_type!r}; choose one of {', '.join(KEY_TYPES)}"
                )

    def _check_values(self) -> None:
        if len(self.measures) > MAX_MEASURES or len(self.key) > MAX_KEY_COLUMNS:
            raise SpecError(
                f"state {self.name!r}: {len(self.key)} key columns and {len(self.measures)} measures; the limits are "
                f"{MAX_KEY_COLUMNS} and {MAX_MEASURES}, so split the state"
            )
        if bool(self.measures) == (self.value is not None):
            raise SpecError(f"state {self.name!r}: give either measures or value='jsonb'")
        if self.value not in (None, "jsonb"):
            raise SpecError(f"state {self.name!r}: value {self.value!r} is not supported; use 'jsonb' or measures")
        if self.changelog and self.kind == "non_transactional":
            raise SpecError(f"state {self.name!r}: a changelog needs txids; choose kind opaque or transactional")
        if self.changelog and len(self.key) == MAX_KEY_COLUMNS:
            raise SpecError(
                f"state {self.name!r}: {len(self.key)} key columns leave no room for the txid in the changelog's key; "
                f"use at most {MAX_KEY_COLUMNS - 1}, or leave out the changelog"
            )
        if len(self._row_counts) > 1:
            raise SpecError(f"state {self.name!r}: {' and '.join(self._row_counts)} both count its rows; keep one")
        self._check_row()

    def _check_row(self) -> None:
        """Raise SpecError if a row would be too large. An opaque row stores two versions, so it needs twice as much."""
        version = [*self.value_columns.values(), "boolean", "timestamptz", "bigint"]
        stored = [*self.key.values(), *version * (2 if self.kind == "opaque" else 1)]
        size = sum(max(type_of(sql_type).width or POINTER_BYTES, 8) for sql_type in stored)
        if len(stored) > MAX_COLUMNS or size > MAX_ROW_BYTES:
            raise SpecError(
                f"state {self.name!r}: a row with all its versions has {len(stored)} columns of {size} bytes or more; "
                f"the limits are {MAX_COLUMNS} and {MAX_ROW_BYTES}, so split the state"
            )

    @property
    def value_columns(self) -> dict[str, LiteralString]:
        """The stored columns of the value, name to SQL type."""
        return self.stored_columns(self.measures) if self.measures else {"value": "jsonb"}

    def stored_columns(self, measures: Iterable[str]) -> dict[str, LiteralString]:
        """Return the stored columns of some measures, name to SQL type."""
        return {
            stored_column(measure, suffix): sql_type
            for measure in measures
            for suffix, sql_type in self.measures[measure].columns.items()
        }

    @property
    def partial_columns(self) -> dict[str, LiteralString]:
        """The stored columns that a batch's partial aggregates fill; folding computes the others. Name to SQL type."""
        return {
            stored_column(measure, suffix): aggregator.columns[suffix]
            for measure, aggregator in self.measures.items()
            for suffix in aggregator.partial()
        }

    @cached_property
    def tiling(self) -> Tiles | None:
        """The checked tiles, with the finest first; None for a state without."""
        return None if self.tiles is None else check_tiles(self.name, self.key, self.tiles)

    @cached_property
    def untiled(self) -> "StateSpec":
        """The state with a key that lacks the start of the tile: what a window is asked and answered by."""
        key = {name: kind for name, kind in self.key.items() if self.tiling is None or name != self.tiling.column}
        return replace(self, key=key, tiles=None, partitions=1)

    @property
    def row_count(self) -> str | None:
        """The measure that removes a key when it is 0; None if there is none. A state without a key keeps its row."""
        return next(iter(self._row_counts), None) if self.key else None

    @property
    def _row_counts(self) -> list[str]:
        return [name for name, measure in self.measures.items() if getattr(measure, "removes_at_zero", False)]

    @property
    def folds_in_sql(self) -> bool:
        """Whether SQL can fold every measure; if not, the state is folded in Python."""
        return bool(self.measures) and all(aggregator.fold_sql for aggregator in self.measures.values())

    @property
    def folds_in_lua(self) -> bool:
        """Whether Lua in Redis can fold every measure."""
        return bool(self.measures) and all(aggregator.fold_lua for aggregator in self.measures.values())

    def fold(self, stored: Mapping[str, Any] | None, partial: Mapping[str, Any]) -> dict[str, Any]:
        """Fold a partial into the stored value, which is None if there is none. All three: stored column to value.

        Raises FoldRangeError, naming the measure, if a result is out of the range of its column.
        """
        folded: dict[str, Any] = {}
        for measure, fold, columns in self._folds:
            parts = {suffix: partial.get(column) for suffix, column, _ in columns}
            kept = {suffix: stored.get(column) if stored else None for suffix, column, _ in columns}
            joined = fold(kept, parts)
            for suffix, column, number in columns:
                folded[column] = joined[suffix]
                if number is not None and number.is_out_of_range(joined[suffix], kept[suffix], parts.get(suffix)):
                    raise FoldRangeError.of(measure, number.name, kept[suffix], parts.get(suffix))
        return folded

    def is_empty(self, value: Mapping[str, Any]) -> bool:
        """Return whether a folded value says that the key has no rows left, so that the key is removed."""
        return self.row_count is not None and value.get(self.row_count) == 0

    def finish(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a reader sees of a stored value: measure to value, or `{"value": ..}` for a JSON state."""
        if not self.measures:
            return {"value": stored}
        get = stored.get
        return {
            measure: finish({suffix: get(column) for suffix, column in columns})
            for measure, finish, columns in self.finishes
        }

    @cached_property
    def finishes(self) -> list[tuple[str, Callable[[Mapping[str, Any]], Any], list[tuple[str, str]]]]:
        """Of each measure its name, `finish`, and suffix and stored name of its columns; reads need them per key."""
        return [
            (measure, aggregator.finish, [(suffix, stored_column(measure, suffix)) for suffix in aggregator.columns])
            for measure, aggregator in self.measures.items()
        ]

    @cached_property
    def _folds(self) -> list[tuple[str, Callable[..., dict[str, Any]], list[tuple[str, str, SqlType | None]]]]:
        """(measure, fold, columns) per measure. A column: suffix, name, and its type, or None if it cannot overflow.

        Computed once per declaration, because `fold` runs for every key.
        """
        return [
            (measure, aggregator.fold, [_part(measure, aggregator, suffix) for suffix in aggregator.columns])
            for measure, aggregator in self.measures.items()
        ]

    def check_key(self, key: Any, index: int | None = None) -> Key:
        """Return `key` as a tuple of Python values of the declared types.

        Timestamps, dates and uuids may be ISO text, as in JSON. Raises KeyShapeError with `index`; its message names
        the wrong part and what was expected.
        """
        at = "" if index is None else f"key {index}: "
        if not isinstance(key, list | tuple):
            raise KeyShapeError(f"{at}expected a list of {len(self.key)} parts, got {shown(key)}", index)
        if len(key) != len(self.key):
            names = ", ".join(self.key) or "none"
            raise KeyShapeError(f"{at}expected {len(self.key)} parts ({names}), got {len(key)}", index)
        return self._typed_parts(key, at, index)

    def check_keys(self, keys: Iterable[Any], first: int = 0) -> list[Key]:
        """Return keys as check_key does. This is much faster for parts that have the declared types already.

        Raises KeyShapeError, whose index counts from `first`.
        """
        keys = list(keys)
        if self._plain_columns(keys) is not None:
            return list(map(tuple, keys))
        return [self.check_key(key, index) for index, key in enumerate(keys, first)]

    def check_columns(self, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the keys, checked as by check_keys, as one tuple of parts per key column."""
        columns = self._plain_columns(keys)
        return list(zip(*self.check_keys(keys), strict=True)) if columns is None else columns

    def _plain_columns(self, keys: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """Return the key columns if every part is valid as it is. None: check each key. Checked by column for speed."""
        if not {list, tuple}.issuperset(map(type, keys)):
            return None
        try:
            columns = list(zip(*keys, strict=True))
        except ValueError:  # some keys have more parts than others
            return None
        are_plain = zip(self._plain, columns, strict=False)
        return columns if len(columns) == len(self.key) and all(fit(column) for fit, column in are_plain) else None

    @cached_property
    def _plain(self) -> list[Callable[[tuple[Any, ...]], bool]]:
        # The limit is for all texts of a key together, so a text within its share is valid whatever the others are.
        text_bytes = MAX_KEY_BYTES // max(1, sum(sql_type.python is str for _, sql_type in self._key_types))
        return [partial(sql_type.are_plain, text_bytes=text_bytes) for _, sql_type in self._key_types]

    @cached_property
    def double_keys(self) -> list[str]:
        """The key columns that may hold a NaN, which in Python is equal only if it is the same object."""
        return [name for name, kind in self.key.items() if kind == "double precision"]

    @cached_property
    def _key_types(self) -> list[tuple[str, SqlType]]:
        return [(name, KEY_TYPES[sql_type]) for name, sql_type in self.key.items()]

    def check_prefix(self, prefix: Any, name: str = "prefix") -> Key:
        """Return the first parts of a key, checked as by check_key. Raises KeyShapeError, which calls them `name`."""
        if not isinstance(prefix, list | tuple) or len(prefix) > len(self.key):
            raise KeyShapeError(f"{name}: expected a list of at most {len(self.key)} parts, got {shown(prefix)}")
        return self._typed_parts(prefix, f"{name}: ")

    def _typed_parts(self, key: Any, at: str, index: int | None = None) -> Key:
        try:
            parts = tuple(
                sql_type.key_part(part, name) for part, (name, sql_type) in zip(key, self._key_types, strict=False)
            )
        except ValueError as error:
            raise KeyShapeError(f"{at}{error}", index) from None
        size = sum(len(part.encode()) for part in parts if isinstance(part, str))
        if size > MAX_KEY_BYTES:
            raise KeyShapeError(
                f"{at}{size} bytes of text are over the limit of {MAX_KEY_BYTES}: {shown(list(key))}", index
            )
        return parts


def weakest(guarantees: Sequence[AnyGuarantee]) -> AnyGuarantee:
    """Return the weakest of one or more guarantees; an unknown word counts as the weakest."""
    ranks = {guarantee: rank for rank, guarantee in enumerate(GUARANTEES)}
    return max(guarantees, key=lambda guarantee: ranks.get(guarantee, len(ranks)))


def _part(measure: str, aggregator: Aggregator, suffix: str) -> tuple[str, str, SqlType | None]:
    kind = type_of(aggregator.columns[suffix])
    # The stored column is a plain numeric; the measure's result type has the digits that limit it.
    kind = type_of(aggregator.result_type) if kind.digits and suffix == "" else kind
    can_overflow = kind.is_number and not getattr(aggregator, "is_choice", False)
    return suffix, stored_column(measure, suffix), kind if can_overflow else None


def stored_column(measure: str, suffix: str) -> str:
    """Return the name of a stored column of a measure; see `Aggregator.columns`."""
    return f"{measure}_{suffix}" if suffix else measure
