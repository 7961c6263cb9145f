"""Redis streams through Spark: every entry counts once, and lost entries are reported."""

import json
import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql.types import ArrayType, StringType, StructType

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError, SourceSetupError
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.state_backends import Count, StateSpec, Sum
from tidegauge.state_backends.errors import ShorterInputError

FLIGHTS = StateSpec(
    "flights", key={"origin": "text"}, measures={"flights": Count(), "delay": Sum("delay", "double precision")}
)
SCHEMA = "origin string NOT NULL, delay int"

spark_test = pytest.mark.spark


def flights(source, step=lambda events: events):
    return Pipeline("flights", [Stream.read(source).transform(step).group_by("origin").persistent_aggregate(FLIGHTS)])


def source_of(*streams, **options):
    return RedisStreams(streams, **({"schema": SCHEMA} | options))


def total(workspace):
    return {origin: (value["flights"], value["delay"]) for origin, value in workspace.values("flights").items()}


@pytest.mark.core
@spark_test
def test_entries_count_once_over_batches_and_runs(workspace, stream, add):
    add(*range(5))
    first = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))

    add(10, origin="LGA")
    second = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))
    third = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))

    assert (first, second, third) == ([(1, 1), (2, 1), (3, 1)], [(4, 1)], [])
    assert total(workspace) == {"JFK": (5, 10), "LGA": (1, 10)}
    assert workspace.rows("SELECT rows_in FROM tidegauge.batch ORDER BY txid") == [(2,), (2,), (1,), (1,)]


@spark_test
def test_a_reprocess_of_a_stream_that_was_trimmed_is_refused(workspace, stream, add, client):
    add(*range(5))
    workspace.run(flights(source_of(stream, max_entries_per_batch=2)))
    client.xtrim(stream, maxlen=4, approximate=False)

    with pytest.raises(ShorterInputError, match=f"stream '{stream}' has 1 of the 2 entries of the first batch"):
        Reprocess(flights(source_of(stream)), workspace.spark, workspace.dsn, workspace.checkpoint).run()

    assert total(workspace) == {"JFK": (5, 10)}


@spark_test
def test_a_batch_that_was_committed_and_comes_again_counts_once(workspace, stream, add):
    add(1, 2)
    workspace.run(flights(source_of(stream)))
    workspace.forget_last_commit()
    add(3)

    batches = workspace.run(flights(source_of(stream)))

    assert batches == [(1, 2), (2, 1)]
    assert total(workspace) == {"JFK": (3, 6)}


@spark_test
def test_several_streams_are_read_as_one_with_id_and_time_of_each_entry(workspace, client, stream, add):
    before = time.time()
    other = f"{stream}:other"
    ids = add(1, 2) + add(5, origin="LGA", to=other)
    seen = []

    def note(events):
        seen.extend(events.select("_stream", "_id", "_at").collect())
        return events

    workspace.run(flights(source_of(stream, other), note))
    client.delete(other)

    assert sorted((row[0], row[1]) for row in seen) == sorted(zip([stream, stream, other], ids, strict=True))
    assert all(before - 1 <= row[2].timestamp() <= time.time() + 1 for row in seen)
    assert total(workspace) == {"JFK": (2, 3), "LGA": (1, 5)}


@spark_test
def test_bad_entries_are_dead_letters_with_stream_id_and_reason(workspace, client, stream, add):
    add(7)
    bad = [
        client.xadd(stream, {"origin": "JFK", "delay": "late"}).decode(),
        client.xadd(stream, {"delay": 1, "tail": "N1"}).decode(),
        client.xadd(stream, {"origin": b"\xff", "delay": 1}).decode(),
    ]

    workspace.run(flights(source_of(stream)))

    letters = workspace.rows("SELECT source, line, reason, line_number FROM tidegauge.dead_letter ORDER BY source")
    assert letters == [
        (
            f"stream {stream}, entry {bad[0]}",
            '{"origin": "JFK", "delay": "late"}',
            "delay: expected int, got late",
            None,
        ),
        (
            f"stream {stream}, entry {bad[1]}",
            '{"delay": "1", "tail": "N1"}',
            "origin: required, and absent or null",
            None,
        ),
        (
            f"stream {stream}, entry {bad[2]}",
            '{"origin": "\\\\xff", "delay": "1"}',
            "holds bytes that are not UTF-8 text, shown as \\xNN",
            None,
        ),
    ]
    assert total(workspace) == {"JFK": (1, 7)}


@spark_test
def test_one_field_can_hold_the_event_as_json(workspace, client, stream):
    for line in (
        '{"origin": "JFK", "delay": 3}',
        '{"origin": "JFK"}{}',
        '{"delay": 3}',
        '{"origin": "JFK", "delay": "x"}',
    ):
        client.xadd(stream, {"event": line, "other": "1"})
    client.xadd(stream, {"other": "1"})

    workspace.run(flights(source_of(stream, json_field="event")))

    reasons = [reason for (reason,) in workspace.rows("SELECT reason FROM tidegauge.dead_letter ORDER BY source")]
    assert reasons == [
        "field 'event': not JSON: Extra data at column 18",
        "field 'event': origin: required, and absent or null",
        "field 'event': delay: expected int, got \"x\"",
        "field 'event': absent",
    ]
    assert total(workspace) == {"JFK": (1, 3)}


