"""The events that a client gets, from a real events process over a real database."""

import time
from datetime import timedelta

import pytest

from tests.state_backends.feed import views
from tests.webapp.events.conftest import epoch
from tests.webapp.events.follower import commit, spec, views_feed
from tests.webapp.processes import HEARTBEAT_SECONDS
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.maintenance import compact

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


def changed(event):
    """The changes of a batch, page to views; None if the page was removed."""
    return {
        change["key"][0]: change["value"]["n"] if change["status"] == "found" else None
        for change in event.data["changes"]
    }


class TestAState:
    def test_it_is_followed_from_its_last_batch_on(self, flights, listen):
        listener = listen(STATE)

        ready = listener.next()
        flights.commit({("JFK", "C00"): 5})
        batch = listener.next()

        assert (ready.event, ready.id, ready.data["txid"]) == ("ready", 2, 2)
        assert (batch.event, batch.id) == ("batch", 3)
        assert {name: batch.data[name] for name in ("state", "txid", "complete")} == {
            "state": "flights_by_carrier",
            "txid": 3,
            "complete": True,
        }
        [change] = batch.data["changes"]
        assert (change["key"], change["status"], change["value"]["flights"]) == (["JFK", "C00"], "found", 105)

    def test_every_batch_is_sent_even_one_that_changed_nothing(self, feed, listen):
        listener = listen(states(feed))
        listener.until("ready")

        commit(feed)
        commit(feed, a=2)

        assert [changed(listener.next()), changed(listener.next())] == [{}, {"a": 3}]

    def test_a_prefix_and_measures_restrict_it(self, flights, listen):
        listener = listen(STATE + '?prefix=["JFK"]&measures=flights,max_delay')
        listener.until("ready")

        flights.commit({("EWR", "C00"): 5, ("JFK", "C29"): 1})
        [change] = listener.next().data["changes"]

        assert (change["key"], set(change["value"])) == (["JFK", "C29"], {"flights", "max_delay"})

    def test_a_batch_over_the_limit_is_sent_without_its_changes(self, feed, listen, narrow):
        listener = listen(states(feed), at=narrow)
        listener.until("ready")
        commit(feed, a=1, b=1, c=1)

        batch = listener.next()

        assert (batch.data["complete"], batch.data["changes"]) == (False, [])

    def test_without_a_changelog_every_batch_is_sent_as_incomplete(self, bare, listen):
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
    def test_they_are_sent_with_their_values_whenever_they_change(self, declared, request, listen):
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
        assert (batch.event, batch.id, changed(batch), batch.data["complete"]) == ("batch", 3, {"a": 6}, True)

    def test_batches_without_a_change_of_them_advance_the_last_id(self, feed, listen):
        listener = listen(states(feed, '?keys=["a"]'))
        listener.until("snapshot")

        txid = commit(feed, b=5)

        assert listener.no_more(2 * HEARTBEAT_SECONDS)
        assert listener.last_id == txid

    def test_without_a_changelog_a_client_that_resumes_gets_a_new_snapshot(self, bare, listen):
        commit(bare, a=1)

        reset = listen(states(bare, '?keys=["a"]'), headers={"Last-Event-ID": 1}).next()

        assert (reset.event, reset.id) == ("reset", 2)
        assert reset.data["results"] == [{"key": ["a"], "status": "found", "value": {"n": 2}}]
        assert "no changelog" in reset.data["reason"]


class TestResuming:
    @pytest.mark.core
    def test_missed_batches_come_in_order_then_new_ones(self, feed, listen):
        for _ in range(45):
            commit(feed, a=1)
        listener = listen(states(feed), headers={"Last-Event-ID": 1})

        ready = listener.next()
        caught_up = [listener.next() for _ in range(45)]
        commit(feed, b=9)
        live = listener.next()

        assert (ready.event, ready.id, ready.data["resumed"]) == ("ready", 1, True)
        assert [(batch.id, changed(batch)) for batch in caught_up] == [(n, {"a": n}) for n in range(2, 47)]
        assert (live.id, changed(live)) == (47, {"b": 10})

    def test_a_client_that_missed_nothing_continues(self, bare, listen):
        listener = listen(states(bare), headers={"Last-Event-ID": 1})

        ready = listener.next()
        commit(bare, a=1)

        assert (ready.event, ready.data["resumed"], listener.next().id) == ("ready", True, 2)

    @pytest.mark.parametrize(
        ("since", "last", "reason"),
        [
            (lambda feed: None, 7, "not committed"),
            (lambda feed: feed.run(views(("a", 5)), batch_id=0), 1, "replayed"),
            (lambda feed: [commit(feed, a=1), commit(feed, a=1), compacted(feed)], 1, "no longer"),
        ],
    )
    def test_a_client_whose_missed_batches_are_not_available_is_reset(self, feed, listen, since, last, reason):
        since(feed)
        listener = listen(states(feed), headers={"Last-Event-ID": last})

        reset = listener.next()
        txid = commit(feed, a=1)

        assert (reset.event, reset.id, reset.data["txid"]) == ("reset", txid - 1, txid - 1)
        assert reason in reset.data["reason"]
        assert listener.next().id == txid

    def test_without_a_changelog_a_client_that_missed_a_batch_is_reset(self, bare, listen):
        commit(bare, a=1)

        reset = listen(states(bare), headers={"Last-Event-ID": 1}).next()

        assert (reset.event, reset.id) == ("reset", 2)

    def test_a_client_that_missed_too_many_batches_is_reset(self, feed, listen, narrow):
        for _ in range(4):
            commit(feed, a=1)

        far = listen(states(feed), at=narrow, headers={"Last-Event-ID": 1}).next()
        near = listen(states(feed), at=narrow, headers={"Last-Event-ID": 2}).next()

        assert (far.event, near.event) == ("reset", "ready")
        assert "more than 3 batches" in far.data["reason"]

    @pytest.mark.parametrize("text", ["yesterday", "-1", "1e3", "9" * 20, str(2**63 - 1), "\u0661"])
    def test_an_invalid_last_event_id_is_refused(self, feed, listen, text):
        problem = listen(states(feed), headers={"Last-Event-ID": text.encode().decode("latin-1")}).problem()

        assert (problem["status"], "must be the id of an event" in problem["detail"]) == (400, True)

    def test_the_largest_last_event_id_is_answered(self, feed, listen):
        assert listen(states(feed), headers={"Last-Event-ID": 2**63 - 2}).next().event == "reset"


