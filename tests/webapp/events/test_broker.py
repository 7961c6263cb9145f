"""Which clients share a read, and that no commit between two reads is missed."""

import asyncio

import psycopg
import pytest

from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.webapp.events.broker import CommitSignals, SharedReads
from tidegauge.webapp.events.deltas import Cursor, Delta, EventId, frame
from tidegauge.webapp.events.stream import EventStream
from tidegauge.webapp.events.subscriptions import StateSubscription
from tidegauge.webapp.events.turns import Turns

pytestmark = pytest.mark.anyio

SUBSCRIPTION = StateSubscription("views", "pipeline")


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Reads:
    """Replaces reading in a thread: returns deltas or raises, and calls `during` with the read's number."""

    def __init__(self, *answers, during=lambda number: None):
        self.answers = list(answers)
        self.count = 0
        self.during = during

    async def __call__(self, read):
        self.count += 1
        answer = self.answers[min(self.count, len(self.answers)) - 1]
        await asyncio.sleep(0.01)
        self.during(self.count)
        if isinstance(answer, Exception):
            raise answer
        return answer


def delta(txid):
    return Delta([frame("batch", {"txid": txid}, EventId(txid, "e"))], Cursor(EventId(txid, "e"), 1))


async def authorized():
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


async def streamed(reads, signals, events):
    sent = Sent(events)
    shared = SharedReads(SUBSCRIPTION, signals, reads)
    sent.stream = EventStream(shared, signals, sent, None, authorized, lambda: Turns().take("one"))
    await asyncio.wait_for(sent.stream.run(), 3.0)
    return [int(body.split(b"id: ")[1].split(b"-")[0]) for body in sent.bodies if b"event: " in body]


async def test_a_commit_during_a_read_is_read_afterwards():
    signals = CommitSignals()
    # The first read has seen batch 1 when the commit of batch 2 is signalled.
    reads = Reads(delta(1), delta(2), during=lambda number: signals.committed("pipeline") if number == 1 else None)

    assert await streamed(reads, signals, events=2) == [1, 2]


async def test_a_resync_during_a_read_makes_the_stream_read_again():
    signals = CommitSignals()
    reads = Reads(delta(1), delta(2), during=lambda number: signals.resync() if number == 1 else None)

    assert await streamed(reads, signals, events=2) == [1, 2]


async def test_clients_with_equal_cursors_share_one_read_per_commit():
    signals = CommitSignals()
    reads = Reads(delta(2))
    shared = SharedReads(SUBSCRIPTION, signals, reads)
    signals.committed("pipeline", 2)

    deltas = await asyncio.gather(*(shared.after(Cursor(EventId(1, "e"), 1)) for _ in range(1_000)))

    assert reads.count == 1
    assert len({id(each) for each in deltas}) == 1


async def test_another_cursor_and_another_commit_are_read_separately():
    signals = CommitSignals()
    reads = Reads(delta(2))
    shared = SharedReads(SUBSCRIPTION, signals, reads)

    await shared.after(Cursor(EventId(1, "e"), 1))
    await shared.after(Cursor(EventId(1, "e"), 2))
    signals.committed("pipeline")
    await shared.after(Cursor(EventId(1, "e"), 1))

    assert reads.count == 3


async def test_an_unavailable_database_is_read_again_until_it_answers():
    reads = Reads(psycopg.OperationalError("unavailable"), psycopg.OperationalError("unavailable"), delta(1))

    read = await SharedReads(SUBSCRIPTION, CommitSignals(), reads).after(Cursor(EventId(0, "e"), 0))

    assert (read.cursor.txid, reads.count) == (1, 3)


async def test_a_dropped_state_raises():
    reads = Reads(UnknownStateError("dropped"))

    with pytest.raises(UnknownStateError):
        await SharedReads(SUBSCRIPTION, CommitSignals(), reads).after(Cursor(EventId(0, "e"), 0))


async def test_a_store_that_does_not_show_the_commit_yet_is_read_again():
    signals = CommitSignals()
    reads = Reads(delta(1), delta(1), delta(2))
    signals.committed("pipeline", 2)

    read = await SharedReads(SUBSCRIPTION, signals, reads).after(Cursor(EventId(1, "e"), 1))

    assert (read.cursor.txid, reads.count) == (2, 3)
