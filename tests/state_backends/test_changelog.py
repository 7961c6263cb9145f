from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import Changelog, Count, StateSpec, Versioned
from tidegauge.state_backends.errors import (
    KeyShapeError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    StaleBatchError,
)
from tidegauge.state_backends.maintenance import compact

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def changelog(feed, conn):
    return Changelog(conn, feed.specs[0])


def versions(changelog, *key, upto=None):
    return [(change.txid, change.value and change.value["n"]) for change in changelog.history(key, upto=upto)]


def test_every_version_of_a_key_is_kept_newest_first_with_its_batch(feed, changelog):
    batches = [feed.run(views(("a", 1), ("b", 1))), feed.run(views(("b", 1))), feed.run(views(("a", 5)))]

    assert versions(changelog, "a") == [(3, 6), (1, 1)]
    assert versions(changelog, "b") == [(2, 2), (1, 1)]
    assert versions(changelog, "nope") == []
    assert [change.batch_time for change in changelog.history(("a",))] == [batches[2].batch_time, batches[0].batch_time]


def test_a_history_may_be_limited(feed, changelog):
    for _ in range(5):
        feed.run(views(("a", 1)))

    assert [change.txid for change in changelog.history(("a",), limit=2)] == [5, 4]


def test_a_task_run_twice_leaves_one_entry(feed, changelog):
    batch = feed.begin(0)
    for _ in range(2):
        feed.apply(batch, feed.specs[0], views(("a", 3)))

    assert versions(changelog, "a", upto=batch.txid) == [(1, 3)]


def test_a_history_ends_with_the_committed_batch_by_default(feed, changelog):
    for _ in range(2):
        feed.run(views(("a", 1)))
    feed.apply(feed.begin(2), feed.specs[0], views(("a", 1)))

    assert versions(changelog, "a") == [(2, 2), (1, 1)]
    assert versions(changelog, "a", upto=3) == [(3, 3), (2, 2), (1, 1)]
    assert versions(changelog, "a", upto=1) == [(1, 1)]


def test_a_retry_leaves_only_its_own_entries(feed, changelog):
    feed.run(views(("a", 1)))
    feed.apply(feed.begin(1), feed.specs[0], views(("a", 10), ("gone", 1)))

    feed.run(views(("a", 2)))

    assert versions(changelog, "a") == [(2, 3), (1, 1)]
    assert versions(changelog, "gone") == []


def test_rows_and_entries_are_committed_together_or_not_at_all(feed, changelog, connect):
    batch, task = feed.begin(0), connect()

    with task.transaction(force_rollback=True):
        feed.apply(batch, feed.specs[0], views(("a", 1)), task)

    assert versions(changelog, "a", upto=batch.txid) == []
    assert list(feed.backing(feed.specs[0]).scan()) == []


@pytest.mark.parametrize("change", [{"kind": "transactional"}, {"partitions": 4}])
def test_other_forms_of_states_have_one_too(new_feed, fresh, conn, change):
    feed = new_feed(spec := fresh(replace(VIEWS, **change)))
    feed.run(views(("a", 1)))
    batch = feed.begin(1)
    for _ in range(2):
        feed.apply(batch, spec, views(("a", 2)))

    assert versions(Changelog(conn, spec), "a", upto=2) == [(2, 3), (1, 1)]


def test_rows_that_cannot_be_reverted_keep_their_entries(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, kind="transactional")))
    feed.run(views(("a", 1)))
    feed.apply(feed.begin(1), spec, views(("a", 2), ("b", 1)))

    feed.run(views(("a", 2)))  # without b, which stays

    changelog = Changelog(conn, spec)
    assert (versions(changelog, "a"), versions(changelog, "b")) == ([(2, 3), (1, 1)], [(2, 1)])


def test_a_state_declared_without_one_is_refused(conn):
    with pytest.raises(SpecError) as caught:
        Changelog(conn, replace(VIEWS, changelog=False))

    assert str(caught.value) == "state 'views': keeps no changelog; declare it with changelog=True"


