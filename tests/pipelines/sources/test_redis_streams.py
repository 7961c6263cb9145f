"""Redis streams through Spark: every entry counts once, and none goes missing in silence."""

import json
import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis
from pyspark.sql.types import ArrayType, StringType, StructType

from pipelines.errors import InputLostError, PipelineError, SourceSetupError
from pipelines.pipeline import Pipeline
from pipelines.sources.redis_reader import ID, Range, RedisStreamReader, StreamSettings
from pipelines.sources.redis_streams import RedisStreams
from pipelines.stream import Stream
from state_backends import Count, StateSpec, Sum

FLIGHTS = StateSpec("flights", key={"origin": "text"}, measures={"flights": Count(), "delay": Sum("delay")})
SCHEMA = "origin string NOT NULL, delay int"

spark_test = pytest.mark.spark


@pytest.fixture
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def stream(client):
    name = f"test:{uuid4().hex[:12]}"
    yield name
    client.delete(name)


@pytest.fixture
def add(client, stream):
    """Put entries into the stream, one for each delay, and return their ids."""

    def add(*delays, origin="JFK", to=stream):
        return [client.xadd(to, {"origin": origin, "delay": delay}).decode() for delay in delays]

    return add


def flights(source, step=lambda events: events):
    return Pipeline("flights", [Stream.read(source).transform(step).group_by("origin").persistent_aggregate(FLIGHTS)])


def source_of(*streams, **options):
    return RedisStreams(streams, **({"schema": SCHEMA} | options))


def total(workspace):
    return {origin: (value["flights"], value["delay"]) for origin, value in workspace.values("flights").items()}


def reader_of(stream, **settings):
    return RedisStreamReader(
        StreamSettings((stream,), **({"max_entries": 3, "on_loss": "error", "url": os.environ["REDIS_URL"]} | settings))
    )


def planned(reader, start=None):
    start = start or reader.initialOffset()
    return start, reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader, start, end):
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


@spark_test
def test_entries_count_once_over_batches_and_runs(workspace, stream, add):
    add(*range(5))
    first = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))

    add(10, origin="LGA")
    second = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))
    third = workspace.run(flights(source_of(stream, max_entries_per_batch=2)))

    assert (first, second, third) == ([(1, 1), (2, 1), (3, 1)], [(4, 1)], [])
    assert total(workspace) == {"JFK": (5, 10), "LGA": (1, 10)}
    assert workspace.rows("SELECT rows_in FROM tidemark.batch ORDER BY txid") == [(2,), (2,), (1,), (1,)]


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

    letters = workspace.rows("SELECT source, line, reason, line_number FROM tidemark.dead_letter ORDER BY source")
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
            "holds bytes that are no UTF-8 text, shown as \\xNN",
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

    reasons = [reason for (reason,) in workspace.rows("SELECT reason FROM tidemark.dead_letter ORDER BY source")]
    assert reasons == [
        "field 'event': not JSON: Extra data at column 18",
        "field 'event': origin: required, and absent or null",
        "field 'event': delay: expected int, got \"x\"",
        "field 'event': absent",
    ]
    assert total(workspace) == {"JFK": (1, 3)}


@spark_test
def test_entries_trimmed_unread_stop_the_pipeline_until_told_to_go_on(workspace, client, stream, add):
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
    told = "".join([plan, str(refused.value), repr(source), *capfd.readouterr()])
    assert password
    assert len(files) > 4
    assert not any(password.encode() in held or b"made-up-secret" in held for held in files)
    assert password not in told
    assert "made-up-secret" not in told


@pytest.fixture
def unused_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # bound, and nobody listens


