"""whole_keys: however Arrow parts the rows, an updater gets all of a key at once."""

import math
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.pipelines.batch.tasks import whole_keys
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

parts = st.sampled_from(["a", "b", None])
keys = st.tuples(st.sampled_from([1.0, 2.0, math.nan]), parts)


def batch(rows):
    keys, numbers = [key for key, _ in rows], [number for _, number in rows]
    arrays = [pa.array([x for x, _ in keys], pa.float64()), pa.array([y for _, y in keys], pa.string())]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(numbers, pa.int64())], names=["x", "y", "n"])


def keys_of(batch):
    return {repr((row["x"], row["y"])) for row in batch.to_pylist()}


@given(st.lists(st.tuples(keys, st.integers(0, 5)), max_size=8, unique_by=lambda each: repr(each[0])), st.data())
def test_rows_stay_in_order_and_no_key_is_in_two_batches(groups, data):
    rows = [(key, number) for key, times in groups for number in range(times)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    batches = [batch(rows[start:stop]) for start, stop in pairwise([0, *cuts, len(rows)])]

    whole = list(whole_keys(batches, ["x", "y"]))

    together = pa.Table.from_batches(whole, schema=batch([]).schema)
    assert repr(together.to_pylist()) == repr(batch(rows).to_pylist())
    assert all(each.num_rows for each in whole)
    seen = [key for each in whole for key in keys_of(each)]
    assert len(seen) == len(set(seen))


@pytest.mark.spark
def test_a_timer_s_key_comes_with_all_its_tuples_where_arrow_parts_them(workspace):
    def minute(number, user):
        return {"user": user, "at": f"2024-03-10T09:{number:02}:00Z"}

    kept = StateSpec("kept", key={"user": "text"}, value="jsonb")
    closed = StateSpec("closed", key={"user": "text", "events": "bigint"}, measures={"n": Count()})
    events = Stream.read(JsonFiles(workspace.input, schema="user string, at timestamp", files_per_batch=1))
    gone = closed_sessions(events.with_watermark("at", "1 minute"), kept, "at", timedelta(minutes=10))
    pipeline = Pipeline("parted", [gone.group_by("user", "events").persistent_aggregate(closed)])
    workspace.land("1.json", minute(0, "ann"))
    workspace.land("2.json", *(minute(number, "ann") for number in (9, 18, 27)), minute(59, "bob"))
    workspace.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        workspace.run(pipeline)
    finally:
        workspace.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")

    assert workspace.values("closed") == {("ann", 4): {"n": 1}}
