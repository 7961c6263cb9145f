"""What a listener is told, by a real server over a real database."""

import time
from datetime import timedelta

import pytest

from state_backends.maintenance import compact
from tests.state_backends.feed import views
from tests.webapp.events.conftest import HEARTBEAT_SECONDS
from tests.webapp.events.events_server import events_server
from tests.webapp.events.follower import commit, spec, views_feed

STATE = "/events/states/flights_by_carrier"


@pytest.fixture
def feed(transactional_db):
    with views_feed() as feed:
        commit(feed, a=1, b=1)
        yield feed


@pytest.fixture
def bare(transactional_db):
    """A state without a changelog."""
    with views_feed(spec(changelog=False)) as feed:
        commit(feed, a=1, b=1)
        yield feed


def states(feed, query=""):
    return f"/events/states/{feed.specs[0].name}{query}"


def told(event):
    """The changes of a batch, page to views; None where one is gone."""
    return {
        change["key"][0]: change["value"]["n"] if change["status"] == "found" else None
        for change in event.data["changes"]
    }


class TestAState:
    def test_it_is_followed_from_where_it_stands(self, flights, listen):
        listener = listen(STATE)

        ready = listener.next()
        flights.commit({("JFK", "C00"): 5})
        batch = listener.next(2.0)

        assert (ready.event, ready.id, ready.data["txid"]) == ("ready", 2, 2)
        assert (batch.event, batch.id) == ("batch", 3)
        assert {name: batch.data[name] for name in ("state", "txid", "complete")} == {
            "state": "flights_by_carrier",
            "txid": 3,
            "complete": True,
        }
        [change] = batch.data["changes"]
        assert (change["key"], change["status"], change["value"]["flights"]) == (["JFK", "C00"], "found", 105)

    def test_every_batch_is_told_even_one_that_changed_nothing(self, feed, listen):
        listener = listen(states(feed))
        listener.until("ready")

        commit(feed)
        commit(feed, a=2)

        assert [told(listener.next()), told(listener.next())] == [{}, {"a": 3}]

    def test_a_prefix_and_measures_narrow_it(self, flights, listen):
        listener = listen(STATE + '?prefix=["JFK"]&measures=flights,max_delay')
        listener.until("ready")

        flights.commit({("EWR", "C00"): 5, ("JFK", "C29"): 1})
        [change] = listener.next().data["changes"]

        assert (change["key"], set(change["value"])) == (["JFK", "C29"], {"flights", "max_delay"})

    def test_a_batch_wider_than_the_limit_is_told_without_its_changes(self, feed, listen, tmp_path):
        with events_server(tmp_path, TIDEMARK_EVENTS_MAX_CHANGES=2) as narrow:
            listener = listen(states(feed), at=narrow)
            listener.until("ready")
            commit(feed, a=1, b=1, c=1)

            batch = listener.next()

        assert (batch.data["complete"], batch.data["changes"]) == (False, [])

    def test_one_without_a_changelog_is_told_batch_by_batch_to_be_read_anew(self, bare, listen):
        listener = listen(states(bare))
        listener.until("ready")

        commit(bare, a=1)
        commit(bare, a=1)

        batches = [listener.next(), listener.next()]
        assert [(batch.id, batch.data["complete"], batch.data["changes"]) for batch in batches] == [
            (2, False, []),
            (3, False, []),
        ]


class TestKeys:
    @pytest.mark.parametrize("declared", ["feed", "bare"])
    def test_they_are_told_as_they_are_then_whenever_they_change(self, declared, request, listen):
        feed = request.getfixturevalue(declared)
        listener = listen(states(feed, '?keys=[["a"],"nope"]'))

        snapshot = listener.next()
        commit(feed, b=5)
        commit(feed, a=5)
        batch = listener.next()

        assert (snapshot.event, snapshot.id, snapshot.data["txid"]) == ("snapshot", 1, 1)
        assert snapshot.data["results"] == [
            {"key": ["a"], "status": "found", "value": {"n": 1}},
            {"key": ["nope"], "status": "missing", "value": None},
        ]
        assert (batch.event, batch.id, told(batch), batch.data["complete"]) == ("batch", 3, {"a": 6}, True)

    def test_batches_that_do_not_concern_them_move_the_last_id_on_all_the_same(self, feed, listen):
        listener = listen(states(feed, '?keys=["a"]'))
        listener.until("snapshot")

        txid = commit(feed, b=5)

        assert listener.no_more(2 * HEARTBEAT_SECONDS)
        assert listener.last_id == txid

    def test_keys_of_a_state_without_a_changelog_that_come_again_get_a_new_snapshot(self, bare, listen):
        commit(bare, a=1)

        reset = listen(states(bare, '?keys=["a"]'), headers={"Last-Event-ID": 1}).next()

        assert (reset.event, reset.id) == ("reset", 2)
        assert reset.data["results"] == [{"key": ["a"], "status": "found", "value": {"n": 2}}]
        assert "no changelog" in reset.data["reason"]


