import math
import os
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
import redis

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import (
    Changelog,
    Count,
    Max,
    MemoryBackingMap,
    OpaqueMap,
    StateReader,
    StateSpec,
    Versioned,
)
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.errors import NotCommittedError, OutOfReachError, UnknownStateError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.repair.rebuilding import Progress, rebuild

HOUR = timedelta(hours=1)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


def remove(feed, *pages):
    """Run a batch that removes keys."""
    spec = feed.specs[0]
    batch = feed.begin(feed.next_batch_id())
    with feed.conn.transaction():
        lock_fence(feed.conn, batch)
        counts = MAPS[spec.kind](LoggedMap(feed.backing(spec), Changelog(feed.conn, spec)))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_remove([(page,) for page in pages])
    feed.ledger.commit(batch)


def filled(feed):
    """Feed a state with rows of every form, and leave a batch open."""
    feed.run(views(("once", 1), ("often", 1), ("gone", 1), ("brief", 1)))
    feed.run(views(("often", 1), ("two", 1), ("brief", 1)))
    remove(feed, "gone")
    feed.run(views(("often", 1)))
    feed.run(views(("often", 1), ("late", 1)))
    remove(feed, "brief")
    feed.apply(feed.begin(feed.next_batch_id()), feed.specs[0], views(("often", 100), ("new", 100)))
    return feed


def lose(feed):
    feed.conn.execute(f"TRUNCATE tidegauge_state.{feed.specs[0].name}")


def rows_of(backing):
    return {key[0]: (row, row.at, row.prev_at) for key, row in backing.scan()}


# Expected from the newest two entries: the removal of `gone` is final, that of `brief` may still be reverted.
EXPECTED = {
    "brief": Versioned(None, 6, {"n": 2}, 2),
    "late": Versioned({"n": 1}, 5),
    "often": Versioned({"n": 4}, 5, {"n": 3}, 4),
    "once": Versioned({"n": 1}, 1),
    "two": Versioned({"n": 1}, 2),
}


@pytest.mark.parametrize(
    ("target", "partitions"),
    [("memory", 1), ("memory", 3), ("postgres", 1), ("postgres", 3), ("redis", 1), ("redis", 3)],
)
def test_the_rows_are_those_of_the_committed_batch(new_feed, fresh, conn, target, partitions):
    feed = filled(new_feed(spec := fresh(replace(VIEWS, partitions=partitions))))
    feed.begin(feed.next_batch_id())  # reverts the open batch, so that the rows show the expected result
    before = {page: part for page, part in rows_of(feed.backing(spec)).items() if page != "gone"}
    lose(feed)
    backing = {
        "memory": lambda: MemoryBackingMap(spec),
        "postgres": lambda: feed.backing(spec),
        "redis": lambda: RedisBackingMap(redis.Redis.from_url(os.environ["REDIS_URL"]), spec),
    }[target]()

    list(rebuild(Changelog(conn, spec), backing))

    after = rows_of(backing)
    assert {page: row for page, (row, *_) in after.items()} == EXPECTED
    assert {page: at for page, (_, at, _) in after.items()} == {page: at for page, (_, at, _) in before.items()}


def test_every_read_answers_the_same_before_and_after(feed, conn):
    filled(feed)
    keys = [(page,) for page in (*EXPECTED, "gone", "new", "nope")]
    reader = StateReader(conn, feed.specs[0])

    def seen():
        past = [reader.multi_get(keys, at_txid=txid) for txid in range(7)]
        return reader.multi_get(keys), reader.page(), past

    before = seen()
    lose(feed)
    assert reader.page().parsed() == []

    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0])))

    assert seen() == before


def test_the_pipeline_continues_from_the_rebuilt_rows(feed, conn):
    filled(feed)
    lose(feed)
    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0])))

    feed.run(views(("often", 1), ("once", 1)))
    assert feed.read(feed.specs[0], ("often",), ("once",), ("new",)) == [{"n": 5}, {"n": 2}, "missing"]


@pytest.mark.parametrize("chunk_keys", [1, 2])
def test_a_key_that_is_not_a_number_is_rebuilt_like_any_other(new_feed, fresh, conn, chunk_keys):
    feed = new_feed(spec := fresh(replace(VIEWS, key={"x": "double precision"})))
    for _ in range(2):
        feed.run([{"x": math.nan, "n": 1}, {"x": 1.0, "n": 1}])
    rows = list(feed.backing(spec).scan())
    assert rows == [((1.0,), Versioned({"n": 2}, 2, {"n": 1}, 1)), ((math.nan,), Versioned({"n": 2}, 2, {"n": 1}, 1))]

    list(rebuild(Changelog(conn, spec), feed.backing(spec), chunk_keys=chunk_keys))

    assert list(feed.backing(spec).scan()) == rows


