"""A pinned batch: parts that are read at different times, over several connections, are of one batch or refused."""

import math
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import Catalog, Count, Max, Mean, StateSpec, TopK, state_reader
from tidegauge.state_backends.errors import (
    FindingError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    ValueShapeError,
)
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.reader.pinned import export_pinned, pin, ranges, record_batches

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
TTL = timedelta(hours=1)
SCHEMA = pa.schema([("page", pa.string()), ("n", pa.int64())])
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])
ALL, FIRST_HALF, SECOND_HALF = KeyRange(), KeyRange(stop=("m",)), KeyRange(start=("m",))


@pytest.fixture
def reading(twins, connect):
    """Opens a feed, and gives what pins a batch of one of its twins and what reads a part of it."""

    def reading(place, spec=VIEWS, **declared):
        feed = twins(spec, **declared)
        spec = feed.specs[place]

        def read(batch, part=ALL, schema=SCHEMA, measures=tuple(spec.measures) or ("value",)):
            conn = connect()
            export = export_pinned(state_reader(conn, spec), conn, batch, part, measures)
            return [row for rows in record_batches(export, conn, batch, schema) for row in rows.to_pylist()]

        return feed, lambda **at: pin(feed.conn, spec.name, **at), read

    return reading


@BOTH
def test_parts_with_a_changelog_are_of_the_pinned_batch_however_many_are_committed_since(reading, place):
    feed, pinned, read = reading(place, changelog=True)
    feed.commit(*views(("a", 1), ("z", 1)))
    batch = pinned()

    first = read(batch, FIRST_HALF)
    for _ in range(4):
        feed.commit(*views(("a", 1), ("z", 1), ("new", 1)))
    list(compact(feed.conn, feed.specs[place], keep=timedelta(days=1)))

    assert first + read(batch, SECOND_HALF) == [{"page": "a", "n": 1}, {"page": "z", "n": 1}]


def test_parts_without_a_changelog_are_read_from_the_rows_as_far_as_these_reach(reading):
    feed, pinned, read = reading(0)
    feed.commit(*views(("a", 1), ("z", 1)))
    batch = pinned()

    feed.commit(*views(("a", 1), ("z", 1), ("new", 1)))
    assert read(batch) == [{"page": "a", "n": 1}, {"page": "z", "n": 1}]

    feed.commit(*views(("a", 1)))
    with pytest.raises(OutOfReachError, match="batch 1 is out of reach, this query can be answered from batch 2 on"):
        read(batch, FIRST_HALF)
    assert read(batch, SECOND_HALF) == [{"page": "z", "n": 1}]


def test_a_state_in_redis_without_a_changelog_is_refused_once_another_batch_is_published(reading):
    feed, pinned, read = reading(1)
    feed.commit(*views(("a", 1)))
    batch = pinned()
    assert read(batch) == [{"page": "a", "n": 1}]

    feed.commit(*views(("a", 1)))

    with pytest.raises(OutOfReachError, match="batch 1 is out of reach"):
        read(batch)


def test_an_open_batch_is_not_seen(reading):
    feed, pinned, read = reading(0)
    feed.commit(*views(("a", 1)))
    batch = pinned()

    feed.write(feed.begin(1), views(("a", 5), ("new", 5)))

    assert read(batch) == [{"page": "a", "n": 1}]


@pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
def test_kinds_with_one_version_are_refused_while_another_batch_is_written(reading, kind):
    feed, pinned, read = reading(0, kind=kind)
    feed.commit(*views(("a", 1)))
    batch = pinned()
    assert read(batch) == [{"page": "a", "n": 1}]

    feed.write(feed.begin(1), views(("a", 5)))

    with pytest.raises(OutOfReachError):
        read(batch)


def test_a_batch_that_was_replayed_is_refused(new_feed, fresh, connect):
    spec = fresh(replace(VIEWS, changelog=True))
    feed, conn = new_feed(spec), connect()
    feed.run(views(("a", 1)))
    batch = pin(conn, spec.name)

    feed.run(views(("a", 2)), batch_id=0)

    with pytest.raises(MovedOnError, match="batch 1 has changed since this read began"):
        export_pinned(state_reader(conn, spec), conn, batch, ALL, ["n"])
    assert not conn.info.transaction_status


def test_a_state_that_was_declared_anew_or_is_not_served_is_refused(reading, conn):
    feed, pinned, read = reading(0)
    feed.commit(*views(("a", 1)))
    batch = pinned()

    Catalog(conn).register_states(
        feed.pipeline,
        [replace(spec, measures={**spec.measures, "top": Max("x")}) for spec in feed.specs],
        {spec.name: "" for spec in feed.specs},
    )

    with pytest.raises(MovedOnError, match="redeclared"):
        read(batch)
    conn.execute("UPDATE tidegauge.state SET finding = 'lost' WHERE name = %s", [feed.specs[0].name])
    with pytest.raises(FindingError, match="lost"):
        pinned()


def test_ttl_counts_at_the_time_of_pinning_and_rows_freed_before_do_not_matter(reading):
    feed, pinned, read = reading(0, ttl=TTL)
    feed.commit(*views(("old", 1)))
    feed.wait(timedelta(minutes=50))
    feed.commit(*views(("young", 1)))
    feed.wait(timedelta(minutes=20))
    list(expire(feed.conn, feed.specs[0]))
    batch = pinned()

    assert read(batch) == [{"page": "young", "n": 1}]
    feed.conn.execute(f"UPDATE tidegauge_state.{feed.specs[0].name} SET updated_at = %s", [batch.live_at - TTL / 2])
    assert read(batch) == [{"page": "young", "n": 1}]
    assert read(replace(batch, live_at=batch.live_at + TTL)) == []