class TestReader:
    """What Spark's reader promises, without Spark."""

    def test_a_batch_ends_at_the_limit_and_reads_the_same_twice(self, stream, add):
        ids = add(1, 2, 3, 4)
        reader = reader_of(stream)

        start, end = planned(reader)
        once, again = read(reader, start, end), read(reader_of(stream), start, end)

        assert end == {stream: {"id": ids[2], "read": 3}}
        assert [row[ID] for row in once] == ids[:3]
        assert once == again

    def test_without_new_entries_the_position_stays(self, stream, add):
        add(1)
        reader = reader_of(stream)
        _, end = planned(reader)

        assert planned(reader, end) == (end, end)
        assert reader.partitions(end, end) == []

    def test_a_stream_that_is_not_there_yet_is_empty(self, stream):
        start, end = planned(reader_of(stream))

        assert start == end == {stream: {"id": "0-0", "read": 0}}

    def test_a_run_through_what_there_is_leaves_what_comes_later(self, stream, add):
        ids = add(1, 2)
        reader = reader_of(stream)
        reader.prepareForTriggerAvailableNow()
        add(3)

        _, end = planned(reader)

        assert end[stream]["id"] == ids[1]
        assert planned(reader, end) == (end, end)

    def test_streams_share_a_batch_and_what_one_leaves_another_takes(self, client, stream, add):
        other = f"{stream}:other"
        add(1)
        add(*range(9), to=other)
        reader = RedisStreamReader(StreamSettings((stream, other), 6, "error", os.environ["REDIS_URL"]))

        _, end = planned(reader)
        client.delete(other)

        assert [position["read"] for position in end.values()] == [1, 5]

    def test_a_million_entries_are_not_held_at_once(self, stream, client):
        with client.pipeline(transaction=False) as pipe:
            for number in range(2_500):
                pipe.xadd(stream, {"n": number})
            pipe.execute()
        reader = reader_of(stream, max_entries=2_500)

        start, end = planned(reader)
        [part] = reader.partitions(start, end)

        assert [batch.num_rows for batch in reader.read(part)] == [1_000, 1_000, 500]

    def test_entries_trimmed_after_a_batch_was_planned_are_missed(self, client, stream, add):
        ids = add(1, 2, 3)
        reader = reader_of(stream)
        start, end = planned(reader)
        client.xdel(stream, ids[1])

        with pytest.raises(InputLostError) as missed:
            read(reader, start, end)

        assert str(missed.value) == (
            f"stream {stream!r}: 2 of the 3 entries after 0-0 and up to {ids[2]} are left of a batch that was planned "
            "with all of them; they were trimmed or deleted meanwhile. Keep more of the stream (a larger MAXLEN), and "
            "go on without the lost ones by on_loss='continue'"
        )
        assert len(read(reader_of(stream, on_loss="continue"), start, end)) == 2

    def test_trimming_what_was_read_is_no_loss(self, client, stream, add):
        ids = add(1, 2, 3)
        reader = reader_of(stream)
        _, end = planned(reader)

        client.xtrim(stream, minid=ids[2], approximate=False)
        new = add(4)
        after_minid = planned(reader, end)[1]
        client.xtrim(stream, maxlen=0, approximate=False)

        assert after_minid == {stream: {"id": new[0], "read": 4}}
        assert planned(reader, after_minid)[1] == after_minid

    def test_a_stream_emptied_unread_is_missed(self, client, stream, add):
        add(1)
        reader = reader_of(stream)
        _, end = planned(reader)
        add(2)
        client.xtrim(stream, maxlen=0, approximate=False)

        with pytest.raises(InputLostError, match="no entry is left"):
            planned(reader, end)

    def test_a_stream_that_is_gone_is_missed(self, client, stream, add):
        add(1)
        reader = reader_of(stream)
        _, end = planned(reader)
        client.delete(stream)

        with pytest.raises(InputLostError, match=r"is gone, and had been read up to \d+-\d+; go on with what there is"):
            planned(reader, end)

    def test_a_stream_made_anew_is_noticed_by_lower_ids_and_by_newer_ones(self, client, stream, add):
        add(1)
        reader = reader_of(stream)
        _, end = planned(reader)
        client.delete(stream)

        client.xadd(stream, {"origin": "JFK"}, id="1-1")
        with pytest.raises(InputLostError, match="its last id is 1-1"):
            planned(reader, end)
        client.delete(stream)
        time.sleep(0.002)  # an id of a later millisecond than the last one
        add(1)
        with pytest.raises(InputLostError, match="the oldest entry left is"):
            planned(reader, end)

    def test_a_key_that_holds_no_stream_is_named(self, client, stream):
        client.set(stream, "text")

        with pytest.raises(PipelineError, match=f"stream {stream!r}: the key of that name holds no stream"):
            planned(reader_of(stream))

    def test_settings_do_not_show_the_password(self, stream):
        assert "secret" not in repr(StreamSettings((stream,), 1, "error", "redis://:secret@localhost/0"))
        assert Range("s", "0-0", "1-1", 1).stream == "s"


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

    def test_a_server_that_is_away_leaves_it_unknown(self, stream, tmp_path, unused_port):
        assert source_of(stream, url=f"redis://127.0.0.1:{unused_port}/0").pending(tmp_path) is None


class TestDeclaration:
    @pytest.mark.parametrize("streams", [[], ["a", "a"]])
    def test_streams_are_named_once_each(self, streams):
        with pytest.raises(PipelineError, match="name one at least, and none twice"):
            RedisStreams(streams, schema=SCHEMA)

    def test_a_column_that_text_cannot_fill_is_refused(self):
        with pytest.raises(PipelineError, match=r"column 'tags' cannot be array<string>; declare it as string"):
            _ = RedisStreams("s", schema=StructType().add("tags", ArrayType(StringType()))).schema

    def test_the_sources_own_names_are_refused(self):
        with pytest.raises(PipelineError, match="column '_id' is the source's own"):
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
