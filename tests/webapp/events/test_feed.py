"""What is read together, and what must not be missed between a look and the next one."""

import asyncio

import psycopg
import pytest

from state_backends.errors import UnknownStateError
from webapp.events.broker import CommitSignals
from webapp.events.deltas import Cursor, Delta, frame
from webapp.events.feed import Feed
from webapp.events.stream import Stream
from webapp.events.subscriptions import StateSubscription

pytestmark = pytest.mark.anyio

QUESTION = StateSubscription("views", "pipeline")


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Reads:
    """Stands in for reading in a thread: gives out steps or raises, and lets something happen meanwhile."""

    def __init__(self, *answers, meanwhile=lambda number: None):
        self.answers = list(answers)
        self.count = 0
        self.meanwhile = meanwhile

    async def __call__(self, read):
        self.count += 1
        answer = self.answers[min(self.count, len(self.answers)) - 1]
        await asyncio.sleep(0.01)
        self.meanwhile(self.count)
        if isinstance(answer, Exception):
            raise answer
        return answer


def step(txid):
    return Delta([frame("batch", {"txid": txid}, txid)], Cursor(txid, 1))


async def welcome():
    return True


class Sent:
    """The bodies that a stream has sent; ends it after so many events."""

    def __init__(self, events):
        self.events = events
        self.bodies = []
        self.stream = None

    async def __call__(self, message):
        self.bodies.append(message["body"])
        if sum(b"event: " in body for body in self.bodies) >= self.events:
            self.stream.end()


async def streamed(reads, tides, events):
    feed = Feed(QUESTION, tides, reads)
    sent = Sent(events)
    sent.stream = Stream(feed, tides, sent, None, welcome)
    await asyncio.wait_for(sent.stream.run(), 3.0)
    return [int(body.split(b"id: ")[1].split(b"\n")[0]) for body in sent.bodies if b"event: " in body]


async def test_a_commit_that_comes_while_a_look_is_on_its_way_is_looked_for():
    tides = CommitSignals()
    # The first look has read batch 1 when the commit of batch 2 is heard of.
    reads = Reads(step(1), step(2), meanwhile=lambda number: tides.heard("pipeline") if number == 1 else None)

    assert await streamed(reads, tides, events=2) == [1, 2]


async def test_what_may_have_been_missed_is_looked_for():
    tides = CommitSignals()
    reads = Reads(step(1), step(2), meanwhile=lambda number: tides.look_again() if number == 1 else None)

    assert await streamed(reads, tides, events=2) == [1, 2]


async def test_clients_who_stand_at_the_same_batch_share_one_read_per_commit():
    tides = CommitSignals()
    reads = Reads(step(2))
    feed = Feed(QUESTION, tides, reads)
    tides.heard("pipeline", 2)

    told = await asyncio.gather(*(feed.after(Cursor(1, 1)) for _ in range(1_000)))

    assert reads.count == 1
    assert len({id(each) for each in told}) == 1


async def test_another_stand_and_another_commit_are_read_for_themselves():
    tides = CommitSignals()
    reads = Reads(step(2))
    feed = Feed(QUESTION, tides, reads)

    await feed.after(Cursor(1, 1))
    await feed.after(Cursor(1, 2))
    tides.heard("pipeline")
    await feed.after(Cursor(1, 1))

    assert reads.count == 3


async def test_a_database_that_is_away_is_asked_until_it_answers():
    reads = Reads(psycopg.OperationalError("away"), psycopg.OperationalError("away"), step(1))

    told = await Feed(QUESTION, CommitSignals(), reads).after(Cursor(0, 0))

    assert (told.stand.txid, reads.count) == (1, 3)


async def test_a_state_that_is_gone_ends_it():
    reads = Reads(UnknownStateError("gone"))

    with pytest.raises(UnknownStateError):
        await Feed(QUESTION, CommitSignals(), reads).after(Cursor(0, 0))


async def test_a_store_that_does_not_show_the_commit_yet_is_looked_at_again():
    tides = CommitSignals()
    reads = Reads(step(1), step(1), step(2))
    tides.heard("pipeline", 2)

    told = await Feed(QUESTION, tides, reads).after(Cursor(1, 1))

    assert (told.stand.txid, reads.count) == (2, 3)
