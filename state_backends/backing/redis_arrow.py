"""A batch's partial aggregates as a merge sends them: keys as bytes, columns as packed text, straight from Arrow."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from state_backends.backing.key_bytes import KeyBytes
from state_backends.backing.redis_packing import pack_array
from state_backends.errors import DuplicateKeyError, KeyShapeError, ValueShapeError
from state_backends.spec import MAX_KEY_BYTES, StateSpec
from state_backends.types import KEY_TYPES, type_of


class Partials:
    """The rows of one merge: `keys` as bytes, and the columns of the value, to be packed as they are sent.

    Raises KeyShapeError for a null or a part that no key holds, DuplicateKeyError, KeyError for a missing column.
    """

    def __init__(self, spec: StateSpec, batches: Iterable[pa.RecordBatch], txid: int) -> None:
        self._spec, self._txid = spec, txid
        names = [*spec.key, *spec.value_columns]
        kept = [batch.select(names) for batch in batches]
        table = pa.Table.from_batches(kept).combine_chunks() if kept else None
        self.keys = self._keys(table) if table else []
        self._columns = [self._text(table[name], name, of) for name, of in spec.value_columns.items()] if table else []

    def packed(self, positions: Sequence[int]) -> list[bytes]:
        """Return two strings per column with the values at these positions."""
        return [part for column in self._columns for part in pack_array(_pick(column, positions))]

    def key(self, position: int) -> tuple[Any, ...]:
        return KeyBytes(self._spec).decode(self.keys[position])

    def _keys(self, table: pa.Table) -> list[bytes]:
        columns = [self._key_column(table[name], name, sql_type) for name, sql_type in self._spec.key.items()]
        keys = self._encoded(columns) if columns else [b""] * table.num_rows
        if len(set(keys)) < len(keys):
            raise DuplicateKeyError(
                f"state {self._spec.name!r}: batch {self._txid} carries a key twice; "
                f"combine its rows by {', '.join(self._spec.key) or 'nothing'} first"
            )
        return keys

    def _encoded(self, columns: list[list[Any]]) -> list[bytes]:
        if not self._fits(columns):
            for index, key in enumerate(zip(*columns, strict=True)):
                self._spec.check_key(key, index)
        return KeyBytes(self._spec).encode_columns(columns)

    def _fits(self, columns: list[list[Any]]) -> bool:
        """Return whether all texts are surely short and free of NULs: all that a typed part can still be wrong in."""
        texts = [column for column, of in zip(columns, self._spec.key.values(), strict=True) if of == "text"]
        # A character takes four bytes at most.
        limit = MAX_KEY_BYTES // 4 // (len(texts) or 1)
        return all(len(text) <= limit and "\0" not in text for column in texts for text in column)

    def _key_column(self, column: pa.ChunkedArray, name: str, sql_type: str) -> list[Any]:
        if column.null_count:
            raise KeyShapeError(
                f"state {self._spec.name!r}: batch {self._txid} carries a key whose {name} is null; "
                "leave such rows out first"
            )
        try:
            kind = KEY_TYPES[sql_type]
            parts: list[Any] = column.cast(kind.arrow).to_pylist()
            return list(map(kind.from_text, parts)) if kind.is_text_in_arrow else parts
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise KeyShapeError(f"state {self._spec.name!r}: {name} must be {sql_type}: {error}") from error

    def _text(self, column: pa.ChunkedArray, name: str, sql_type: str) -> pa.Array:
        """Return a column in the form that a row's field has, as binary."""
        try:
            kind = type_of(sql_type)
            typed = column.cast(kind.arrow)
            if kind.python is datetime:
                typed = typed.cast(pa.int64())
            text = typed if kind.python is bytes else typed.cast(pa.string())
            return _whole(text.cast(pa.binary()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueShapeError(f"state {self._spec.name!r}: {name} must be {sql_type}: {error}") from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _pick(column: pa.Array, positions: Sequence[int]) -> pa.Array:
    if isinstance(positions, range):
        return column.slice(positions.start, len(positions))
    return pc.take(column, pa.array(positions, pa.int64()))
