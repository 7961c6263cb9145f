"""A rewind of a pipeline whose store is not where its ledger is: exact afterwards, or refused beforehand."""

import os
from dataclasses import replace

import pytest
import redis

from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed, copy_of, put_back
from tidegauge.state_backends import BatchLedger, Count, StateSpec
from tidegauge.state_backends.errors import RewindError
from tidegauge.state_backends.repair.rewind import Rewind

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, backend="redis")
BATCHES = [(("a", 1), ("b", 1)), (("a", 10),), (("a", 100), ("c", 1)), (("a", 1000),), (("b", 1000),)]
COMMITTED, TO = 3, 2
THEN = [11, 1, "missing"]  # a, b and c after batch 2


@pytest.fixture
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def new_feed(conn, fresh):
    return lambda changelog: StoreFeed(conn, fresh(replace(VIEWS, changelog=changelog)))


@pytest.fixture
def counted(new_feed, client):
    """Feeds batches 1 to 3, and lets Redis be at another one."""

    def counted(store_at, changelog):
        feed, copies, ledgers = new_feed(changelog), {}, {}
        for txid, rows in enumerate(
            [(("a", 1), ("b", 1)), (("a", 10),), (("a", 100), ("c", 1)), (("a", 1000),), (("b", 1000),)], 1
        ):
            feed.run(views(*rows))
            copies[txid], ledgers[txid] = copy_of(client, feed.spec), feed.copy_of_ledger()
        feed.restore_ledger(ledgers[COMMITTED])
        put_back(client, feed.spec, copies[store_at])
        return feed

    return counted


def rewind(feed):
    feed.ledger.release()
    with BatchLedger(feed.conn, feed.pipeline).idle():
        rewound = Rewind(feed.conn, feed.pipeline, TO)
        rewound.run()
        rewound.follow()
    feed.ledger.acquire()


@pytest.mark.parametrize("store_at", [1, 2, 3, 4, 5])
def test_with_a_changelog_the_store_is_exact_wherever_it_was(counted, store_at):
    feed = counted(store_at, changelog=True)

    rewind(feed)
    feed.restart()
    at_once = feed.read("a", "b", "c")
    feed.run(views(("a", 5), ("c", 5)))

    assert (at_once, feed.read("a", "b", "c")) == (THEN, [16, 1, 5])


@pytest.mark.parametrize("store_at", [2, 3])
def test_without_one_a_store_that_has_lost_no_more_than_is_taken_back_is_exact(counted, store_at):
    feed = counted(store_at, changelog=False)

    rewind(feed)
    feed.restart()

    assert feed.read("a", "b", "c") == THEN


@pytest.mark.parametrize(
    ("store_at", "why"),
    [
        (1, "batch 2 was committed, and Redis is at batch 1: it has lost the rest"),
        (4, "Redis has batch 4, and the ledger is at batch 2: the ledger was restored from an older copy"),
        (5, "Redis has batch 5, and the ledger is at batch 2: the ledger was restored from an older copy"),
    ],
)
def test_without_one_a_store_that_has_lost_more_or_is_ahead_is_refused_before_anything_is_touched(
    counted, client, store_at, why
):
    feed = counted(store_at, changelog=False)
    before = feed.copy_of_ledger(), copy_of(client, feed.spec)

    with pytest.raises(RewindError, match=f"to batch 2: state '{feed.spec.name}': its store would disagree .*: {why}"):
        rewind(feed)

    assert (feed.copy_of_ledger()[0], copy_of(client, feed.spec)) == (before[0][0], before[1])
