"""Event streams of a client, from a real events process that is restarted, loses connections, and refuses."""

import re

import pytest

from tests.harness.waiting import eventually
from tests.soak.proxy import Proxy
from tests.webapp.events.events_server import events_server
from tests.webapp.events.follower import commit, spec, views_feed
from tests.webapp.flights import FIRST_HOUR
from tests.webapp.web_server import all_of, asked
from tidegauge.client import (
    AuthenticationError,
    Batch,
    NoAnswerError,
    NotFoundError,
    OtherEvent,
    Pipelines,
    Ready,
    RequestError,
    Reset,
    Result,
    Snapshot,
    Tide,
    UnavailableError,
)
from tidegauge.client.events import Lines
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key


@pytest.fixture
def events(events_process):
    return events_process


@pytest.fixture
def proxy(events):
    proxy = Proxy(events.port)
    yield proxy
    proxy.close()


@pytest.fixture
def following(web, proxy, connect, api_key):
    """A client whose event streams can be cut."""
    return connect(web.url, events_url=f"http://127.0.0.1:{proxy.port}")


@pytest.fixture
def views():
    with views_feed() as feed:
        commit(feed, a=1)
        yield feed


def test_keys_are_followed_as_typed_values(web, events, flights, connect):
    client = connect(web.url, events_url=events.url)
    stream = client.watch("flights_by_carrier", keys=[("JFK", "C01")], measures="flights")

    first = next(stream)
    flights.commit({("JFK", "C01"): 5})
    second = next(stream)

    assert isinstance(first, Snapshot)
    assert (first.txid, first.results) == (2, [Result(("JFK", "C01"), "found", {"flights": 99})])
    assert isinstance(second, Batch)
    assert (second.txid, second.complete, second.epoch) == (3, True, first.epoch)
    assert second.changes == [Result(("JFK", "C01"), "found", {"flights": 104})]
    assert (second.id, second.batch_time.tzinfo is None) == (f"3-{first.epoch}", False)


def test_a_prefix_is_followed(web, events, flights, connect):
    stream = connect(web.url, events_url=events.url).watch("flights_by_carrier", prefix="JFK", measures=["flights"])

    ready = next(stream)
    flights.commit({("JFK", "C01"): 5, ("EWR", "C01"): 5})

    assert isinstance(ready, Ready)
    assert (ready.state, ready.txid, ready.resumed) == ("flights_by_carrier", 2, False)
    assert [change.key for change in next(stream).changes] == [("JFK", "C01")]


def test_key_parts_are_values_of_their_columns(web, events, flights, connect):
    stream = connect(web.url, events_url=events.url).watch("flights_by_hour", keys=[(FIRST_HOUR, "JFK")])

    assert next(stream).results == [Result((FIRST_HOUR, "JFK"), "found", {"flights": 1})]


def test_the_batches_of_all_pipelines_are_followed(web, events, flights, connect):
    stream = connect(web.url, events_url=events.url).events("/tide")

    first = next(stream)
    flights.commit({("JFK", "C01"): 5})

    assert isinstance(first, Pipelines)
    assert first.txids == {"flights": 2}
    assert next(stream) == Tide("", "flights", 3)


def test_a_dropped_stream_goes_on_without_a_gap(following, proxy, views):
    stream = following.watch(views.specs[0].name)
    assert next(stream).txid == 1
    for number in range(2, 5):
        commit(views, a=1)
        assert next(stream).txid == number
        proxy.cut()
        commit(views, b=1)

        assert next(stream).resumed is True
        missed = next(stream)
        assert (missed.txid, missed.changes[0].key) == (number + 1, ("b",))
        if number == 2:
            break


def test_a_stream_survives_a_restart_of_its_server(web, events, connect, views):
    stream = connect(web.url, events_url=events.url).watch(views.specs[0].name, keys=["a", "b"])
    assert [result.status for result in next(stream).results] == ["found", "missing"]

    with events.stopped():
        commit(views, b=2)
    received = [next(stream), next(stream)]

    assert isinstance(received[0], Ready)
    assert received[1].changes == [Result(("b",), "found", {"n": 2})]


def test_a_later_client_goes_on_after_the_last_event_that_was_seen(following, views):
    name = views.specs[0].name
    seen = next(following.watch(name)).id
    commit(views, a=1)

    stream = following.watch(name, last_id=seen)

    assert [type(event) for event in (next(stream), next(stream))] == [Ready, Batch]


