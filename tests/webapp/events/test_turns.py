"""Fairness: in which order clients are served when one API key has very many of them."""

import asyncio

import pytest

from tests.webapp.events.test_broker import Reads, authorized, delta
from tidegauge.webapp.events.broker import CommitSignals, SharedReads
from tidegauge.webapp.events.stream import EventStream
from tidegauge.webapp.events.subscriptions import StateSubscription
from tidegauge.webapp.events.turns import SLICE, Turns

pytestmark = pytest.mark.anyio

MANY = 500


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_callers_take_turns_however_many_clients_each_has():
    turns, order = Turns(), []

    async def served(caller: str, number: int) -> None:
        await turns.take(caller)
        order.append((caller, number))

    clients = [served("many", number) for number in range(MANY)] + [served("one", 0), served("another", 0)]
    await asyncio.gather(*clients)

    assert set(order[:3]) == {("many", 0), ("one", 0), ("another", 0)}
    assert [number for caller, number in order if caller == "many"] == list(range(MANY))


async def test_between_two_slices_whatever_else_is_ready_goes_on():
    turns, order = Turns(), []

    async def served(number: int) -> None:
        await turns.take("many")
        order.append(number)

    async def other() -> None:
        for _ in range(5):
            order.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(*(served(number) for number in range(MANY)), other())

    places = [place for place, each in enumerate(order) if each == "other"]
    assert places[-1] < 6 * SLICE


async def test_a_client_that_has_gone_gives_its_turn_to_the_next():
    turns = Turns()
    gone, stays = asyncio.create_task(turns.take("a")), asyncio.create_task(turns.take("a"))
    await asyncio.sleep(0)
    gone.cancel()

    await stays


class Sends:
    """The order in which clients were sent their batch."""

    def __init__(self, clients: int) -> None:
        self.order: list[str] = []
        self.all_sent = asyncio.Event()
        self._clients = clients

    def of(self, name: str):
        async def send(message):
            if b"event: batch" in message["body"]:
                self.order.append(name)
            if len(self.order) == self._clients:
                self.all_sent.set()

        return send


async def test_a_commit_for_another_key_is_not_sent_behind_those_of_one_with_many_streams():
    signals, turns, sends = CommitSignals(), Turns(), Sends(MANY + 1)
    many = SharedReads(StateSubscription("views", "many"), signals, Reads(delta(1), delta(2)))
    one = SharedReads(StateSubscription("clicks", "one"), signals, Reads(delta(1), delta(2)))
    streams = [
        EventStream(many, signals, sends.of("many"), None, authorized, lambda: turns.take("key many"))
        for _ in range(MANY)
    ]
    streams.append(EventStream(one, signals, sends.of("one"), None, authorized, lambda: turns.take("key one")))
    running = [asyncio.create_task(stream.run()) for stream in streams]
    await sends.all_sent.wait()
    sends.order.clear()
    sends.all_sent.clear()

    signals.committed("many", 2)
    signals.committed("one", 2)
    await sends.all_sent.wait()
    for stream in streams:
        stream.end()
    await asyncio.gather(*running)

    # Both reads end at about the same time.
    assert sends.order.index("one") <= 4 * SLICE
