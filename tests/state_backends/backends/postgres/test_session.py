"""What a task writes to a table: under the ledger's row, the rows and their changelog entries together."""

from dataclasses import replace

import pytest

from tests.state_backends.feed import arrow, views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import Changelog, Count, StateSpec, Sum
from tidegauge.state_backends.errors import FencedError, SecondWriterError

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)


@pytest.fixture
def feed(conn, fresh):
    feed = StoreFeed(conn, fresh(VIEWS))
    feed.run(views(("a", 10)))
    return feed


def history(feed, page, upto):
    return [
        change.value and change.value["n"] for change in Changelog(feed.conn, feed.spec).history((page,), upto=upto)
    ]


def test_each_new_version_is_in_the_changelog(feed):
    feed.run(views(("a", 1), ("b", 5)))

    assert feed.read("a", "b") == [11, 5]
    assert (history(feed, "a", 2), history(feed, "b", 2)) == ([11, 10], [5])


def test_a_revert_takes_the_entries_back_with_the_rows(feed):
    batch, session = feed.begin()
    feed.write(batch, views(("a", 1), ("b", 5)))

    session.revert()

    assert (history(feed, "a", 2), history(feed, "b", 2)) == ([10], [])
    assert session.rows.multi_get([("b",)]) == [None]


@pytest.mark.parametrize("batch_id", [1, 0], ids=["open", "committed"])
def test_a_task_of_an_earlier_attempt_writes_nothing(feed, batch_id):
    batch, _ = feed.begin(batch_id)
    feed.begin(batch_id)
    before = history(feed, "b", 2)

    with pytest.raises(FencedError):
        feed.write(batch, views(("b", 5)))

    assert history(feed, "b", 2) == before == []


@pytest.mark.parametrize("batch_id", [1, 0], ids=["open", "committed"])
def test_an_updater_of_an_earlier_attempt_gets_no_rows(feed, batch_id):
    _, session = feed.begin(batch_id)
    feed.begin(batch_id)

    with pytest.raises(FencedError), session.writing(), session.updating():
        pytest.fail("the updater got rows")


def test_a_state_without_a_changelog_is_written_too(conn, fresh):
    feed = StoreFeed(conn, fresh(replace(VIEWS, changelog=False)))

    feed.run(views(("a", 1)))

    assert feed.read("a") == [1]


class TestSecondWriter:
    """A key belongs to one task of an attempt. A task that Spark runs again writes its own keys again."""

    @pytest.fixture(params=["opaque", "transactional"])
    def feed(self, conn, fresh, request):
        feed = StoreFeed(conn, fresh(replace(VIEWS, kind=request.param)), spout="transactional")
        feed.run(views(("a", 10)))
        return feed

    def write(self, session, *rows):
        with session.writing():
            return session.merge(arrow(views(*rows)), first_run=True)

    def test_a_key_that_another_task_of_the_attempt_wrote_is_an_error(self, feed):
        _, session = feed.begin()
        self.write(session, ("a", 1), ("b", 1))

        with pytest.raises(SecondWriterError) as caught:
            self.write(session, ("a", 5), ("c", 5))

        assert str(caught.value) == (
            f'state {feed.spec.name!r}: two tasks of batch 2 wrote key ["a"], which belongs to one of them; the batch '
            "is tried again, and if that fails too, the key comes in forms that differ for Spark and not for the "
            "state: make them equal before group_by"
        )
        assert [row and row.value["n"] for row in session.rows.multi_get([("a",), ("b",), ("c",)])] == [11, 1, None]

    def test_a_key_of_the_attempt_before_is_none(self, feed):
        _, session = feed.begin()
        self.write(session, ("a", 1))
        batch, session = feed.begin()

        assert self.write(session, ("a", 1), ("b", 1)) == 2

        feed.commit(batch, 2)
        assert feed.read("a", "b") == [11, 1]


def test_totals_that_are_refused_batch_after_batch_leave_the_connection_usable(conn, fresh):
    # As many batches as it takes until psycopg prepares the statements of a merge that fails.
    feed = StoreFeed(conn, fresh(replace(VIEWS, measures={"n": Sum("n", type="bigint")})))
    feed.run(views(("full", 2**63 - 1)))

    for _ in range(8):
        feed.run(views(("a", 1), ("full", 1)))

    assert feed.read("a", "full") == [8, 2**63 - 1]
    assert history(feed, "a", 9) == [8, 7, 6, 5, 4, 3, 2, 1]