def test_a_global_state_has_a_history(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(StateSpec("totals", measures={"n": Count()}, changelog=True)))
    feed.run([{"n": 1}])
    feed.run([{"n": 2}])

    assert versions(Changelog(conn, spec)) == [(2, 3), (1, 1)]


class TestAppendRows:
    NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)

    def test_rows_become_entries_and_none_a_tombstone(self, changelog):
        changelog.append_rows([("a",), ("b",)], [Versioned({"n": 1}, 1, at=self.NOON), Versioned(None, 2, {"n": 5}, 1)])

        assert (versions(changelog, "a", upto=9), versions(changelog, "b", upto=9)) == ([(1, 1)], [(2, None)])
        assert changelog.history(("a",), upto=9)[0].batch_time == self.NOON

    def test_a_second_row_of_one_batch_replaces_the_first(self, changelog):
        for number in (1, 2):
            changelog.append_rows([("a",)], [Versioned({"n": number}, 1)])

        assert versions(changelog, "a", upto=1) == [(1, 2)]

    def test_a_stale_writer_changes_no_history(self, changelog):
        changelog.append_rows([("a",)], [Versioned({"n": 7}, 7)])

        with pytest.raises(StaleBatchError) as caught:
            changelog.append_rows([("b",), ("a",)], [Versioned({"n": 6}, 6)] * 2)

        assert str(caught.value) == (
            f"state {changelog.spec.name!r}: batch 6 is older than stored batch 7 for key ('a',); another runner has "
            "moved on, so stop this one"
        )
        assert (versions(changelog, "a", upto=9), versions(changelog, "b", upto=9)) == ([(7, 7)], [])

    def test_a_wrong_key_appends_nothing(self, changelog):
        with pytest.raises(KeyShapeError, match="key 1: "):
            changelog.append_rows([("a",), (1,)], [Versioned({"n": 1}, 1)] * 2)

        assert versions(changelog, "a", upto=1) == []

    def test_two_that_append_the_same_keys_in_any_order_wait_for_each_other(self, feed, changelog, connect):
        """A task that runs twice: the second run replaces the entries of the first."""
        keys = [(f"{n:03}",) for n in range(300)]
        twins = [Changelog(connect(), changelog.spec) for _ in range(2)]

        def append(twin, keys):
            for _ in range(20):
                twin.append_rows(keys, [Versioned({"n": 1}, 1)] * len(keys))

        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(append, twin, keys[::step]) for twin, step in zip(twins, (1, -1), strict=True)]

        assert [run.exception() for run in runs] == [None, None]
        assert versions(changelog, "007", upto=1) == [(1, 1)]


class TestAtTxid:
    def versions(self, changelog, txid, *pages):
        return [
            change and (change.txid, change.value and change.value["n"])
            for change in changelog.at_txid(txid, [(page,) for page in pages])
        ]

    def test_each_key_is_answered_in_the_order_asked(self, feed, changelog):
        feed.run(views(("a", 1), ("b", 1)))
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1), ("new", 1)))

        assert self.versions(changelog, 2, "new", "b", "a", "b") == [None, (1, 1), (2, 2), (1, 1)]
        assert self.versions(changelog, 0, "a") == [None]
        assert self.versions(changelog, 3) == []

    def test_out_of_reach_is_an_error_that_names_the_oldest_batch(self, feed, changelog, conn):
        for _ in range(4):
            feed.run(views(("a", 1)))
        list(compact(conn, feed.specs[0], keep=timedelta()))

        with pytest.raises(OutOfReachError) as caught:
            changelog.at_txid(2, [("a",)])

        assert caught.value.oldest == 3
        assert self.versions(changelog, 3, "a") == [(3, 3)]

    def test_an_open_batch_is_left_out(self, feed, changelog):
        feed.apply(feed.begin(0), feed.specs[0], views(("a", 1)))

        with pytest.raises(NotCommittedError):
            changelog.at_txid(1, [("a",)])
        assert self.versions(changelog, 0, "a") == [None]
