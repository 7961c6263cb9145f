"""A state that is spread over buckets, on one server: what may happen to a bucket alone, and what its rules are for."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from redis.connection import AbstractConnection

from tests.contracts.backends import emptied, spread
from tests.state_backends.backends import test_comparison as comparison
from tests.state_backends.backends.test_comparison import HUNDRED, KINDS, VIEWS
from tests.state_backends.feed import arrow, views
from tests.state_backends.store_feed import StoreFeed, read_both_ways
from tidegauge.state_backends import Max, RedisBackingMap, state_reader
from tidegauge.state_backends.backends.redis.guard import RedisGuard
from tidegauge.state_backends.backends.redis.keys import Buckets
from tidegauge.state_backends.errors import (
    FencedError,
    LostBatchesError,
    LostWritesError,
    OutOfReachError,
    SpecMismatchError,
    StoreAheadError,
)
from tidegauge.state_backends.reader.multi_state import StateLookup, at_one_batch
from tidegauge.state_backends.schema.catalog import Catalog

BUCKETS = 8
PAGES = [row["page"] for row in HUNDRED]


@pytest.fixture
def new_feed(conn, fresh, client):
    def new_feed(spec=VIEWS, **options):
        return StoreFeed(conn, emptied(client, fresh(spread(spec, BUCKETS))), **options)

    return new_feed


feed = comparison.feed


def bucket_of(feed, page):
    """Return the names of the bucket that has a page."""
    (chunk,) = Buckets(feed.spec).chunks([(page,)], 0)
    return chunk.names


def copy_of(client, names):
    tag = names.guard.removesuffix(b"guard")
    return {key: client.dump(key) for key in client.scan_iter(tag + b"*", count=1_000)}


def put_back(client, names, copy):
    """Let one bucket go back to a copy, as a server does that is restored or promoted alone."""
    client.delete(*copy_of(client, names))
    for key, value in copy.items():
        client.restore(key, 0, value)


class TestBehind(comparison.TestBehind):
    """The tests of a state under one tag, of all buckets at once; in those left out, the ledger commits unchecked."""

    test_merges_that_are_lost_after_the_commit_are_not_published = None
    test_merges_that_are_lost_after_they_were_published_are_found_at_the_next_start = None
    test_they_are_found_at_the_next_start_if_the_retry_was_committed_meanwhile = None


class TestAhead(comparison.TestAhead):
    """The same."""

    test_a_batch_that_comes_again_is_shown_as_the_attempt_that_was_committed_until_it_is_reverted = None
    test_what_an_earlier_release_wrote_of_the_batch_after_it_is_known_by_its_keys = None


class TestFence(comparison.TestFence):
    """The same."""


class TestOneBucketAlone:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_bucket_that_has_lost_its_part_of_a_committed_batch_is_found_by_drivers_and_readers(
        self, new_feed, client, kind
    ):
        feed = new_feed(replace(VIEWS, kind=kind), spout="transactional")
        feed.run(HUNDRED)
        older = copy_of(client, bucket_of(feed, "00"))
        feed.run(HUNDRED)

        put_back(client, bucket_of(feed, "00"), older)

        with pytest.raises(LostBatchesError, match="batch 2 was committed, and Redis is at batch 1"):
            feed.restart()
        reader = state_reader(feed.conn, feed.spec)
        asks = [
            lambda: read_both_ways(feed.conn, feed.spec, [("00",)]),
            lambda: reader.page(),
            lambda: reader.combine([("00",)]),
            lambda: reader.history(("00",)),
            lambda: reader.groups(["page"]),
        ]
        for ask in asks:
            with pytest.raises(LostBatchesError, match="batch 2 was committed, and Redis is at batch 1"):
                ask()
        lost = bucket_of(feed, "00").guard
        assert set(feed.read(*(page for page in PAGES if bucket_of(feed, page).guard != lost))) == {2}

    def test_keys_that_a_bucket_loses_before_the_commit_make_the_batch_come_again(self, feed, client):
        batch, session = feed.begin()
        older = copy_of(client, bucket_of(feed, "00"))
        keys = feed.write(batch, HUNDRED)
        put_back(client, bucket_of(feed, "00"), older)

        with pytest.raises(LostWritesError, match=r"the tasks of batch 2 wrote 100 keys, and Redis has \d\d of them"):
            session.check(keys)

        feed.restart()
        feed.run(HUNDRED)
        assert feed.read("a", "00", "99") == [1, 1, 1]

    def test_keys_that_it_loses_between_check_and_mark_make_the_batch_come_again(self, feed, client, monkeypatch):
        batch, session = feed.begin()
        keys = feed.write(batch, HUNDRED)
        checked = RedisGuard._checked

        def losing(guard, txid, expected):
            found = checked(guard, txid, expected)
            monkeypatch.undo()
            client.hincrby(bucket_of(feed, "00").guard, "keys:2", -1)
            return found

        monkeypatch.setattr(RedisGuard, "_checked", losing)

        with pytest.raises(LostWritesError, match="wrote 100 keys, and Redis has 99 of them"):
            session.check(keys)

    def test_another_attempt_in_one_bucket_is_found_by_drivers_and_readers(self, feed, client):
        feed.run(HUNDRED)
        older = copy_of(client, bucket_of(feed, "00"))
        feed.run(HUNDRED, batch_id=1)

        put_back(client, bucket_of(feed, "00"), older)

        with pytest.raises(StoreAheadError, match="batch 2 in Redis is of another attempt"):
            feed.restart()
        with pytest.raises(StoreAheadError, match="batch 2 in Redis is of another attempt"):
            feed.read("00")

    def test_a_bucket_ahead_of_the_others_is_found_though_they_are_where_the_ledger_is(self, feed, client):
        ledger, buckets = feed.copy_of_ledger(), Buckets(feed.spec).names
        older = {names: copy_of(client, names) for names in buckets}
        for _ in range(2):
            feed.run(HUNDRED)
        feed.restore_ledger(ledger)

        for names in buckets[1:]:
            put_back(client, names, older[names])

        with pytest.raises(StoreAheadError, match="Redis has batch 3, and the ledger is at batch 1"):
            feed.restart()

    def test_a_crash_while_buckets_are_marked_one_after_the_other_is_repaired(self, feed, client):
        batch, session = feed.begin()
        keys = feed.write(batch, HUNDRED)
        before = copy_of(client, bucket_of(feed, "00"))
        session.check(keys)
        put_back(client, bucket_of(feed, "00"), before)

        assert feed.read("a", "00") == [1, "missing"]
        feed.restart()
        feed.run(views(("a", 1)))

        assert feed.read("a", "00", "99") == [2, "missing", "missing"]

    def test_the_marks_alone_are_made_again_if_a_bucket_lost_them_after_the_commit(self, feed, client):
        batch, session = feed.begin()
        keys = feed.write(batch, HUNDRED)
        before = copy_of(client, bucket_of(feed, "00"))
        session.check(keys)
        feed.commit(batch, keys)
        put_back(client, bucket_of(feed, "00"), before)

        with pytest.raises(LostBatchesError):
            feed.read("00")
        feed.restart()

        assert feed.read("a", "00", "99") == [1, 1, 1]


class TestReaders:
    def test_every_bucket_shows_a_batch_at_once_when_the_ledger_commits_it(self, feed):
        reader = state_reader(feed.conn, feed.spec)
        feed.run(HUNDRED)
        batch, session = feed.begin()
        keys = feed.write(batch, HUNDRED)
        session.check(keys)

        before = reader.combine([(page,) for page in PAGES])
        feed.commit(batch, keys)
        after = reader.combine([(page,) for page in PAGES])

        sums = [(found.txid, found.parsed()[0]["value"]["n"]) for found in (before, after)]
        assert sums == [(2, 100), (3, 200)]

    def test_ranges_and_tops_are_merged_in_order_over_pages(self, new_feed, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.redis.rows.SORTED_KEYS", 10 * BUCKETS)
        feed = new_feed()
        feed.run(views(*((f"{number:04}", number % 97) for number in range(1_000))))
        reader = state_reader(feed.conn, feed.spec)

        pages, after = [], None
        while not pages or after is not None:
            page = reader.page(limit=300, after=after)
            pages += [entry["key"][0] for entry in page.parsed()]
            after = page.after
        top = [entry["value"]["n"] for entry in reader.page(order_by="n", descending=True, limit=12).parsed()]
        with reader.export() as export:
            exported = [page for page, _ in export.rows]

        assert pages == exported == [f"{number:04}" for number in range(1_000)]
        assert top == [96] * 10 + [95] * 2
        assert [e["key"][0] for e in reader.page(start=("0100",), stop=("0103",)).parsed()] == ["0100", "0101", "0102"]
        splits = [int(page) for (page,) in feed.backend.split_keys(feed.conn, feed.spec, 4)]
        assert splits == pytest.approx([250, 500, 750], abs=50)

    def test_an_earlier_batch_is_read_as_long_as_rows_show_it(self, feed):
        reader = state_reader(feed.conn, feed.spec)
        feed.run(views(("a", 1)))

        then = reader.multi_get([("a",), ("b",)], at_txid=1)
        feed.run(views(("a", 1)))

        assert [found["value"]["n"] for found in then.parsed()] == [1, 1]
        assert [found["value"]["n"] for found in reader.multi_get([("b",)], at_txid=1).parsed()] == [1]
        for ask in (lambda: reader.multi_get([("a",)], at_txid=1), lambda: reader.page(at_txid=1)):
            with pytest.raises(OutOfReachError):
                ask()

    def test_two_states_are_answered_at_one_batch(self, feed, conn, fresh, client):
        other = emptied(client, fresh(spread(VIEWS, 3)))
        Catalog(conn).register_states(feed.pipeline, [other], {other.name: ""})
        feed.backend.catch_up(conn, other, feed.ledger.start(feed.ledger.lock_committed()), is_new=True)
        reader = state_reader(conn, feed.spec)

        found = at_one_batch(conn, [StateLookup(reader, [("a",)]), StateLookup(state_reader(conn, other), [("a",)])])

        assert [answer.txid for answer in found] == [1, 1]
        assert [answer.parsed()[0]["status"] for answer in found] == ["found", "missing"]

    def test_a_batch_that_is_committed_during_a_read_is_not_mixed_with_the_one_before(self, feed, monkeypatch):
        feed.run(HUNDRED)
        get = RedisBackingMap.multi_get_committed

        def overtaken(rows, keys, **options):
            monkeypatch.undo()
            for _ in range(2):
                feed.run(HUNDRED)
            return get(rows, keys, **options)

        monkeypatch.setattr(RedisBackingMap, "multi_get_committed", overtaken)

        found = state_reader(feed.conn, feed.spec).multi_get([(page,) for page in PAGES])

        assert (found.txid, {each["value"]["n"] for each in found.parsed()}) == (4, {3})


@pytest.fixture
def round_trips(monkeypatch):
    """Return how often work sends something to Redis: a command, or a pipeline of them."""
    send, sent = AbstractConnection.send_packed_command, []

    def counted(connection, command, *args, **options):
        sent.append(command)
        return send(connection, command, *args, **options)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)

    def round_trips(work):
        sent.clear()
        work()
        return len(sent)

    return round_trips


class TestMaintenance:
    def test_few_rows_take_as_many_round_trips_in_many_buckets_as_in_two(self, conn, fresh, client, round_trips):
        now, timed = datetime.now(UTC), replace(VIEWS, measures={"until": Max("at", type="timestamptz")})
        rows_of_a_batch = [{"page": page, "until": now} for page in PAGES]

        def taken(buckets):
            feed = StoreFeed(conn, emptied(client, fresh(spread(timed, buckets))))
            feed.run(rows_of_a_batch)
            batch, _ = feed.begin()
            feed.write(batch, rows_of_a_batch)
            rows, upkeep = feed.backend.guarded(feed.spec), feed.backend.upkeep(feed.spec)
            timers = rows.timers("until")
            works = {
                "setting times": lambda: timers.next_due(1),
                "due keys": lambda: timers.due_keys(feed.spec, now, 10, 1),
                "revert": lambda: rows.revert(2),
                "expiry": lambda: [upkeep.expire(page, 1, now, timedelta(days=1)) for page in upkeep.pages()],
                "rebuild": rows.begin_rebuild,
                "removal": upkeep.clear,
            }
            return {name: round_trips(work) for name, work in works.items()}

        taken(2)  # the server gets the scripts
        assert taken(64) == taken(2)

    def test_pages_sizes_and_expiry_walk_every_bucket(self, feed, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.redis.pages.PAGE_ROWS", 5)
        feed.run(HUNDRED)
        upkeep = feed.backend.upkeep(feed.spec)

        count, size = feed.backend.sizes(feed.conn, feed.spec)
        later = datetime.now(UTC) + timedelta(days=1)
        freed = sum(upkeep.expire(page, 2, later, timedelta(seconds=1)) for page in upkeep.pages())

        assert (count, freed, feed.read("a", "99")) == (102, 102, ["missing", "missing"])
        assert 102 * 100 < size < 102 * 2_000
        assert feed.backend.guarded(feed.spec).status().missing_rows == 0

    def test_dropping_it_leaves_nothing_behind(self, feed, client):
        feed.begin()

        feed.backend.drop(feed.conn, feed.spec)

        assert not any(copy_of(client, names) for names in Buckets(feed.spec).names)

    def test_a_backup_holds_every_bucket(self, feed, client):
        feed.run(HUNDRED)
        records = list(feed.backend.archive.save(feed.spec))
        feed.backend.drop(feed.conn, feed.spec)

        feed.backend.archive.load(feed.spec, records)

        feed.restart()
        assert feed.read("a", "00", "99") == [1, 1, 1]

    def test_another_number_of_partitions_is_refused_by_name(self, feed):
        changed = replace(feed.spec, partitions=4)

        with pytest.raises(SpecMismatchError, match=r"partitions was 8, is 4; .* --to postgres`, start a driver"):
            Catalog(feed.conn).register_states(feed.pipeline, [changed], {changed.name: ""})


# The rules of docs/model/buckets.py. Each is switched off in the code, and the count of a page is then wrong.


class TestRules:
    """After an attempt that wrote a and b, one comes that writes only a."""

    @pytest.fixture
    def second_attempt(self, feed):
        feed.run(views(("a", 1), ("b", 1)))
        first, _ = feed.begin()
        zombie = feed.backend.session(feed.conn, feed.spec, first)
        zombie.merge(arrow(views(("a", 10), ("b", 10))))
        assert bucket_of(feed, "a").guard != bucket_of(feed, "b").guard

        def second_attempt(late=False):
            """Return what is stored. late: the first attempt has writes in flight, which arrive at last."""
            batch, _ = feed.begin()
            # Unchecked, because the check would find what this is about.
            feed.commit(batch, feed.write(batch, views(("a", 1))))
            if late:
                with suppress(FencedError):
                    zombie.merge(arrow(views(("b", 10))))
            return [row.value["n"] for row in feed.backend.guarded(feed.spec).multi_get([("a",), ("b",)])]

        return second_attempt

    def test_a_retry_reverts_the_buckets_that_it_has_no_rows_for(self, second_attempt):
        assert second_attempt() == [3, 2]

    def test_without_it_they_keep_what_the_attempt_before_wrote(self, second_attempt, monkeypatch, feed):
        written = RedisBackingMap._written
        own = bucket_of(feed, "a").guard
        monkeypatch.setattr(
            RedisBackingMap,
            "_written",
            lambda rows, txid: (pair for pair in written(rows, txid) if pair[0].guard == own),
        )

        assert second_attempt() == [3, 12]

    def test_every_bucket_admits_a_retry_so_that_none_takes_writes_of_the_attempt_before(self, second_attempt):
        assert second_attempt(late=True) == [3, 2]

    def test_without_it_those_that_it_has_no_rows_for_take_them(self, second_attempt, monkeypatch, feed):
        admit, revert, own = RedisGuard.admit, RedisBackingMap.revert, bucket_of(feed, "a")

        def admitted_by_one(guard, attempt):
            every, guard._buckets.names = guard._buckets.names, [own]
            admit(guard, attempt)
            guard._buckets.names = every

        def unchecked(rows, txid):
            revert(RedisBackingMap(rows._client, rows.spec), txid)
            return rows._revert(txid, [(own, [])], b"end")

        monkeypatch.setattr(RedisGuard, "admit", admitted_by_one)
        monkeypatch.setattr(RedisBackingMap, "revert", unchecked)

        assert second_attempt(late=True) == [3, 12]

    def test_a_script_that_does_not_check_its_attempt_takes_them_too(self, second_attempt, monkeypatch):
        monkeypatch.setattr(RedisGuard, "argument", lambda guard, txid=None: b"")

        assert second_attempt(late=True) == [3, 12]

    def test_current_versions_alone_mix_two_batches_and_readers_do_not_see_them(self, feed):
        feed.run(HUNDRED)
        batch, _ = feed.begin()
        feed.write(batch, HUNDRED[:50])
        rows = feed.backend.guarded(feed.spec)

        mixed = {row.value["n"] for row in rows.multi_get([(page,) for page in PAGES])}

        assert mixed == {1, 2}
        assert set(feed.read(*PAGES)) == {1}
