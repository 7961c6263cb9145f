"""Spark's data source "tidegauge": a state as a DataFrame, as of one batch, whatever is committed in the meantime.

    spark.read.format("tidegauge").option("state", "orders_by_day").load()

The batch is pinned when the DataFrame is made (`load`), and every task of every job over it reads the state as of that
batch, with a transaction of its own (see state_backends/reader/pinned.py). Rows travel as Arrow batches.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends import Catalog, StateSpec, state_reader
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.reader.bounds import KeyRange, check_measures, check_range
from tidegauge.state_backends.reader.pinned import PinnedBatch, export_pinned, pin, ranges, record_batches
from tidegauge.state_backends.reader.reader import columns_of
from tidegauge.state_backends.spec.types import NUMERIC, TYPES, type_of

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_PARTITIONS = 4
MOST_PARTITIONS = 1_000

OPTIONS = ("state", "dsn", "at_txid", "at_time", "measures", "prefix", "start", "stop", "partitions", "modules")


@dataclass(frozen=True)
class StateRead:
    """What one DataFrame reads: a state as of a batch. It is sent to every task."""

    dsn: str = field(repr=False)
    spec: StateSpec
    batch: PinnedBatch
    measures: Sequence[str]
    bounds: KeyRange
    partitions: int
    modules: Sequence[str] = ()

    @property
    def ddl(self) -> str:
        """The schema as Spark SQL: key columns, then measures."""
        columns = columns_of(self.spec, list(self.measures))
        return ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in columns.items())

    def ranges(self) -> list[KeyRange]:
        """Return the ranges of keys that the tasks read, one each."""
        _import(self.modules)
        with connect(self.dsn, f"read {self.spec.name}") as conn:
            keys = BACKENDS[self.spec.backend].split_keys(conn, self.spec, self.partitions)
        return ranges(self.spec, keys, self.bounds)

    def rows(self, part: KeyRange, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        _import(self.modules)
        with connect(self.dsn, f"read {self.spec.name} {self.batch.txid}") as conn:
            # No timeout, because Spark reads only as fast as its next step consumes, and that may take any time.
            conn.execute("SET statement_timeout = 0")
            export = export_pinned(state_reader(conn, self.spec), conn, self.batch, part, self.measures)
            yield from record_batches(export, conn, self.batch, schema)


class TidegaugeDataSource(DataSource):
    """`spark.read.format("tidegauge")`. Options: see docs/read-from-spark.md."""

    @classmethod
    def name(cls) -> str:
        return "tidegauge"

    def schema(self) -> str:
        # Spark keeps this object from here on, so all its readers read the same batch.
        self._read = opened(self.options)
        return self._read.ddl

    def reader(self, schema: StructType) -> "StateRows":
        if not hasattr(self, "_read"):
            raise PipelineError(
                "format 'tidegauge' defines its own schema: leave out .schema(..), and name what to read in the "
                "option 'measures'"
            )
        return StateRows(self._read, schema)


@dataclass
class Part(InputPartition):
    range: KeyRange


class StateRows(DataSourceReader):
    """Reads the parts of one StateRead."""

    def __init__(self, read: StateRead, schema: StructType) -> None:
        self.read_ = read
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return [Part(part) for part in self.read_.ranges()]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Part)
        return self.read_.rows(partition.range, self._schema)


def opened(options: Mapping[str, str]) -> StateRead:
    """Return the read that the options describe, pinned to its batch.

    Raises PipelineError for a missing or invalid option, and what `pin` raises.
    """
    _check_names(options)
    dsn = options.get("dsn") or os.environ.get("DATABASE_URL", "")
    if not dsn:
        raise PipelineError("option 'dsn' is missing; set it, or DATABASE_URL, to the address of Tidegauge's database")
    state = options.get("state", "")
    if not state:
        raise PipelineError("option 'state' is missing; set it to the name of the state to read")
    _import(modules := _names(options.get("modules")))
    with connect(dsn, f"read {state}") as conn:
        batch = pin(conn, state, **_moment(options.get("at_txid"), options.get("at_time")))
        spec = Catalog(conn).get(state)
    measures = check_measures(spec, _names(options.get("measures")) or None)
    bounds = check_range(spec, *(_key(options, name) for name in ("prefix", "start", "stop")))
    partitions = _partitions(options.get("partitions"))
    return StateRead(dsn, spec, batch, list(dict.fromkeys(measures)), bounds, partitions, modules)


def spark_type(sql_type: str) -> str:
    """Return the type of a column in the DataFrame; text for a type that only PostgreSQL has."""
    return type_of(sql_type).spark if sql_type in TYPES or NUMERIC.fullmatch(sql_type) else "string"


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        # Spark adds `path` for load(path).
        if name.lower() not in OPTIONS:
            raise PipelineError(f"option {name!r} is not an option of format 'tidegauge': {', '.join(OPTIONS)}")


def _moment(at_txid: str | None, at_time: str | None) -> dict[str, Any]:
    if at_txid is not None and at_time is not None:
        raise PipelineError("options 'at_txid' and 'at_time' both name a batch; set only one of them")
    if at_txid is not None and not at_txid.isdecimal():
        raise PipelineError(f"option 'at_txid': {at_txid!r} is not the number of a batch, such as 57")
    return {"at_txid": None if at_txid is None else int(at_txid), "at_time": _time(at_time)}


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise PipelineError(
            f"option 'at_time': {text!r} is not a time with an offset, such as 2013-01-01T05:00:00+00:00"
        )
    return at


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _import(modules: Sequence[str]) -> None:
    """Import the user's modules, which register aggregators and backends of their own."""
    for module in modules:
        import_module(module)


def _key(options: Mapping[str, str], name: str) -> Any:
    try:
        return json.loads(options[name]) if name in options else None
    except json.JSONDecodeError:
        raise PipelineError(
            f'option {name!r}: {options[name]!r} is not JSON; write the first parts of a key, such as ["JFK", 2]'
        ) from None


def _partitions(text: str | None) -> int:
    if text is None:
        return DEFAULT_PARTITIONS
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PARTITIONS:
        raise PipelineError(f"option 'partitions': {text!r} is not a number from 1 to {MOST_PARTITIONS}")
    return int(text)
