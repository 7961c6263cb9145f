"""History from files, then the pipeline's own source: every event of both counts once, wherever it is killed."""

import pytest

from tests.pipelines.fault_injection import InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.backfill import Backfill, history_source, with_source
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.state_backends import BatchLedger, Count, StateSpec, Sum
from tidegauge.state_backends.errors import BackfillError, ShorterInputError
from tidegauge.state_backends.ledger import backfill
from tidegauge.state_backends.repair.resume import resume_point

SCHEMA = "origin string NOT NULL, delay int"
FLIGHTS = StateSpec("flights", key={"origin": "text"}, measures={"n": Count(), "delay": Sum("delay", type="bigint")})
PEAKS = StateSpec("peaks", key={"n": "bigint"}, measures={"reached": Count()})


def flights(*names):
    """Flights per airport, and how often a number of them was reached."""
    fed = Stream.read(RedisStreams(names, schema=SCHEMA)).group_by("origin").persistent_aggregate(FLIGHTS)
    return Pipeline("flights", [fed.new_values_stream().group_by("n").persistent_aggregate(PEAKS)])


@pytest.fixture
def count_history(workspace):
    """Counts the files of the workspace as the history of a pipeline; returns its last batch."""

    def count_history(pipeline, named="acme:files"):
        files = JsonFiles(workspace.input, schema=SCHEMA, files_per_batch=1)
        return Backfill(pipeline, files, named, workspace.spark, workspace.dsn, workspace.checkpoint).run()

    return count_history


@pytest.fixture
def fail_at(monkeypatch):
    """Kills the driver once, after the tasks of a batch have written."""

    def fail_at(txid):
        commit = BatchLedger.commit

        def failing(ledger, batch, **figures):
            if batch.txid == txid:
                monkeypatch.setattr(BatchLedger, "commit", commit)
                raise InjectedFault
            commit(ledger, batch, **figures)

        monkeypatch.setattr(BatchLedger, "commit", failing)

    return fail_at


def totals(workspace):
    return {origin: (value["n"], value["delay"]) for origin, value in workspace.values("flights").items()}


@pytest.mark.spark
def test_history_and_live_input_count_once_over_kills_on_both_sides_of_the_hand_over(
    workspace, stream, add, count_history, fail_at, monkeypatch
):
    pipeline = flights(stream)
    workspace.land("1.json", {"origin": "JFK", "delay": 1}, {"origin": "LGA", "delay": 2})
    workspace.land("2.json", {"origin": "JFK", "delay": 4})
    add(8, 16)
    fail_at(2)
    with pytest.raises(InjectedFault):
        count_history(pipeline)
    with pytest.raises(BackfillError, match="its history is being counted from 'acme:files'; finish that first"):
        workspace.run(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr(backfill, "hand_over", lambda conn, name: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            count_history(pipeline)

    assert count_history(pipeline) == 2
    assert count_history(pipeline) == 2  # as after a kill behind the hand-over

    assert totals(workspace) == {"JFK": (2, 5), "LGA": (1, 2)}
    fail_at(3)
    with pytest.raises(InjectedFault):
        workspace.run(pipeline)
    assert workspace.run(pipeline) == [(3, 2)]
    add(32)
    assert workspace.run(pipeline) == [(4, 1)]
    assert totals(workspace) == {"JFK": (5, 61), "LGA": (1, 2)}
    assert {n: value["reached"] for n, value in workspace.values("peaks").items()} == {1: 2, 2: 1, 4: 1, 5: 1}
    boundary = workspace.rows("SELECT input -> 0 ->> 'unit' FROM tidegauge.batch ORDER BY txid")
    assert [unit for (unit,) in boundary][:2] == ["files", "files"]
    assert boundary[2] != ("files",)
    with pytest.raises(BackfillError, match="up to batch 2 was backfilled from 'acme:files'"):
        resume_point(workspace.conn, "flights", 2)
    assert resume_point(workspace.conn, "flights", 3).txid == 3
    with pytest.raises(ShorterInputError, match="its history was backfilled from 'acme:files'"):
        Reprocess(pipeline, workspace.spark, workspace.dsn, workspace.checkpoint).run()
    with pytest.raises(BackfillError, match="was counted from 'acme:files' up to batch 2, and its own"):
        count_history(pipeline, named="acme:others")


@pytest.mark.spark
def test_history_does_not_come_before_batches_of_the_pipelines_own(workspace, stream, add, count_history):
    add(1)
    workspace.run(flights(stream))

    with pytest.raises(BackfillError, match="has counted 1 batches of its own source, so history cannot be counted"):
        count_history(flights(stream))

    workspace.run(flights(stream))


def test_history_has_the_columns_of_the_source_that_it_stands_in_for(spark, tmp_path):
    with pytest.raises(PipelineError, match="the history has no column 'delay', which its source has; it has origin"):
        with_source(flights("s"), JsonFiles(tmp_path, schema="origin string"))


def test_a_pipeline_of_files_has_its_history_in_its_folder(tmp_path):
    files = JsonFiles(tmp_path, schema=SCHEMA)
    pipeline = Pipeline("flights", [Stream.read(files).group_by("origin").persistent_aggregate(FLIGHTS)])

    with pytest.raises(PipelineError, match="put the history into its folder to have it counted"):
        with_source(pipeline, JsonFiles(tmp_path / "old", schema=SCHEMA))


def test_a_pipeline_of_several_sources_merges_its_history(tmp_path):
    both = Stream.read(RedisStreams(["a"], schema=SCHEMA)).merge(Stream.read(RedisStreams(["b"], schema=SCHEMA)))
    pipeline = Pipeline("flights", [both.group_by("origin").persistent_aggregate(FLIGHTS)])

    with pytest.raises(PipelineError, match="has 2 sources, but a backfill can replace only one"):
        with_source(pipeline, JsonFiles(tmp_path, schema=SCHEMA))


def test_a_history_is_named_by_module_and_attribute(tmp_path, monkeypatch):
    (tmp_path / "acme_history.py").write_text(
        "from tidegauge import JsonFiles\n"
        f"exported = JsonFiles({str(tmp_path)!r}, schema='n int')\n"
        "def landed(folder):\n    return JsonFiles(folder, schema='n int')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    assert isinstance(history_source("acme_history:exported"), JsonFiles)
    assert isinstance(history_source("acme_history:landed", tmp_path), JsonFiles)
    with pytest.raises(PipelineError, match="'acme_history:nothing' does not name a source"):
        history_source("acme_history:nothing")
