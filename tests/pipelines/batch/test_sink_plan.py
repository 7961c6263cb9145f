"""What a state is fed, as one query: names and types as declared, whatever they are."""

import uuid
from collections import Counter

import pytest
from pyspark.sql import functions as F

from tidegauge.pipelines.batch.sink_plan import partial_aggregates, tuples_by_key
from tidegauge.pipelines.declare.functions import StateUpdater
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import PartitionPersist, Stream
from tidegauge.pipelines.declare.windows import sliding
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.spark.session import data_type, sql_of_type
from tidegauge.state_backends import Count, Max, StateSpec, Sum

pytestmark = pytest.mark.spark

EVENT = "`odd name` string, hour bigint, seconds bigint, `nested` struct<`a ``b`: array<int>, m: map<string, int>>"


def rows(spark, stream):
    events = spark.createDataFrame([("x", 13, 5, None), ("x", 14, 6, None), ("y", 25, 7, None)], EVENT)
    return {tuple(row) for row in partial_aggregates(events, stream).collect()}


def test_a_key_may_have_the_name_of_a_column_that_a_measure_reads(spark):
    spec = StateSpec("latest", key={"hour": "bigint"}, measures={"latest": Max("hour", type="bigint")})
    grouped = Stream.read(JsonFiles("/nowhere", schema=EVENT)).group_by(hour="hour % 12")

    assert rows(spark, grouped.persistent_aggregate(spec)) == {(1, 25), (2, 14)}


def test_a_key_that_is_a_number_is_no_place_in_the_query(spark):
    spec = StateSpec("by_one", key={"one": "integer"}, measures={"n": Count()})
    grouped = Stream.read(JsonFiles("/nowhere", schema=EVENT)).group_by(one="2")

    assert rows(spark, grouped.persistent_aggregate(spec)) == {(2, 3)}


def test_spellings_of_a_key_are_one_group_and_go_to_one_task(spark):
    spelled = [str(uuid.UUID(int=(0xAB << 120) + n)) for n in range(20)]
    given = [(text if n % 2 else text.upper(), nan) for n in range(6) for text in spelled for nan in (0.0, -0.0)]
    events = spark.createDataFrame(given, "id string, x double").repartition(4)
    spec = StateSpec("by_id", key={"id": "uuid", "x": "double precision"}, measures={"n": Count()})
    fed = Stream.read(JsonFiles("/nowhere", schema="id string, x double")).group_by("id", "x")

    groups = partial_aggregates(events, fed.persistent_aggregate(spec)).collect()
    updated = tuples_by_key(events, PartitionPersist(fed.stream, spec, CountTuples(), None, ()), context=None)
    placed = updated.withColumn("task", F.spark_partition_id())
    partitions = placed.groupBy("id").agg(F.countDistinct("task"), F.count("*")).collect()

    assert sorted(map(tuple, groups)) == sorted((text, 0.0, 12) for text in spelled)
    assert {str(group.x) for group in groups} == {"0.0"}
    assert sorted(map(tuple, partitions)) == sorted((text, 1, 12) for text in spelled)


def test_a_type_is_written_as_spark_reads_it(spark):
    kind = data_type(EVENT)

    assert data_type(sql_of_type(kind)) == kind


class CountTuples(StateUpdater):
    def update_state(self, state, tuples, collector):
        counts = Counter((row["name"],) for row in tuples)
        before = state.multi_get(list(counts))
        state.multi_put(list(counts), [n + (value or 0) for n, value in zip(counts.values(), before, strict=True)])


class NotesTuples(CountTuples):
    def __init__(self, file):
        self.file = file

    def update_state(self, state, tuples, collector):
        super().update_state(state, tuples, collector)
        for name in {row["name"] for row in tuples}:
            collector.emit(name)
        with self.file.open("a") as seen:
            seen.writelines(row["name"] for row in tuples)


def test_an_updater_runs_once_however_many_states_read_what_it_emits(workspace, tmp_path):
    seen = tmp_path / "seen"
    events = Stream.read(JsonFiles(workspace.input, schema=EVENT, files_per_batch=1)).each(name="`odd name`")
    emitted = events.partition_persist(
        StateSpec("noted", key={"name": "text"}, value="jsonb"), NotesTuples(seen), emits={"name": "string"}
    ).new_values_stream()
    by_name = emitted.group_by("name").persistent_aggregate(
        StateSpec("by_name", key={"name": "text"}, measures={"n": Count()})
    )
    total = emitted.persistent_aggregate(StateSpec("emitted", measures={"n": Count()}))
    moved = by_name.new_values_stream().persistent_aggregate(StateSpec("moved", measures={"n": Count()}))
    pipeline = Pipeline("three_levels", [by_name, total, moved])
    for number in range(2):
        workspace.land(f"{number}.json", *({"odd name": name} for name in "abc"))

    # The second batch, after a small one, is one task.
    assert workspace.run(pipeline) == [(1, 1), (2, 1)]
    assert [workspace.values(state)[()]["n"] for state in ("emitted", "moved")] == [6, 6]
    assert sorted(seen.read_text()) == ["a", "a", "b", "b", "c", "c"]


