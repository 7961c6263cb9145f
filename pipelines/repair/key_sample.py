"""Key sample: the keys of a state that a recount counts, and the partial aggregates of only these keys.

Some keys are given, such as keys of the table. Others are drawn from the source, to find keys that the table lacks.
They are drawn by a hash of the key, so that either all events of a key are in the sample or none, and only the events
in the sample are grouped.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegauge.pipelines.batch.sink_plan import partial_aggregates
from tidegauge.pipelines.declare.keys import canonical_key
from tidegauge.pipelines.declare.stream import PersistentAggregate
from tidegauge.pipelines.spark.session import arrow_schema, spark_type
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

# The column that marks a given key.
GIVEN = "_given"

# The draw may give more keys than were asked for: by chance, or because the state has lost most of its rows, so that
# its size is no estimate of the number of keys. At most this many times the number asked for are counted.
SURPLUS = 4


@dataclass(frozen=True)
class KeySample:
    """given: these keys. drawn: about how many others. of: how many keys the state has, or should have."""

    given: Sequence[Key]
    drawn: int = 0
    of: int = 0
    salt: int = field(default_factory=lambda: secrets.randbelow(2**31))

    def partials(self, fed: PersistentAggregate, events: DataFrame) -> DataFrame:
        """Return the partial aggregates of the sample's keys, in the shape that `partial_aggregates` returns."""
        spec = fed.spec
        if not spec.key:
            return partial_aggregates(events, fed)
        columns = {name: f"_key_{name}" for name in spec.key}
        keyed = events.select("*", *(F.expr(fed.keys[name]).alias(column) for name, column in columns.items()))
        given = F.broadcast(_frame(events.sparkSession, spec, self.given))
        wanted = _marked(keyed, spec, columns, given).where(F.col(GIVEN) | self._is_drawn(spec, columns))
        rows = partial_aggregates(wanted, replace(fed, keys={name: quoted(key) for name, key in columns.items()}))
        return self._limited(rows, spec, given)

    def _is_drawn(self, spec: StateSpec, columns: Mapping[str, str]) -> Column:
        if not self.drawn:
            return F.lit(False)
        return F.pmod(self._hash(spec, columns), F.lit(max(1, self.of // self.drawn))) == 0

    def _limited(self, rows: DataFrame, spec: StateSpec, given: DataFrame) -> DataFrame:
        columns = {name: name for name in spec.key}
        order = F.col(GIVEN).desc_nulls_last(), self._hash(spec, columns)
        # Twice, because a key has two rows if some of its events are misfits.
        most = 2 * (len(self.given) + SURPLUS * self.drawn)
        return _marked(rows, spec, columns, given).orderBy(*order).limit(most).select(*rows.columns)

    def _hash(self, spec: StateSpec, columns: Mapping[str, str]) -> Column:
        return F.xxhash64(F.lit(self.salt), *_typed(spec, columns))


def _marked(rows: DataFrame, spec: StateSpec, columns: Mapping[str, str], given: DataFrame) -> DataFrame:
    """Return the rows with the column GIVEN, which is true if their key is given. columns: by name in the key."""
    pairs = zip(_typed(spec, columns), given.columns, strict=False)
    return rows.join(given, [key.eqNullSafe(given[name]) for key, name in pairs], "left")


def _typed(spec: StateSpec, columns: Mapping[str, str]) -> list[Column]:
    """Return the key columns converted to the types that the state stores."""
    keys = {name: quoted(column) for name, column in columns.items()}
    return [F.expr(part) for part in canonical_key(spec, keys).values()]


def _frame(spark: SparkSession, spec: StateSpec, keys: Sequence[Key]) -> DataFrame:
    columns = {f"{GIVEN}_{name}": spark_type(kind) for name, kind in spec.key.items()}
    schema = arrow_schema(columns | {GIVEN: "boolean"})
    parts = [list(map(_plain, part)) for part in zip(*keys, strict=True)] or [[] for _ in spec.key]
    arrays = [pa.array(part, kind.type) for part, kind in zip([*parts, [True] * len(keys)], schema, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))


def _plain(part: Any) -> Any:
    return str(part) if isinstance(part, UUID) else part
