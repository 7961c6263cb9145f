"""The rows of a changing table kept in a state, for sources that do not say how a row was before its change.

A change brings the key of its row and the row as it is now: a table whose REPLICA IDENTITY is not FULL, a topic of
upserts and tombstones. The state has the row as it was counted last, so each batch takes that away and counts the new
one. It costs a stored row per row of the table, and one read and one write per changed row. A replay finds the rows as
they were before the batch, since the state is opaque.
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
    """Return the stream with each changed row as it was, to be taken away: `with_old_rows(orders, ROWS)`.

    stream: of `PostgresChanges(.., old_rows="key")`, or any other with a tuple per change of a row.
    rows: the state that keeps the rows, its key the one that identifies a row; opaque, with value="jsonb".
    order_by: the order of the changes of a row. gone: Spark SQL, true where the tuple says that the row is gone.
    A batch gives of each row at most the one that was counted, with `_sign` -1, and the newest, with 1. The other
    columns are those of the stream without `order_by` and those that describe a change. A null key is a dead letter.
    Raises PipelineError when the pipeline starts, for a column that is missing; and in a batch, for a row whose log
    leaves out values that the state does not have.
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
    """Keeps the newest row of each key, column to text, and emits the row before and the new one where they differ."""

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
        """Return the values that the log left out, since they are those of the row before."""
        names = change[UNCHANGED] or ()
        if names and last is None:
            raise PipelineError(
                f"state {self.name!r}: has no row to take the unchanged {', '.join(names)} from, since the one before "
                "was a dead letter; correct that row, or read with REPLICA IDENTITY FULL and old_rows='full', and "
                "start again (PostgresChanges.drop(), then --reprocess)"
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
