"""Batches on Redis: who may write, what a revert touches, what a reader of the committed batch sees."""

import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.contracts.backends import emptied, spread
from tests.contracts.guarded_map import OLDER, GuardedMapContract
from tests.state_backends.backends.redis_servers import Interrupted
from tests.state_backends.feed import arrow
from tidegauge.state_backends import Count, OpaqueMap, Replace, StateSpec, Versioned
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.backends.redis.upkeep import RedisUpkeep
from tidegauge.state_backends.errors import FencedError, LostWritesError, MovedOnError
from tidegauge.state_backends.reader.scanned import CommittedRow, Published

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
NOW = datetime.now(UTC)
DAY = timedelta(days=1)  # longer than any run of the tests, which begins at NOW


class Crash(Exception):
    """A driver dies."""


def die():
    raise Crash


@pytest.fixture(scope="module")
def client():
    with Interrupted.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def fresh(fresh, client):
    return lambda spec: emptied(client, fresh(spec))


@pytest.fixture
def new_map(client, fresh):
    return lambda spec=VIEWS, **limits: RedisBackingMap(client, fresh(spec), **limits)


@pytest.fixture
def backing(new_map):
    return new_map()


def merge(backing, txid, pages, n=1, at=NOW):
    """Merge n views of each page as one batch."""
    return backing.merge(arrow([{"page": page, "n": n} for page in pages]), txid, at)


def commit(backing, txid, pages, n=1, at=NOW):
    merge(backing, txid, pages, n, at)
    backing.publish(txid)


def counts(backing):
    return {key[0]: row.value["n"] for key, row in backing.scan()}


def seen(backing, *pages):
    """Return what a reader sees: the batch, and per page the count or the status."""
    batch, rows = backing.multi_get_committed([(page,) for page in pages])
    return batch.txid, [row.value["n"] if row.status == "found" else row.status for row in rows]


def names(client, backing):
    return {name.decode().rpartition("}:")[2] for name in client.scan_iter(f"tidegauge:{{{backing.spec.name}*")}


class TestGuard(GuardedMapContract):
    @pytest.fixture
    def new_backing(self, new_map):
        return new_map

    @pytest.fixture
    def new_upkeep(self, client):
        return lambda spec: RedisUpkeep(client, spec)


class TestGuardsOfASpreadState(GuardedMapContract):
    @pytest.fixture
    def new_backing(self, new_map):
        return lambda spec: new_map(spread(spec))

    @pytest.fixture
    def new_upkeep(self, client):
        return lambda spec: RedisUpkeep(client, spec)


class TestFencing:
    """Of merges, which the contract does not know."""

    @pytest.mark.parametrize("attempt", OLDER, ids=["fence", "txid", "attempt"])
    def test_an_older_fence_batch_or_attempt_may_not_merge(self, backing, attempt):
        commit(backing, 4, ["a"])
        before = list(backing.scan())
        backing.admit(2, 5, 2)

        with pytest.raises(FencedError):
            merge(backing.under(*attempt), attempt[1], ["a"])

        assert list(backing.scan()) == before
        assert seen(backing, "a") == (4, [1])

    def test_the_admitted_attempt_merges(self, backing):
        merge(backing, 4, ["a"])
        backing.admit(2, 5, 1)

        for _ in range(2):
            merge(backing.under(2, 5, 1), 5, ["a"])

        assert counts(backing) == {"a": 2}

    def test_what_is_refused_says_who_was_admitted(self, backing):
        backing.admit(2, 5, 2)

        with pytest.raises(FencedError) as caught:
            merge(backing.under(1, 5, 1), 5, ["a"])

        assert str(caught.value) == (
            f"state {backing.spec.name!r}: attempt 1 at batch 5 under fence 1 may not write, because "
            "attempt 2 at batch 5 under fence 2 is admitted; another driver or attempt has taken over, so stop this one"
        )

    def test_a_server_that_has_lost_its_memory_admits_nobody(self, backing, client):
        backing.admit(2, 5, 2)
        client.unlink(*client.scan_iter(f"tidegauge:{{{backing.spec.name}*"))

        with pytest.raises(LostWritesError, match="no attempt is admitted"):
            merge(backing.under(2, 5, 2), 5, ["a"])

    def test_a_batch_that_is_not_the_admitted_one_is_refused(self, backing):
        backing.admit(2, 5, 2)

        own = backing.under(2, 5, 2)
        for write in (lambda: merge(own, 6, ["a"]), lambda: own.revert(6)):
            with pytest.raises(FencedError) as caught:
                write()
        assert str(caught.value) == (
            f"state {backing.spec.name!r}: attempt 2 at batch 5 under fence 2 may not write or revert batch 6, which "
            "is not its own; stop this one"
        )

    def test_a_map_over_it_writes_under_the_attempt(self, backing):
        backing.admit(2, 5, 1)
        counted = OpaqueMap(backing.under(2, 5, 1))
        counted.begin_commit(5, NOW)
        counted.multi_update([("a",)], [Replace({"n": 1})])
        backing.admit(3, 5, 2)

        with pytest.raises(FencedError):
            counted.multi_update([("b",)], [Replace({"n": 1})])

        assert counts(backing) == {"a": 1}

    def test_a_driver_that_takes_over_stops_a_merge_on_its_way(self, new_map, client):
        backing = new_map(max_put_keys=1)
        pages = [f"{number:02}" for number in range(20)]
        backing.admit(1, 5, 1)

        def take_over():
            backing.admit(2, 5, 2)
            backing.under(2, 5, 2).revert(5)

        with client.interrupted(3, take_over), pytest.raises(FencedError):
            merge(backing.under(1, 5, 1), 5, pages)

        assert counts(backing) == {}


