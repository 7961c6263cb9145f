"""Snapshot, batches and resets, applied in order, give what a lookup shows, however often the client is disconnected.

A driver commits, replays with other contents, dies in the middle of a batch and compacts, as fast as it can, while a
client is disconnected at random and resumes from its last event id. The client checks that no batch comes twice or out
of order, and at the end that it has the state.
"""

import random
import threading
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.state_backends.feed import views
from tests.webapp.events.follower import Follower, spec, views_feed
from tidegauge.state_backends.errors import BatchOrderError
from tidegauge.state_backends.maintenance import compact
from tidegauge.webapp.catalog import readers

PAGES = ["a", "b", "c", "d"]
BATCHES = 120


class Driver(threading.Thread):
    """Takes BATCHES random steps, then commits a last batch. error: what it raised, if anything."""

    def __init__(self, feed, seed, *, compacts):
        super().__init__(daemon=True)
        self.feed = feed
        self.chance = random.Random(seed)
        self.compacts = compacts
        self.error = None
        self.last_txid = None

    def run(self):
        try:
            for _ in range(BATCHES):
                self.step()
            self.last_txid = self.feed.run(self.rows()).txid
        except Exception as error:
            self.error = error

    def step(self):
        next_id = self.feed.next_batch_id()
        match self.chance.choices(["commit", "replay", "die", "compact"], [8, 2, 2, 0.3 if self.compacts else 0])[0]:
            case "commit":
                self.feed.run(self.rows())
            case "replay" if next_id:
                with suppress(BatchOrderError):  # if the next one has begun
                    self.feed.run(self.rows(), batch_id=next_id - 1)
            case "die":
                self.feed.apply(self.feed.begin(next_id), self.feed.specs[0], views(("a", 1_000)))
            case "compact":
                list(compact(self.feed.conn, self.feed.specs[0], keep=timedelta()))

    def rows(self):
        return views(*((page, self.chance.randint(1, 9)) for page in PAGES if self.chance.random() < 0.5))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("query", ["", '?keys=["a","b","c","d","never"]'])
@pytest.mark.parametrize("declared", [{}, {"changelog": False}])
def test_a_client_that_is_disconnected_again_and_again_ends_with_what_a_lookup_shows(
    transactional_db, listen, declared, query, seed
):
    chance = random.Random(1_000 + seed)
    with views_feed(spec(**declared)) as feed:
        followed = feed.specs[0]
        path = f"/events/states/{followed.name}{query}"
        driver = Driver(feed, seed, compacts=bool(declared) is False)
        with readers.own_connection() as conn:
            follower = Follower(conn, followed)
            listener = listen(path)
            follower.take(listener.next())
            driver.start()

            # A batch that changed none of the keys only advances the last id.
            while driver.last_txid is None or listener.last_id != driver.last_txid:
                assert driver.error is None, driver.error
                if chance.random() < 0.15:
                    listener.close()
                    last, listener = listener, listen(path, headers={"Last-Event-ID": listener.last_event_id})
                    listener.last_id, listener.last_event_id = last.last_id, last.last_event_id
                with suppress(TimeoutError):
                    follower.take(listener.next(1.0))

            driver.join()
            assert follower.values == follower.looked_up()
