"""The reader of Redis streams, driven as Spark drives it, without Spark."""

import os
import time

import pytest

from tidegauge.pipelines.errors import InputLostError, PipelineError
from tidegauge.pipelines.sources.redis.reader import ID, EntryRange, RedisStreamReader, StreamSettings


def reader_of(stream, **settings):
    return RedisStreamReader(
        StreamSettings((stream,), **({"max_entries": 3, "on_loss": "error", "url": os.environ["REDIS_URL"]} | settings))
    )


def planned(reader, start=None):
    start = start or reader.initialOffset()
    return start, reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader, start, end):
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def place(offset, stream):
    return offset[stream]["id"], offset[stream]["read"]


def test_a_batch_ends_at_the_limit_and_reads_the_same_twice(stream, add):
    ids = add(1, 2, 3, 4)
    reader = reader_of(stream)

    start, end = planned(reader)
    once, again = read(reader, start, end), read(reader_of(stream), start, end)

    assert place(end, stream) == (ids[2], 3)
    assert [row[ID] for row in once] == ids[:3]
    assert once == again


def test_without_new_entries_the_offset_stays(stream, add):
    add(1)
    reader = reader_of(stream)
    _, end = planned(reader)

    assert planned(reader, end) == (end, end)
    assert reader.partitions(end, end) == []


def test_a_stream_that_does_not_exist_yet_is_empty(stream):
    start, end = planned(reader_of(stream))

    assert start == end == {stream: {"id": "0-0", "read": 0}}


def test_a_run_with_available_now_leaves_later_entries(stream, add):
    ids = add(1, 2)
    reader = reader_of(stream)
    reader.prepareForTriggerAvailableNow()
    add(3)

    _, end = planned(reader)

    assert end[stream]["id"] == ids[1]
    assert planned(reader, end) == (end, end)


def test_streams_share_a_batch_and_what_one_leaves_another_takes(client, stream, add):
    other = f"{stream}:other"
    add(1)
    add(*range(9), to=other)
    reader = RedisStreamReader(StreamSettings((stream, other), 6, "error", os.environ["REDIS_URL"]))

    _, end = planned(reader)
    client.delete(other)

    assert [position["read"] for position in end.values()] == [1, 5]


def test_a_million_entries_are_not_held_at_once(stream, client):
    with client.pipeline(transaction=False) as pipe:
        for number in range(2_500):
            pipe.xadd(stream, {"n": number})
        pipe.execute()
    reader = reader_of(stream, max_entries=2_500)

    start, end = planned(reader)
    [part] = reader.partitions(start, end)

    assert [batch.num_rows for batch in reader.read(part)] == [1_000, 1_000, 500]


def test_entries_trimmed_after_a_batch_was_planned_are_detected(client, stream, add):
    ids = add(1, 2, 3)
    reader = reader_of(stream)
    start, end = planned(reader)
    client.xdel(stream, ids[1])

    with pytest.raises(InputLostError) as missed:
        read(reader, start, end)

    assert str(missed.value) == (
        f"stream {stream!r}: only 2 of the 3 entries after 0-0 and up to {ids[2]}, which a batch was planned to "
        "read, are left; the others were trimmed or deleted since; keep more of the stream (a larger MAXLEN); to "
        "continue with what is left, set on_loss='continue'"
    )
    assert len(read(reader_of(stream, on_loss="continue"), start, end)) == 2


def test_trimming_what_was_read_is_no_loss(client, stream, add):
    ids = add(1, 2, 3)
    reader = reader_of(stream)
    _, end = planned(reader)

    client.xtrim(stream, minid=ids[2], approximate=False)
    new = add(4)
    after_minid = planned(reader, end)[1]
    client.xtrim(stream, maxlen=0, approximate=False)

    assert place(after_minid, stream) == (new[0], 4)
    assert planned(reader, after_minid)[1] == after_minid


def test_a_stream_emptied_unread_is_detected(client, stream, add):
    add(1)
    reader = reader_of(stream)
    _, end = planned(reader)
    add(2)
    client.xtrim(stream, maxlen=0, approximate=False)

    with pytest.raises(InputLostError, match="no entry is left"):
        planned(reader, end)


def test_a_deleted_stream_is_detected(client, stream, add):
    add(1)
    reader = reader_of(stream)
    _, end = planned(reader)
    client.delete(stream)

    with pytest.raises(InputLostError, match=r"was deleted after it had been read up to \d+-\d+; to continue with"):
        planned(reader, end)


def test_a_stream_that_was_created_again_is_detected_by_lower_ids_and_by_newer_ones(client, stream, add):
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


def test_a_stream_that_was_created_again_with_ids_around_the_last_one_is_detected_by_another_entry(client, stream):
    for number in (1, 2):
        client.xadd(stream, {"origin": "JFK"}, id=f"{number}-0")
    reader = reader_of(stream)
    _, end = planned(reader)

    client.delete(stream)
    for number in (1, 2, 3):
        client.xadd(stream, {"origin": "LGA"}, id=f"{number}-0")
    with pytest.raises(InputLostError, match="entry 2-0 is not the one that was read; the stream was created again"):
        planned(reader, end)
    _, further = planned(reader_of(stream, on_loss="continue"), end)

    assert place(further, stream) == ("3-0", 3)


def test_the_last_entry_read_may_be_deleted(client, stream, add):
    ids = add(1, 2)
    reader = reader_of(stream)
    _, end = planned(reader)
    client.xdel(stream, ids[1])
    add(3)

    assert place(planned(reader, end)[1], stream)[1] == 3


def test_a_key_that_does_not_hold_a_stream_is_named(client, stream):
    client.set(stream, "text")

    with pytest.raises(PipelineError, match=f"stream {stream!r}: the key of that name does not hold a stream"):
        planned(reader_of(stream))


def test_settings_do_not_show_the_password(stream):
    assert "secret" not in repr(StreamSettings((stream,), 1, "error", "redis://:secret@localhost/0"))
    assert EntryRange("s", "0-0", "1-1", 1).stream == "s"