@spark_test
def test_entries_trimmed_unread_stop_the_pipeline_unless_loss_is_accepted(workspace, client, stream, add):
    add(1, 2)
    workspace.run(flights(source_of(stream)))
    add(3, 4, 5)
    client.xtrim(stream, maxlen=1, approximate=False)

    with pytest.raises(
        Exception, match=f"InputLostError: stream '{stream}': the oldest entry left is .* trimmed unread"
    ):
        workspace.run(flights(source_of(stream)))
    stopped = total(workspace)
    workspace.run(flights(source_of(stream, on_loss="continue")))

    assert stopped == {"JFK": (2, 3)}
    assert total(workspace) == {"JFK": (3, 8)}


@spark_test
def test_the_password_is_in_no_file_of_the_checkpoint_no_plan_and_no_error(workspace, client, stream, add, capfd):
    password = urlsplit(os.environ["REDIS_URL"]).password
    add(1)
    source = source_of(stream)
    server = urlsplit(os.environ["REDIS_URL"])
    wrong = server._replace(netloc=f":made-up-secret@{server.hostname}:{server.port}")

    workspace.run(flights(source))
    frame = source.load(workspace.spark)
    plan = frame._jdf.queryExecution().toString() + str(frame._jdf.queryExecution().analyzed().toJSON())
    workspace.checkpoint = workspace.checkpoint.with_name("another")
    with pytest.raises(Exception, match="AuthenticationError") as refused:
        workspace.run(flights(source_of(stream, url=wrong.geturl())), rebind=True)

    files = [path.read_bytes() for path in workspace.checkpoint.parent.rglob("*") if path.is_file()]
    texts = "".join([plan, str(refused.value), repr(source), *capfd.readouterr()])
    assert password
    assert len(files) > 4
    assert not any(password.encode() in held or b"made-up-secret" in held for held in files)
    assert password not in texts
    assert "made-up-secret" not in texts


@pytest.fixture
def unused_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # bound, but not listening


class TestPending:
    def test_it_counts_what_no_committed_batch_has_read_and_says_since_when(self, stream, add, tmp_path):
        ids = add(1, 2, 3)

        everything = source_of(stream).pending(tmp_path)
        leave_checkpoint(tmp_path, {stream: {"id": ids[1], "read": 2}})
        rest = source_of(stream).pending(tmp_path)

        assert (everything.count, rest.count, rest.unit) == (3, 1, "entries")
        assert rest.oldest.startswith("20")
        assert rest.alarm is None

    def test_nothing_waits_once_all_is_read(self, stream, add, tmp_path):
        [only] = add(1)
        leave_checkpoint(tmp_path, {stream: {"id": only, "read": 1}})

        pending = source_of(stream).pending(tmp_path)

        assert (pending.count, pending.oldest) == (0, None)

    def test_it_is_unknown_if_the_server_is_unavailable(self, stream, tmp_path, unused_port):
        assert source_of(stream, url=f"redis://127.0.0.1:{unused_port}/0").pending(tmp_path) is None


class TestDeclaration:
    @pytest.mark.parametrize("streams", [[], ["a", "a"]])
    def test_streams_are_named_once_each(self, streams):
        with pytest.raises(PipelineError, match="name at least one, and none twice"):
            RedisStreams(streams, schema=SCHEMA)

    def test_a_column_that_text_cannot_fill_is_refused(self):
        with pytest.raises(PipelineError, match=r"column 'tags' cannot be array<string>; declare it as string"):
            _ = RedisStreams("s", schema=StructType().add("tags", ArrayType(StringType()))).schema

    def test_the_sources_own_names_are_refused(self):
        with pytest.raises(PipelineError, match="column '_id' is added by the source"):
            _ = RedisStreams("s", schema=StructType().add("_id", "string")).schema

    def test_a_missing_and_a_malformed_url_are_named_without_being_shown(self, monkeypatch, tmp_path):
        monkeypatch.delenv("REDIS_URL")
        with pytest.raises(SourceSetupError, match="set REDIS_URL or give the source a url"):
            RedisStreams("s", schema=SCHEMA).pending(tmp_path)
        with pytest.raises(SourceSetupError) as malformed:
            RedisStreams("s", schema=SCHEMA, url="redis://:pass/word@host:1/0").pending(tmp_path)
        assert "word" not in str(malformed.value)


def leave_checkpoint(folder: Path, offset):
    """Leave a checkpoint as Spark does whose one batch ended at an offset."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    (folder / "commits" / "0").write_text("v1\n{}")
