"""Old rows: keeps the rows of a changing table in a state, for sources that do not send the row before a change.

With such a source, a change has only the key and the new row: a table whose REPLICA IDENTITY is not FULL, or a topic of
upserts and tombstones. The state holds each row as it was last counted, so a batch can take that away and count the new
one. This costs a stored row per row of the table, and one read and one write per changed row. A replay finds the rows
as they were before the batch, because the state is opaque.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.keyed import PAYLOAD, check_can_hold, fold_by_key
from tidegauge.pipelines.sources.source import SIGN
from tidegauge.pipelines.spark.packing import JSON_OPTIONS
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.state_spec import StateSpec

GONE, UNCHANGED = "gone", "_unchanged"
OF_THE_CHANGE = ("_change", "_deleted", "_lsn", "_at", SIGN, UNCHANGED)

NESTED = (ArrayType, MapType, StructType)


def with_old_rows(
    stream: Stream, rows: StateSpec, *, order_by: Sequence[str] = ("_lsn", SIGN), gone: str = "_deleted"
) -> Stream:
    """Return the stream with each changed row also as it was before, to be taken away: `with_old_rows(orders, ROWS)`.

    stream: of `PostgresChanges(.., old_rows="key")`, or any other with a tuple per change of a row.
    rows: the state that keeps the rows; its key identifies a row; opaque, with value="jsonb".
    order_by: the order of the changes of a row. gone: Spark SQL, true if the tuple says that the row was deleted.
    For each row, a batch emits at most the version that was counted, with `_sign` -1, and the newest, with 1. The other
    columns are those of the stream except `order_by` and those that describe a change. A null key is a dead letter.
    Raises PipelineError when the pipeline starts if a column is missing, and in a batch if the log leaves out values of
    a row that the state does not have.
    """
    check_can_hold(rows)

    def pack(context: BatchContext, events: DataFrame) -> DataFrame:
        kept = [quoted(name) for name in dict.fromkeys((*rows.key, *order_by))]
        unsent = F.col(UNCHANGED) if UNCHANGED in events.columns else F.lit(None).cast("array<string>")
        texts = F.struct(*(_as_text(events, field).alias(field.name) for field in _columns(events, order_by)))
        return events.select(
            *kept, F.expr(gone).alias(GONE), unsent.alias(UNCHANGED), F.to_json(texts, JSON_OPTIONS).alias(PAYLOAD)
        )

    def unpack(context: BatchContext, emitted: DataFrame, events: DataFrame) -> DataFrame:
        columns = _columns(events, order_by)
        texts = StructType([StructField(field.name, StringType()) for field in columns])
        values = [_from_text(F.col("row")[field.name], field.dataType).alias(field.name) for field in columns]
        return emitted.select(F.from_json(PAYLOAD, texts).alias("row"), SIGN).select(*values, SIGN)

    stored = Stream((stream,), pack).partition_persist(
        rows, CurrentRows(rows.name, tuple(rows.key)), order_by=order_by, emits={PAYLOAD: "string", SIGN: "int"}
    )
    return Stream((stored.new_values_stream(), stream), unpack, signed=True)


@dataclass(frozen=True)
class CurrentRows:
    """Keeps the newest row of each key, column to text, and emits the row before and the new one if they differ."""

    name: str
    key: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(counted: dict[str, Any] | None, changes: list[Mapping[str, Any]]) -> dict[str, Any] | None:
            row = self._newest(counted, changes)
            for each, sign in ((counted, -1), (row, 1)):
                if each is not None and counted != row:
                    collector.emit(json.dumps(each), sign)
            return row

        fold_by_key(state, tuples, self.key, fold)

    def _newest(self, row: dict[str, Any] | None, changes: list[Mapping[str, Any]]) -> dict[str, Any] | None:
        last = row
        for change in changes:
            if change[GONE]:
                row = None
                continue
            row = json.loads(change[PAYLOAD]) | self._unsent(last, change)
            last = row
        return row

    def _unsent(self, last: dict[str, Any] | None, change: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the log left out because they are those of the row before."""
        names = change[UNCHANGED] or ()
        if names and last is None:
            raise PipelineError(
                f"state {self.name!r}: has no row to take the unchanged {', '.join(names)} from, because the one "
                "before was a dead letter; correct that row, or read with REPLICA IDENTITY FULL and old_rows='full', "
                "and start again (PostgresChanges.drop(), then --reprocess)"
            )
        return {name: (last or {}).get(name) for name in names}


def _columns(events: DataFrame, order_by: Sequence[str]) -> list[StructField]:
    return [field for field in events.schema if field.name not in (*order_by, *OF_THE_CHANGE)]


def _as_text(events: DataFrame, field: StructField) -> Column:
    """Return a value as text that loses nothing and means the same in every session."""
    value, kind = F.col(quoted(field.name)), field.dataType
    if isinstance(kind, TimestampType):
        return F.unix_micros(value).cast("string")
    if isinstance(kind, BinaryType):
        return F.base64(value)
    return F.to_json(value, JSON_OPTIONS) if isinstance(kind, NESTED) else value.cast("string")


def _from_text(text: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(text.cast("long"))
    if isinstance(kind, BinaryType):
        return F.unbase64(text)
    return F.from_json(text, kind, JSON_OPTIONS) if isinstance(kind, NESTED) else text.cast(kind)