def test_a_batch_is_pinned_by_its_number_or_by_a_time(reading, conn):
    feed, pinned, read = reading(0, changelog=True)
    for _ in range(3):
        feed.commit(*views(("a", 1)))
    times = [
        at
        for (at,) in conn.execute(
            "SELECT batch_time FROM tidegauge.batch WHERE pipeline = %s ORDER BY txid", [feed.pipeline]
        )
    ]

    assert pinned(at_txid=2).txid == pinned(at_time=times[1]).txid == 2
    assert pinned(at_time=times[2] + timedelta(days=1)).txid == 3
    assert read(pinned(at_txid=2)) == [{"page": "a", "n": 2}]
    with pytest.raises(NotCommittedError, match="batch 4 is not committed, the newest one is 3"):
        pinned(at_txid=4)
    with pytest.raises(OutOfReachError, match="no batch is on record up to 2001-01-01"):
        pinned(at_time=datetime(2001, 1, 1, tzinfo=UTC))


@BOTH
def test_ranges_divide_the_keys_without_a_gap_or_an_overlap(reading, place):
    feed, pinned, read = reading(place)
    spec = feed.specs[place]
    feed.commit(*views(*((f"{number:05}", number) for number in range(3_000))))
    keys = BACKENDS[spec.backend].split_keys(feed.conn, spec, 4)

    parts = ranges(spec, keys, KeyRange())
    counts = [len(read(pinned(), part)) for part in parts]

    assert len(parts) == 4
    assert sum(counts) == 3_000
    assert min(counts) > 100
    narrow = ranges(spec, keys, KeyRange(prefix=("00001",)))
    assert [row["page"] for part in narrow for row in read(pinned(), part)] == ["00001"]
    bounded = ranges(spec, keys, KeyRange(start=("00010",), stop=("02990",)))
    assert len([row for part in bounded for row in read(pinned(), part)]) == 2_980


@BOTH
def test_arrow_batches_have_the_exact_values(reading, place):
    spec = StateSpec(
        "typed",
        key={"day": "date", "x": "double precision", "id": "uuid"},
        measures={
            "n": Count(),
            "mean": Mean("ms"),
            "cost": Max("cost", type="numeric"),
            "at": Max("at", type="timestamptz"),
            "ok": Max("ok", type="boolean"),
            "label": Max("label", type="text"),
            "top": TopK("id", 2),
        },
    )
    feed, pinned, read = reading(place, spec)
    at, one = datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC), uuid.UUID(int=1)
    some = {"n": 1 << 60, "mean_sum": 0.3, "mean_count": 3, "cost": Decimal("0.1"), "at": at, "ok": True}
    some |= {"label": 'é\n"x",\\.', "top": None, "top_sketch": None, "top_type": None}
    none = dict.fromkeys(some) | {"n": 1, "label": ""}
    keys = [{"day": date(2024, 2, 29), "x": x, "id": one} for x in (0.5, math.inf)]
    feed.commit(keys[0] | some, keys[1] | none)
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("x", pa.float64()),
            ("id", pa.string()),
            ("n", pa.int64()),
            ("mean", pa.float64()),
            ("cost", pa.decimal128(38, 9)),
            ("at", pa.timestamp("us", "UTC")),
            ("ok", pa.bool_()),
            ("label", pa.string()),
            ("top", pa.string()),
        ]
    )

    rows = read(pinned(), schema=schema)

    assert [list(row.values()) for row in rows] == [
        [date(2024, 2, 29), 0.5, str(one), 1 << 60, 0.3 / 3, Decimal("0.1"), at, True, some["label"], None],
        [date(2024, 2, 29), math.inf, str(one), 1, None, None, None, None, "", None],
    ]
    with pytest.raises(ValueShapeError, match="does not fit its type in Arrow"):
        read(pinned(), schema=schema.set(3, pa.field("n", pa.int32())))


@BOTH
def test_json_values_are_text(reading, place):
    feed, pinned, read = reading(place, StateSpec("texts", key={"k": "text"}, value="jsonb"))
    batch = feed.begin(0)
    for spec in feed.specs:
        values = MAPS[spec.kind](feed.logged(spec))
        values.begin_commit(batch.txid, at=batch.batch_time)
        values.multi_put([("a",), ("b",)], [{"x": [1, None]}, "text"])
    feed.ledger.commit(batch)
    feed.rows_in_redis.publish(1)

    rows = read(pinned(), schema=pa.schema([("k", pa.string()), ("value", pa.string())]))

    assert rows == [{"k": "a", "value": '{"x": [1, null]}'}, {"k": "b", "value": '"text"'}]


@BOTH
def test_a_global_state_is_one_row_even_where_it_is_null(reading, place):
    feed, pinned, read = reading(place, StateSpec("total", measures={"top": Max("x")}))
    schema = pa.schema([("top", pa.float64())])
    assert read(pinned(), schema=schema) == []

    feed.commit({"top": None})

    assert read(pinned(), schema=schema) == [{"top": None}]
    assert BACKENDS[feed.specs[place].backend].split_keys(feed.conn, feed.specs[place], 4) == []