def test_tasks_run_once_where_the_new_values_of_two_states_are_read_in_one_query(workspace, tmp_path):
    seen = tmp_path / "seen"
    events = Stream.read(JsonFiles(workspace.input, schema="name string, at timestamp"))
    windows = events.group_by(start=sliding("at", "3 hours", "50 minutes")).persistent_aggregate(
        StateSpec("windows", key={"start": "timestamptz"}, measures={"n": Count()})
    )
    noted = [
        events.where("at IS NOT NULL")
        .partition_persist(StateSpec(name, key={"name": "text"}, value="jsonb"), updater, emits={"name": "string"})
        .new_values_stream()
        .group_by("name")
        .persistent_aggregate(StateSpec(f"{name}_names", key={"name": "text"}, measures={"n": Count()}))
        for name, updater in [("first", NotesTuples(seen)), ("second", NotesTuples(seen))]
    ]
    workspace.land("1.json", {"name": "a", "at": "2026-01-01T00:00:00Z"}, {"name": "b", "at": "2026-01-01T00:00:00Z"})

    assert workspace.run(Pipeline("two_levels", [windows, *noted])) == [(1, 1)]
    assert sorted(seen.read_text()) == ["a", "a", "b", "b"]
    assert workspace.values("second_names") == {"a": {"n": 1}, "b": {"n": 1}}


def test_tasks_run_once_where_a_state_cannot_take_some_of_what_they_emit(workspace, tmp_path):
    seen = tmp_path / "seen"
    spec = StateSpec("noted", key={"name": "text"}, value="jsonb")
    emitted = Stream.read(JsonFiles(workspace.input, schema="name string")).partition_persist(
        spec, NotesTuples(seen), emits={"name": "string"}
    )
    numbers = emitted.new_values_stream().each(name="name", x="CASE name WHEN 'a' THEN 1 ELSE double('NaN') END")
    total = StateSpec("total", measures={"x": Sum("x", "double precision")})
    # More misfits than are tolerated without a count of all events, which the share then allows.
    workspace.land("1.json", *({"name": name} for name in "abcdefghijklmn"))
    pipeline = Pipeline("misfits_below", [numbers.persistent_aggregate(total)])
    pipeline.sources[0].max_bad_share = 1.0

    assert workspace.run(pipeline) == [(1, 1)]
    assert sorted(seen.read_text()) == list("abcdefghijklmn")
    assert workspace.rows("SELECT count(*) FROM tidegauge.dead_letter") == [(13,)]
    assert workspace.values("total") == {(): {"x": 1.0}}


def test_a_batch_leaves_no_name_in_the_session_which_would_keep_its_plan(spark, tidegauge_run):
    events = Stream.read(JsonFiles("/nowhere", schema="name string"))
    counted = events.group_by("name").persistent_aggregate(
        StateSpec("counted", key={"name": "text"}, measures={"n": Count()})
    )
    total = counted.new_values_stream().persistent_aggregate(StateSpec("total", measures={"n": Sum("n")}))

    tidegauge_run(Pipeline("two_levels", [total]), [[{"name": "a"}]])
    partial_aggregates(spark.range(1).selectExpr("'a' AS name"), counted).collect()

    assert spark.catalog.listTables() == []


def test_groups_and_an_updater_share_a_query(workspace):
    events = Stream.read(JsonFiles(workspace.input, schema=EVENT, files_per_batch=1))
    pipeline = Pipeline(
        "odd_names",
        [
            events.group_by(name="`odd name`").persistent_aggregate(
                StateSpec(
                    "grouped",
                    key={"name": "text"},
                    measures={"n": Count(), "seconds": Sum("seconds", "double precision")},
                )
            ),
            events.each(name="`odd name`").partition_persist(
                StateSpec("updated", key={"name": "text"}, value="jsonb"), CountTuples()
            ),
            events.persistent_aggregate(StateSpec("total", measures={"n": Count()})),
        ],
    )
    for number in range(3):
        workspace.land(f"{number}.json", *({"odd name": f"n{n % 3}", "seconds": n} for n in range(300)))

    # Those after the first, which are after a small one, are one task each.
    assert workspace.run(pipeline) == [(1, 1), (2, 1), (3, 1)]
    assert workspace.values("total") == {(): {"n": 900}}
    assert workspace.values("updated") == dict.fromkeys(("n0", "n1", "n2"), 300)
    assert {name: row["n"] for name, row in workspace.values("grouped").items()} == dict.fromkeys(
        ("n0", "n1", "n2"), 300
    )


def test_a_state_is_written_by_no_more_tasks_than_may_have_a_connection(workspace, monkeypatch):
    """Though its groups come in more partitions, and the batch is not taken for a small one."""
    monkeypatch.setenv("TIDEGAUGE_MAX_WRITERS", "3")
    workspace.land("1.txt", " ".join(f"word{number}" for number in range(500)))
    partitions = workspace.spark.conf.get("spark.sql.shuffle.partitions")
    workspace.spark.conf.set("spark.sql.shuffle.partitions", 16)

    try:
        workspace.run(word_count(workspace.input))
    finally:
        workspace.spark.conf.set("spark.sql.shuffle.partitions", partitions)

    assert workspace.rows("SELECT tasks -> 'words' -> 'tasks' FROM tidegauge.batch") == [(3,)]
    assert workspace.rows("SELECT count(*), sum(count) FROM tidegauge_live.words") == [(500, 500)]