@pytest.mark.parametrize("chunk_keys", [1, 2, 3, 100])
def test_rows_that_the_changelog_has_removed_or_never_had_are_gone_afterwards(feed, conn, chunk_keys):
    feed.run(views(*((page, 1) for page in "bcdefg")))
    older = list(feed.backing(feed.specs[0]).scan())
    remove(feed, "c", "e", "g")
    feed.run(views(("d", 1)))
    expected = rows_of(feed.backing(feed.specs[0]))
    lose(feed)
    for page in ("a", "cc", "z"):
        older.append(((page,), Versioned({"n": 50}, 9)))
    feed.backing(feed.specs[0]).multi_put(*zip(*older, strict=True))

    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0]), chunk_keys=chunk_keys))

    assert {page: row for page, (row, *_) in rows_of(feed.backing(feed.specs[0])).items()} == {
        page: row for page, (row, *_) in expected.items() if row.value is not None
    }


def test_an_empty_changelog_leaves_an_empty_target(feed, conn):
    target = MemoryBackingMap(feed.specs[0])
    target.multi_put([("a",)], [Versioned({"n": 9}, 9)])

    list(rebuild(Changelog(conn, feed.specs[0]), target))

    assert list(target.scan()) == []


def test_the_committed_batch_can_still_be_reverted(feed, conn):
    feed.run(views(("a", 1), ("b", 1)))
    feed.run(views(("a", 1), ("new", 1)))
    lose(feed)
    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0])))

    feed.run(views(("b", 5)), batch_id=1)

    assert feed.read(feed.specs[0], ("a",), ("b",), ("new",)) == [{"n": 1}, {"n": 6}, "missing"]


def test_a_removal_in_the_committed_batch_can_still_be_reverted(feed, conn):
    feed.run(views(("a", 1)))
    remove(feed, "a")
    lose(feed)
    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0])))

    feed.run([], batch_id=1)

    assert feed.read(feed.specs[0], ("a",)) == [{"n": 1}]


def test_a_transactional_state_keeps_one_version_and_its_txid(new_feed, fresh, conn):
    feed = filled(new_feed(spec := fresh(replace(VIEWS, kind="transactional"))))
    target = MemoryBackingMap(spec)

    list(rebuild(Changelog(conn, spec), target))

    assert {key[0]: row for key, row in target.scan()} == {
        page: Versioned(row.value, row.txid) for page, row in EXPECTED.items()
    }
    assert feed.specs == [spec]


def test_json_values_and_global_states_are_rebuilt_too(new_feed, fresh, conn):
    feed = new_feed(texts := fresh(StateSpec("texts", key={"page": "text"}, value="jsonb", changelog=True)))
    totals = new_feed(fresh(StateSpec("totals", measures={"n": Count(), "top": Max("x")}, changelog=True)))
    for number in (1, 2):
        counts = OpaqueMap(LoggedMap(MemoryBackingMap(texts), Changelog(conn, texts)))
        counts.begin_commit(number)
        counts.multi_put([("a",)], [{"x": [number, None]}])
        totals.run([{"n": number, "top": float("nan")}])
    conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 2 WHERE name = %s", [feed.pipeline])
    jsons, one = MemoryBackingMap(texts), MemoryBackingMap(totals.specs[0])

    for spec, target in ((texts, jsons), (totals.specs[0], one)):
        list(rebuild(Changelog(conn, spec), target, chunk_keys=1))

    assert list(jsons.scan()) == [(("a",), Versioned({"x": [2, None]}, 2, {"x": [1, None]}, 1))]
    ((key, row),) = one.scan()
    assert (key, row.value["n"], row.prev["n"], row.txid, row.prev_txid) == ((), 3, 1, 2, 1)


def test_rows_past_their_ttl_are_left_out_as_expiry_would_leave_them(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=HOUR)))
    feed.run(views(("old", 1), ("kept", 1)))
    let_time_pass(conn, feed.specs, feed.pipeline, 0.7 * HOUR)
    feed.run(views(("kept", 1)))
    let_time_pass(conn, feed.specs, feed.pipeline, 0.7 * HOUR)
    list(expire(conn, spec))
    before = rows_of(feed.backing(spec))
    lose(feed)

    list(rebuild(Changelog(conn, spec), feed.backing(spec)))

    assert rows_of(feed.backing(spec)) == before
    assert list(before) == ["kept"]


def test_a_batch_that_comes_again_is_no_earlier_than_what_was_left_out(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=HOUR)))
    batch = feed.run(views(("a", 1)))

    list(rebuild(Changelog(conn, spec), feed.backing(spec)))

    assert feed.begin(0).batch_time > batch.batch_time