def test_what_cannot_be_resumed_is_a_reset(following, proxy):
    with views_feed(spec(changelog=False)) as feed:
        commit(feed, a=1)
        stream = following.watch(feed.specs[0].name, keys=["a"])
        next(stream)
        proxy.cut()
        commit(feed, a=2)

        reset = next(stream)

        assert isinstance(reset, Reset)
        assert "no changelog" in reset.reason
        assert reset.results == [Result(("a",), "found", {"n": 3})]


def test_a_reset_of_a_whole_state_says_to_read_it_again(following, proxy):
    with views_feed(spec(changelog=False)) as feed:
        commit(feed, a=1)
        stream = following.watch(feed.specs[0].name)
        next(stream)
        proxy.cut()
        commit(feed, a=2)

        reset = next(stream)

        assert (type(reset), reset.results, reset.txid) == (Reset, None, 2)


def test_a_stream_ends_with_an_error_once_its_key_is_revoked(web, events, views, connect):
    key, secret = create_api_key("leaving", ["read"])
    stream = connect(web.url, secret, events_url=events.url).watch(views.specs[0].name)
    next(stream)

    revoke_api_key(key)

    with pytest.raises(AuthenticationError):
        next(stream)


def test_an_unknown_state_is_an_error(following, views):
    with pytest.raises(NotFoundError):
        next(following.watch("nothing"))


def test_a_wrong_key_is_an_error(following, views):
    with pytest.raises(RequestError, match="expected 1 part"):
        next(following.watch(views.specs[0].name, keys=[("a", "b")]))


def test_keys_and_a_prefix_exclude_each_other(following):
    with pytest.raises(ValueError, match="exclude each other"):
        next(following.watch("views", keys=["a"], prefix="a"))


def test_an_events_process_that_was_never_there_is_an_error(following, proxy, views):
    proxy.target = None

    with pytest.raises(NoAnswerError):
        next(following.with_options(retries=1).watch(views.specs[0].name))


@pytest.fixture(scope="module")
def small_process(django_db_setup, django_db_blocker, tmp_path_factory):
    """An events process with room for one client."""
    settings = {"TIDEGAUGE_EVENTS_MAX_CLIENTS": 1, "TIDEGAUGE_API_KEY_CACHE_SECONDS": 0}
    with django_db_blocker.unblock(), events_server(tmp_path_factory.mktemp("small"), **settings) as server:
        yield server


def clients_of(process):
    with asked(process.port, "/metrics") as client:
        return re.search(rb"tidegauge_sse_clients (\d+)", all_of(client))[1]


def test_an_events_process_without_room_is_an_error_by_name(web, small_process, connect, views):
    # That of the other client may not have ended yet.
    eventually(lambda: clients_of(small_process) == b"0")
    first = connect(web.url, events_url=small_process.url).watch(views.specs[0].name)
    next(first)

    with pytest.raises(UnavailableError) as caught:
        next(connect(web.url, events_url=small_process.url, retries=0).watch(views.specs[0].name))

    assert caught.value.retry_after == 15
    first.close()


class TestLines:
    STREAM = (
        b"retry: 1500\n\n: still here\n\nevent: batch\nid: 3-e\ndata: {}\n\nid: 4-e\n\n"
        + "data: a\u2028b\r\ndata: c\r\n\r\nid\n\n".encode()
    )

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
    def test_are_read_in_pieces_of_any_size(self, size):
        lines = Lines()

        pieces = [self.STREAM[start : start + size] for start in range(0, len(self.STREAM), size)]
        messages = [message for piece in pieces for message in lines.messages(piece)]

        assert [(each.name, each.data, each.id) for each in messages] == [
            ("message", "", ""),
            ("message", "", ""),
            ("batch", "{}", "3-e"),
            ("message", "", "4-e"),
            ("message", "a\u2028b\nc", "4-e"),
            ("message", "", ""),
        ]
        assert lines.retry_seconds == 1.5

    def test_an_event_that_is_cut_off_is_none(self):
        assert Lines().messages(b"event: batch\ndata: {}\n") == []


def test_an_event_of_a_later_server_is_passed_on(following):
    from tidegauge.client.events import AS_IN_JSON, Message, _event

    event = _event(Message("later", '{"x": 1}', "7-e"), {"x": 1}, AS_IN_JSON)

    assert event == OtherEvent("7-e", "later", {"x": 1})