class TestResuming:
    def test_every_batch_since_comes_in_order_then_what_is_new(self, feed, listen):
        for _ in range(45):
            commit(feed, a=1)
        listener = listen(states(feed), headers={"Last-Event-ID": 1})

        ready = listener.next()
        caught_up = [listener.next() for _ in range(45)]
        commit(feed, b=9)
        live = listener.next()

        assert (ready.event, ready.id, ready.data["resumed"]) == ("ready", 1, True)
        assert [(batch.id, told(batch)) for batch in caught_up] == [(n, {"a": n}) for n in range(2, 47)]
        assert (live.id, told(live)) == (47, {"b": 10})

    def test_who_missed_nothing_goes_on(self, bare, listen):
        listener = listen(states(bare), headers={"Last-Event-ID": 1})

        ready = listener.next()
        commit(bare, a=1)

        assert (ready.event, ready.data["resumed"], listener.next().id) == ("ready", True, 2)

    @pytest.mark.parametrize(
        ("since", "last", "reason"),
        [
            (lambda feed: None, 7, "not committed"),
            (lambda feed: feed.run(views(("a", 5)), batch_id=0), 1, "replayed"),
            (lambda feed: [commit(feed, a=1), commit(feed, a=1), compacted(feed)], 1, "no longer on hand"),
        ],
    )
    def test_who_cannot_be_told_what_was_missed_is_reset(self, feed, listen, since, last, reason):
        since(feed)
        listener = listen(states(feed), headers={"Last-Event-ID": last})

        reset = listener.next()
        txid = commit(feed, a=1)

        assert (reset.event, reset.id, reset.data["txid"]) == ("reset", txid - 1, txid - 1)
        assert reason in reset.data["reason"]
        assert listener.next().id == txid

    def test_a_state_without_a_changelog_resets_who_missed_something(self, bare, listen):
        commit(bare, a=1)

        reset = listen(states(bare), headers={"Last-Event-ID": 1}).next()

        assert (reset.event, reset.id) == ("reset", 2)

    def test_who_missed_too_many_batches_is_reset(self, feed, listen, tmp_path):
        for _ in range(4):
            commit(feed, a=1)
        with events_server(tmp_path, TIDEMARK_EVENTS_MAX_BATCHES=3) as short:
            far = listen(states(feed), at=short, headers={"Last-Event-ID": 1}).next()
            near = listen(states(feed), at=short, headers={"Last-Event-ID": 2}).next()

        assert (far.event, near.event) == ("reset", "ready")
        assert "more than 3 batches" in far.data["reason"]

    def test_an_id_that_no_event_had_is_refused(self, feed, listen):
        problem = listen(states(feed), headers={"Last-Event-ID": "yesterday"}).problem()

        assert (problem["status"], "yesterday" in problem["detail"]) == (400, True)


class TestReplays:
    @pytest.mark.parametrize("query", ["", '?keys=["a","b"]'])
    @pytest.mark.parametrize("declared", ["feed", "bare"])
    def test_a_batch_that_was_committed_again_reaches_listeners_as_a_reset(self, declared, query, request, listen):
        feed = request.getfixturevalue(declared)
        listener = listen(states(feed, query))
        listener.next()

        feed.run(views(("b", 3)), batch_id=0)
        reset = listener.until("reset")

        assert (reset.id, reset.data["txid"]) == (1, 1)
        if query:
            assert [result["status"] for result in reset.data["results"]] == ["missing", "found"]

    def test_a_state_that_was_declared_anew_reaches_them_as_one_too(self, feed, listen):
        listener = listen(states(feed))
        listener.next()

        feed.conn.execute("UPDATE tidemark.state SET version = version + 1 WHERE name = %s", [feed.specs[0].name])
        commit(feed, a=1)

        assert "anew" in listener.until("reset").data["reason"]

    def test_a_state_that_is_dropped_ends_its_streams(self, feed, listen):
        listener = listen(states(feed))
        listener.next()

        feed.conn.execute("DELETE FROM tidemark.state WHERE name = %s", [feed.specs[0].name])
        commit(feed, a=1)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)


class TestTheLine:
    def test_it_is_kept_warm_and_says_when_to_come_again(self, feed, listen):
        listener = listen(states(feed))

        listener.next()
        assert listener.no_more(3 * HEARTBEAT_SECONDS)

        assert listener.comments >= 2
        assert 1_000 <= listener.retry_ms <= 3_000

    def test_nothing_on_the_way_may_keep_it(self, feed, listen):
        listener = listen(states(feed))

        assert listener.status == 200
        assert listener.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.headers["cache-control"] == "no-store"
        assert listener.headers["x-accel-buffering"] == "no"

    def test_a_server_that_stops_ends_its_streams_in_good_order(self, feed, listen, tmp_path):
        with events_server(tmp_path) as server:
            listener = listen(states(feed), at=server)
            listener.next()
            started = time.monotonic()
            server.process.stop()
            seconds = time.monotonic() - started

        with pytest.raises(EOFError, match="the stream has ended"):
            listener.next()
        assert (server.process.exit_code(), seconds < 5.0) == (0, True)


def compacted(feed):
    list(compact(feed.conn, feed.specs[0], keep=timedelta()))