def test_rows_that_an_open_batch_may_need_are_not_left_out(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=HOUR)))
    feed.run(views(("a", 1)))
    feed.begin(1)
    let_time_pass(conn, feed.specs, feed.pipeline, 2 * HOUR)
    lose(feed)
    list(rebuild(Changelog(conn, spec), feed.backing(spec)))

    feed.run(views(("a", 1)), batch_id=1)

    (row,) = feed.backing(spec).multi_get([("a",)])
    assert row.value == {"n": 2}


def test_after_compaction_the_newest_version_is_still_there(feed, conn):
    filled(feed)
    keys = [(page,) for page in EXPECTED]
    before = feed.read(feed.specs[0], *keys)
    list(compact(conn, feed.specs[0], keep=timedelta()))
    lose(feed)

    list(rebuild(Changelog(conn, feed.specs[0]), feed.backing(feed.specs[0])))

    assert feed.read(feed.specs[0], *keys) == before


class TestChunks:
    @pytest.fixture
    def many(self, feed):
        for _ in range(3):
            feed.run(views(*((f"{n}", n) for n in range(10))))
        return feed

    def test_each_step_reports_its_progress(self, many, conn):
        conn.execute(f"ANALYZE tidegauge_changelog.{many.specs[0].name}")

        steps = list(rebuild(Changelog(conn, many.specs[0]), MemoryBackingMap(many.specs[0]), chunk_keys=4))

        assert steps == [Progress(("3",), 4, 10, 3), Progress(("7",), 8, 10, 3), Progress(("9",), 10, 10, 3)]

    @pytest.mark.parametrize("resumed", [True, False])
    def test_a_killed_run_resumes_from_its_last_key_or_starts_over(self, many, conn, connect, resumed):
        spec = many.specs[0]
        before = list(many.backing(spec).scan())
        lose(many)
        victim = connect()
        run = rebuild(Changelog(victim, spec), many.backing(spec, victim), chunk_keys=3)
        next(run)
        last = next(run).last_key
        conn.execute("SELECT pg_terminate_backend(%s)", [victim.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            next(run)
        assert len(list(many.backing(spec).scan())) == 6

        start = last if resumed else None
        rest = list(rebuild(Changelog(conn, spec), many.backing(spec), chunk_keys=3, resume_from=start))

        assert list(many.backing(spec).scan()) == before
        assert rest[-1].keys == (4 if resumed else 10)

    def test_a_chunk_whose_put_fails_is_put_again(self, many, conn):
        """The step is yielded only once its rows are there."""
        spec, target = many.specs[0], MemoryBackingMap(many.specs[0])
        put, left = target.multi_put, [1]

        def dying(keys, rows):
            if not left:
                raise ConnectionError
            left.pop()
            put(keys, rows)

        target.multi_put = dying
        run = rebuild(Changelog(conn, spec), target, chunk_keys=6)
        last = next(run).last_key
        with pytest.raises(ConnectionError):
            next(run)
        target.multi_put = put
        list(rebuild(Changelog(conn, spec), target, resume_from=last))

        assert list(target.scan()) == list(many.backing(spec).scan())


class TestUpTo:
    def test_an_earlier_batch_can_be_rebuilt(self, feed, conn):
        for _ in range(3):
            feed.run(views(("a", 1)))
        target = MemoryBackingMap(feed.specs[0])

        list(rebuild(Changelog(conn, feed.specs[0]), target, upto=2))

        assert list(target.scan()) == [(("a",), Versioned({"n": 2}, 2, {"n": 1}, 1))]

    def test_one_out_of_reach_or_not_committed_cannot(self, feed, conn):
        for _ in range(3):
            feed.run(views(("a", 1)))
        feed.apply(feed.begin(3), feed.specs[0], views(("a", 1)))
        list(compact(conn, feed.specs[0], keep=timedelta()))
        log, target = Changelog(conn, feed.specs[0]), MemoryBackingMap(feed.specs[0])

        with pytest.raises(OutOfReachError):
            list(rebuild(log, target, upto=1))
        with pytest.raises(NotCommittedError):
            list(rebuild(log, target, upto=4))
        assert list(target.scan()) == []

    def test_a_target_that_has_moved_on_is_replaced(self, feed, conn):
        feed.run(views(("a", 1)))
        target = MemoryBackingMap(feed.specs[0])
        target.multi_put([("a",), ("b",)], [Versioned({"n": 9}, 9)] * 2)

        list(rebuild(Changelog(conn, feed.specs[0]), target))

        assert list(target.scan()) == [(("a",), Versioned({"n": 1}, 1))]

    def test_a_state_that_is_not_registered_is_refused(self, conn, fresh):
        with pytest.raises(UnknownStateError):
            next(rebuild(Changelog(conn, spec := fresh(VIEWS)), MemoryBackingMap(spec)))