class TestEpochs:
    def test_events_name_the_epoch_and_have_it_in_their_ids(self, feed, listen):
        listener = listen(states(feed))

        ready = listener.next()
        commit(feed, a=1)
        batch = listener.next()

        assert ready.data["epoch"] == batch.data["epoch"] == epoch()
        assert listener.last_event_id == f"2-{epoch()}"

    @pytest.mark.parametrize("query", ["", '?keys=["a"]'])
    @pytest.mark.parametrize("declared", ["feed", "bare"])
    def test_a_client_that_stays_is_reset_when_the_ledger_has_gone_back(self, declared, query, request, listen):
        feed = request.getfixturevalue(declared)
        listener = listen(states(feed, query))
        listener.next()

        with feed.conn.transaction():  # so that the web process cannot see the epoch before the batch
            now = new_epoch(feed.conn, "restored", feed.pipeline)
            txid = commit(feed, a=1)
        reset = listener.next()

        assert (reset.event, reset.id, reset.data["epoch"]) == ("reset", txid, now)
        assert reset.data["reason"] == "batch 1 is of another epoch: the ledger went back and reuses its batch numbers"

    @pytest.mark.parametrize("query", ["", '?keys=["a"]'])
    @pytest.mark.parametrize("last_id", ["1-of another epoch", "1"])
    def test_a_client_that_comes_back_with_an_id_of_another_epoch_is_reset(self, feed, listen, query, last_id):
        reset = listen(states(feed, query), headers={"Last-Event-ID": last_id}).next()

        assert (reset.event, reset.id, "another epoch" in reset.data["reason"]) == ("reset", 1, True)


class TestReplays:
    @pytest.mark.parametrize("query", ["", '?keys=["a","b"]'])
    @pytest.mark.parametrize("declared", ["feed", "bare"])
    def test_a_batch_that_is_committed_again_resets_the_clients(self, declared, query, request, listen):
        feed = request.getfixturevalue(declared)
        listener = listen(states(feed, query))
        listener.next()

        feed.run(views(("b", 3)), batch_id=0)
        reset = listener.until("reset")

        assert (reset.id, reset.data["txid"]) == (1, 1)
        if query:
            assert [result["status"] for result in reset.data["results"]] == ["missing", "found"]

    def test_a_redeclared_state_resets_the_clients(self, feed, listen):
        listener = listen(states(feed))
        listener.next()

        feed.conn.execute("UPDATE tidegauge.state SET version = version + 1 WHERE name = %s", [feed.specs[0].name])
        commit(feed, a=1)

        assert "declared" in listener.until("reset").data["reason"]

    def test_the_streams_of_a_dropped_state_end(self, feed, listen):
        listener = listen(states(feed))
        listener.next()

        feed.conn.execute("DELETE FROM tidegauge.state WHERE name = %s", [feed.specs[0].name])
        commit(feed, a=1)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)


class TestConnection:
    def test_it_sends_heartbeats_and_a_retry_delay(self, feed, listen):
        listener = listen(states(feed))

        listener.next()
        assert listener.no_more(3 * HEARTBEAT_SECONDS)

        assert listener.comments >= 2
        assert 1_000 <= listener.retry_ms <= 3_000

    def test_the_headers_forbid_caching_and_buffering(self, feed, listen):
        listener = listen(states(feed))

        assert listener.status == 200
        assert listener.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.headers["cache-control"] == "no-store"
        assert listener.headers["x-accel-buffering"] == "no"

    def test_a_server_that_stops_ends_its_streams_in_order(self, feed, listen, server):
        listener = listen(states(feed))
        listener.next()
        started = time.monotonic()
        with server.stopped():
            seconds, code = time.monotonic() - started, server.process.exit_code()

        with pytest.raises(EOFError, match="the stream has ended"):
            listener.next()
        assert (code, seconds < 5.0) == (0, True)


def compacted(feed):
    list(compact(feed.conn, feed.specs[0], keep=timedelta()))
