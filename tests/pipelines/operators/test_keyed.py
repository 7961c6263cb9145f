"""What the updaters share: one fold per key, and columns of any type packed and unpacked without change."""

from datetime import timedelta

import pytest

from tests.pipelines.operators.updater_harness import START, OneReadOneWrite
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.join import join
from tidegauge.pipelines.operators.keyed import fold_by_key
from tidegauge.pipelines.operators.reorder import in_order
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.spark.packing import packed, unpacked
from tidegauge.state_backends import Count, MemoryBackingMap, OpaqueMap, StateSpec, Versioned

TOTALS = StateSpec("totals", key={"name": "text"}, value="jsonb")
HELD = StateSpec("held", key={"id": "text"}, value="jsonb")
N = StateSpec("n", measures={"n": Count()})

VALUES = """
    'a "quoted" \\u0000 text' AS text, 9007199254740993 AS big, 12345678901234567890.123456789 AS exact,
    double('NaN') AS nan, double('-Infinity') AS least, 0.1D AS tenth, float(0.1) AS float, true AS yes,
    timestamp'2024-02-29 23:59:59.123456' AS at, timestamp_ntz'2024-02-29 23:59:59.123456' AS local,
    timestamp'9999-12-31 23:59:59.999999' AS last, timestamp'0001-01-01 00:00:00' AS first, date'1582-10-15' AS day,
    x'00ff' AS bytes, array(1, null) AS list, map('k', timestamp'2024-01-01 00:00:00.000001') AS map,
    named_struct('a', 1, 'b', null) AS struct, cast(null AS string) AS nothing, interval '1' day AS span
"""


def test_only_values_that_change_are_written():
    rows = MemoryBackingMap(TOTALS)
    rows.multi_put([("same",), ("more",), ("gone",)], [Versioned(number, txid=1, at=START) for number in (0, 5, 9)])
    counts = OpaqueMap(rows)
    counts.begin_commit(2, at=START)

    def add(total, tuples):
        total = (total or 0) + sum(row["n"] for row in tuples)
        return None if total > 8 else total

    tuples = [{"name": name, "n": n} for name, n in [("same", 0), ("more", 1), ("more", 2), ("gone", 1), ("never", 9)]]
    fold_by_key(OneReadOneWrite(counts, None), tuples, ["name"], add)

    assert {key[0]: (row.value, row.txid) for key, row in rows.scan()} == {
        "same": (0, 1),
        "more": (8, 2),
        "gone": (None, 2),
    }


@pytest.mark.spark
def test_a_tuple_of_any_types_is_packed_and_unpacked_as_it_was(spark):
    events = spark.sql(f"SELECT {VALUES}")

    again = events.select(packed(events).alias("p")).select(unpacked("p", events).alias("e")).select("e.*")

    # Spark cannot hash maps.
    hashes = [f"hash({'map_entries(map)' if name == 'map' else name}) AS {name}" for name in events.columns]
    assert again.dtypes == events.dtypes
    assert again.selectExpr(hashes).first() == events.selectExpr(hashes).first()


def checked(spark, stream):
    check(Pipeline("p", [stream.persistent_aggregate(N)]), spark)


@pytest.mark.spark
def test_wrong_event_times_and_duplicate_columns_are_refused_before_the_start(spark, tmp_path):
    def events(schema):
        return Stream.read(JsonFiles(tmp_path, schema=schema))

    good, gap = events("id string, at timestamp"), timedelta(hours=1)
    with pytest.raises(PipelineError, match="event time 'at' is string in the stream; cast it to a timestamp"):
        checked(spark, in_order(events("id string, at string"), HELD, "at"))
    with pytest.raises(PipelineError, match="event time 'when' is absent in the stream"):
        checked(spark, closed_sessions(good, HELD, "when", gap))
    with pytest.raises(PipelineError, match="the stream has a column 'late' already; rename it"):
        checked(spark, in_order(events("id string, at timestamp, late boolean"), HELD, "at"))
    with pytest.raises(PipelineError, match="join by id: both sides have a column 'at'; rename it"):
        checked(spark, join(good, good, HELD, times=("at", "at"), within=gap))
    with pytest.raises(PipelineError, match="event time 'at' is string"):
        checked(spark, join(good, events("id string, at string"), HELD, times=("at", "at"), within=gap))
