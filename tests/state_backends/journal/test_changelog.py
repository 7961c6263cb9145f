from dataclasses import replace

import pytest

from state_backends import Changelog, Count, StateSpec
from tests.state_backends.feed import views

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def changelog(feed, conn):
    return Changelog(conn, feed.specs[0])


def versions(changelog, *key):
    return [(change.txid, change.value["n"]) for change in changelog.history(key)]


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

    assert versions(changelog, "a") == [(1, 3)]


def test_a_retry_leaves_its_own_entries_alone(feed, changelog):
    feed.run(views(("a", 1)))
    feed.apply(feed.begin(1), feed.specs[0], views(("a", 10), ("gone", 1)))

    feed.run(views(("a", 2)))

    assert versions(changelog, "a") == [(2, 3), (1, 1)]
    assert versions(changelog, "gone") == []


def test_rows_and_entries_land_together_or_not_at_all(feed, changelog, connect):
    batch, task = feed.begin(0), connect()

    with task.transaction(force_rollback=True):
        feed.apply(batch, feed.specs[0], views(("a", 1)), task)

    assert versions(changelog, "a") == []
    assert list(feed.backing(feed.specs[0]).scan()) == []


@pytest.mark.parametrize("change", [{"kind": "transactional"}, {"partitions": 4}])
def test_other_shapes_of_states_keep_one_too(new_feed, fresh, conn, change):
    feed = new_feed(spec := fresh(replace(VIEWS, **change)))
    feed.run(views(("a", 1)))
    batch = feed.begin(1)
    for _ in range(2):
        feed.apply(batch, spec, views(("a", 2)))

    assert versions(Changelog(conn, spec), "a") == [(2, 3), (1, 1)]


def test_a_global_state_has_a_history(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(StateSpec("totals", measures={"n": Count()}, changelog=True)))
    feed.run([{"n": 1}])
    feed.run([{"n": 2}])

    assert versions(Changelog(conn, spec)) == [(2, 3), (1, 1)]