class TestRevert:
    PAGES = tuple(f"{number:04}" for number in range(2_500))

    def test_only_rows_of_the_batch_go_back(self, backing):
        merge(backing, 1, ["a", "b"])
        merge(backing, 2, ["b", "c"])

        assert backing.revert(2) == 2
        assert list(backing.scan()) == [(("a",), Versioned({"n": 1}, 1)), (("b",), Versioned({"n": 1}, 1))]

    def test_no_other_row_is_looked_at(self, backing, client):
        merge(backing, 1, self.PAGES)
        merge(backing, 2, ["0001"])
        client.config_resetstat()

        backing.revert(2)

        assert client.info("commandstats")["cmdstat_hmget"]["calls"] == 1

    def test_rows_that_were_put_go_back_too(self, backing):
        backing.multi_put([("a",), ("b",)], [Versioned({"n": 2}, 2, {"n": 1}, 1), Versioned({"n": 1}, 2)])

        assert backing.revert(2) == 2
        assert counts(backing) == {"a": 1}

    def test_nothing_of_a_new_row_stays(self, backing, client):
        merge(backing, 1, ["a"])

        backing.revert(1)

        assert names(client, backing) <= {"guard", "batches"}

    @pytest.mark.parametrize("trip", [1, 2, 3, 5, 7])
    def test_a_revert_that_is_killed_anywhere_may_run_again(self, backing, client, trip, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.redis.pages.PAGE_ROWS", 100)
        merge(backing, 1, self.PAGES[:1_300])
        merge(backing, 2, self.PAGES)

        with client.interrupted(trip, die), pytest.raises(Crash):
            backing.revert(2)
        backing.revert(2)

        assert backing.revert(2) == 0
        assert counts(backing) == dict.fromkeys(self.PAGES[:1_300], 1)
        assert {row.txid for _, row in backing.scan()} == {1}

    def test_the_keys_that_older_batches_wrote_are_forgotten_once_a_batch_is_published(self, backing, client):
        for txid in (1, 2):
            commit(backing, txid, ["a"])

        assert {name for name in names(client, backing) if name.startswith("written")} == {"written:2"}

    def test_they_do_not_pile_up_where_nobody_publishes(self, backing, client):
        counted = OpaqueMap(backing)
        for txid in range(1, 20):
            counted.begin_commit(txid, NOW)
            counted.multi_update([("a",)], [Replace({"n": txid})])
            merge(backing, txid, ["b"])

        written = {name for name in names(client, backing) if name.startswith("written")}
        assert written == {"written:18", "written:19"}
        assert backing.revert(19) == 2

    def test_the_committed_batch_can_come_again_until_the_next_one_starts(self, backing):
        commit(backing, 1, ["a"])
        commit(backing, 2, ["a", "b"])

        backing.admit(1, 2, 2)
        backing.under(1, 2, 2).revert(2)

        assert seen(backing, "a", "b") == (1, [1, "missing"])
        merge(backing, 2, ["a"], n=5)
        assert seen(backing, "a", "b") == (1, [1, "missing"])
        backing.publish(2)
        assert seen(backing, "a", "b") == (2, [6, "missing"])

    def test_readers_go_back_before_the_first_row_does(self, backing, client):
        commit(backing, 1, ["a"])
        commit(backing, 2, ["a", "b"])

        with client.interrupted(2, die), pytest.raises(Crash):
            backing.revert(2)

        assert seen(backing, "a", "b") == (1, [1, "missing"])


class TestCommittedReads:
    def test_a_reader_sees_nothing_before_the_first_batch_is_published(self, backing):
        merge(backing, 1, ["a"])

        assert seen(backing, "a") == (0, ["missing"])

    def test_a_reader_sees_the_published_batch_while_the_next_is_written(self, backing):
        commit(backing, 1, ["a", "b"])
        merge(backing, 2, ["a", "c"])

        assert seen(backing, "c", "a", "b", "a") == (1, ["missing", 1, 1, 1])
        backing.publish(2)
        assert seen(backing, "c", "a", "b", "a") == (2, [1, 2, 1, 2])

    def test_each_answer_has_the_batch_that_wrote_it(self, backing):
        commit(backing, 1, ["a", "b"])
        commit(backing, 2, ["a"])
        merge(backing, 3, ["a"])

        assert backing.multi_get_committed([("a",), ("b",), ("c",)]) == (
            Published(2),
            [
                CommittedRow("found", {"n": 2}, 2),
                CommittedRow("found", {"n": 1}, 1),
                CommittedRow("missing", None, None),
            ],
        )

    def test_a_row_that_is_further_on_than_readers_shows_the_version_before(self, backing):
        commit(backing, 1, ["a"])
        merge(backing, 2, ["a"])
        merge(backing, 3, ["a"])

        assert seen(backing, "a") == (1, [2])

    def test_without_keys_the_answer_is_the_batch(self, backing):
        commit(backing, 7, ["a"])

        assert backing.multi_get_committed([]) == (Published(7), [])

    def test_a_published_batch_is_not_taken_back_by_an_older_one(self, backing):
        commit(backing, 2, ["a"])

        backing.publish(1)

        assert seen(backing, "a") == (2, [1])

    def test_a_row_past_its_time_is_expired_and_a_removed_one_missing(self, new_map):
        backing = new_map(replace(VIEWS, ttl=DAY))
        commit(backing, 1, ["old"], at=NOW - 2 * DAY)
        commit(backing, 2, ["young", "removed"])
        backing.multi_put([("removed",)], [Versioned(None, 3, {"n": 1}, 2)])
        assert seen(backing, "old", "young", "removed") == (2, ["expired", 1, 1])

        backing.publish(3)

        assert seen(backing, "old", "young", "removed") == (3, ["expired", 1, "missing"])

    def test_the_version_before_has_its_own_time(self, new_map):
        backing = new_map(replace(VIEWS, ttl=DAY))
        commit(backing, 1, ["a"], at=NOW - 2 * DAY)
        merge(backing, 2, ["a"])

        assert seen(backing, "a") == (1, ["expired"])

    @pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
    def test_kinds_that_keep_one_version_show_it(self, new_map, kind):
        backing = new_map(replace(VIEWS, kind=kind))
        commit(backing, 1, ["a"])
        merge(backing, 2, ["a"])

        assert seen(backing, "a") == (1, [2])

    def test_a_reader_never_sees_half_a_batch(self, new_map, client):
        backing = new_map(max_put_keys=5, max_get_keys=5)
        pages = [f"{number:02}" for number in range(60)]
        commit(backing, 1, pages)
        done, mixed = threading.Event(), []

        def read():
            while not done.is_set():
                txid, values = seen(backing, *pages)
                if set(values) != {txid}:
                    mixed.append((txid, values))

        reader = threading.Thread(target=read)
        reader.start()
        for txid in range(2, 60):
            commit(backing, txid, pages)
        done.set()
        reader.join()

        assert mixed == []


class TestPublishedDuringARead:
    """60 keys at 5 a call are three round trips; the batches are published before the second one."""

    PAGES = tuple(f"{number:02}" for number in range(60))

    @pytest.fixture
    def read(self, client, new_map):
        backing = new_map(max_get_keys=5)
        commit(backing, 1, self.PAGES)

        def read(*txids):
            def publish():
                for txid in txids:
                    commit(backing, txid, self.PAGES)

            with client.interrupted(2, publish):
                return seen(backing, *self.PAGES)

        return read

    def test_one_batch_leaves_the_older_one_readable(self, read):
        assert read(2) == (1, [1] * 60)

    def test_two_batches_make_it_read_again(self, read):
        assert read(2, 3) == (3, [3] * 60)

    def test_a_read_that_is_overtaken_every_time_gives_up(self, read, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.redis.committed.MAX_READS", 1)

        with pytest.raises(MovedOnError) as caught:
            read(2)

        assert str(caught.value).partition(": ")[2] == (
            "batches were published during each of 1 reads of 60 keys; ask for fewer keys"
        )


class TestABatchThatComesAgainDuringARead:
    """120 keys are more than a scan reads at once, and at 5 a call six round trips."""

    PAGES = tuple(f"{number:03}" for number in range(120))

    @pytest.fixture
    def backing(self, new_map):
        backing = new_map(max_get_keys=5)
        self.attempt(backing, 1)
        return backing

    def attempt(self, backing, number):
        """Count each page `number` times in batch 1, as its attempt of that number."""
        backing.admit(1, 1, number)
        own = backing.under(1, 1, number)
        own.revert(1)
        commit(own, 1, self.PAGES, n=number)

    def test_a_scan_is_refused(self, backing):
        _, scan = backing.scan_committed()
        next(scan)

        self.attempt(backing, 2)

        with pytest.raises(MovedOnError, match="batch 1 was reverted"):
            list(scan)

    def test_a_scan_that_begins_between_its_admission_and_its_revert_is_refused(self, backing):
        backing.admit(1, 1, 2)
        _, scan = backing.scan_committed()

        self.attempt(backing, 2)

        with pytest.raises(MovedOnError):
            list(scan)

    def test_a_lookup_reads_again(self, backing, client):
        with client.interrupted(2, lambda: self.attempt(backing, 2)):
            assert seen(backing, *self.PAGES) == (1, [2] * 120)

    def test_a_scan_that_a_thousand_batches_overtake_is_refused(self, backing):
        _, scan = backing.scan_committed()
        backing.publish(1_000)
        assert next(scan)[0] == ("000",)

        backing.publish(1_001)

        with pytest.raises(MovedOnError):
            list(scan)
