"""StateTable: the table of a state, with the names and SQL types of its columns.

The code that reads, writes, trims and creates state tables takes the columns from here.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, LiteralString

from psycopg import sql

from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

# The key of a global aggregate, which has no key columns: a table needs a primary key.
SINGLETON: dict[str, LiteralString] = {"singleton": "boolean"}

# The schemas of states and their changelogs, of their shadow tables, and of those that a reprocess has replaced.
SCHEMAS = ("tidegauge_state", "tidegauge_changelog")
SHADOW_SCHEMAS = ("tidegauge_shadow_state", "tidegauge_shadow_changelog")
KEPT_SCHEMAS = ("tidegauge_kept_state", "tidegauge_kept_changelog")


class StateTable:
    """Identifiers and columns of `tidegauge_state.<name>` and its changelog.

    key: the key columns, name to SQL type; a global aggregate has one that is always true.
    values: the columns of the value. version: the columns of one version of a row: values, removed, updated_at.
    """

    def __init__(self, spec: StateSpec, schemas: tuple[str, str] = SCHEMAS) -> None:
        self.spec = spec
        self.schemas = schemas
        self.name = sql.Identifier(schemas[0], spec.name)
        self.changelog = sql.Identifier(schemas[1], spec.name)
        self.live_view = sql.Identifier("tidegauge_live", spec.name)
        self.key: dict[str, LiteralString] = dict(spec.key) or dict(SINGLETON)
        self.values: dict[str, LiteralString] = spec.value_columns
        self.version: dict[str, LiteralString] = self.values | {"removed": "boolean", "updated_at": "timestamptz"}

    def shadow(self) -> "StateTable":
        """Return the shadow table, which is filled before it is swapped with the table in use."""
        return StateTable(self.spec, SHADOW_SCHEMAS)

    def kept(self) -> "StateTable":
        """Return the table that is kept after a reprocess has replaced this one."""
        return StateTable(self.spec, KEPT_SCHEMAS)

    @cached_property
    def incoming(self) -> sql.Identifier:
        """The temporary table for a batch's rows. The session keeps it, so its name has a digest of its columns.

        It is kept because a table per task and batch would leave millions of dead rows a day in PostgreSQL's catalog.
        """
        layout = repr((self.schemas[0], self.spec.name, self.key, self.values))
        return sql.Identifier(f"incoming_{sha256(layout.encode()).hexdigest()[:16]}")

    @property
    def keeps_previous(self) -> bool:
        return self.spec.kind == "opaque"

    @property
    def keeps_txid(self) -> bool:
        return self.spec.kind != "non_transactional"

    @property
    def row(self) -> dict[str, LiteralString]:
        """Every column of a row except the key, name to SQL type: the version, its txid, and the previous version."""
        types = dict(self.version)
        if self.keeps_txid:
            types["txid"] = "bigint"
        if self.keeps_previous:
            types |= dict(zip(previous(self.version), self.version.values(), strict=True))
            types["prev_txid"] = "bigint"
        return types

    def key_values(self, key: Key) -> Key:
        """Return the values of the key columns."""
        return key or (True,)

    def read_key(self, values: Sequence[Any]) -> Key:
        """Return the key from the values of its columns, in canonical form, so that a NaN equals one of another row."""
        key = tuple(values) if self.spec.key else ()
        return self.spec.check_key(key) if self.spec.double_keys else key

    def key_columns(self, keys: Sequence[Key]) -> list[str | list[Any]]:
        """Return checked keys as one array per key column: the parameters of `unnest`."""
        return self.arrays(list(zip(*keys, strict=True)), len(keys))

    def arrays(self, columns: Sequence[Sequence[Any]], keys: int) -> list[str | list[Any]]:
        """Return the same from the checked columns of `keys` keys."""
        if not self.spec.key:
            return [[True] * keys]
        return [as_array(column) for column in columns] or [[] for _ in self.key]

    def unnest(self, with_ordinality: bool = False) -> sql.Composed:
        """Return `unnest(%s::text[], ..) [WITH ORDINALITY] AS k (page, .. [, ordinality])`."""
        arrays = commas(sql.SQL("%s::{}[]").format(sql.SQL(sql_type)) for sql_type in self.key.values())
        names = columns([*self.key, "ordinality"] if with_ordinality else self.key)
        ordinality = sql.SQL("WITH ORDINALITY ") if with_ordinality else sql.SQL("")
        return sql.SQL("unnest({}) {}AS k ({})").format(arrays, ordinality, names)

    def same_key(self, left: str, right: str) -> sql.Composed:
        """Return the condition that rows `left` and `right` have the same key."""
        return sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(left, name), sql.Identifier(right, name)) for name in self.key
        )


def as_array(parts: Sequence[Any]) -> str | list[Any]:
    """Return one or more key parts of one type as a parameter that PostgreSQL reads as an array.

    It is written here at once, because psycopg formats an array part by part in Python: for 100 texts that takes a
    fifth of the time of a whole lookup.
    """
    if type(parts[0]) is int:
        return f"{{{str(list(parts))[1:-1]}}}"
    if type(parts[0]) is not str:
        return list(parts)
    text = '","'.join(parts)
    # A text with a quote or a backslash needs escaping, so psycopg formats such an array.
    is_plain = "\\" not in text and text.count('"') == 2 * (len(parts) - 1)
    return f'{{"{text}"}}' if is_plain else list(parts)


def columns(names: Iterable[str], table: str | None = None) -> sql.Composed:
    """Return `"a", "b"`, or `t."a", t."b"`."""
    return commas(sql.Identifier(name) if table is None else sql.Identifier(table, name) for name in names)


def commas(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def previous(names: Iterable[str]) -> Iterator[str]:
    """Yield the columns of the previous version."""
    return (f"prev_{name}" for name in names)
