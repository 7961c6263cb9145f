"""Entries and histories of a client, and what else it reads."""

import pytest

from tests.webapp.events.follower import commit, spec, views_feed
from tests.webapp.flights import FIRST_HOUR
from tidegauge.client import (
    AuthenticationError,
    BatchDocument,
    ConflictError,
    DeadlineError,
    ForbiddenError,
    NotFoundError,
    PagesGoneError,
    PipelineDocument,
    RequestError,
    Run,
    StateDocument,
)
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import documents
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance.services import run_maintenance


def flights_of(entries):
    return [entry.value["flights"] for entry in entries]


def test_entries_are_followed_over_pages(reading):
    entries = list(reading.state("flights_by_carrier").entries(page_size=7))

    assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)
    assert len(entries) == 60
    assert entries[0].key == ("EWR", "C00")
    assert entries[0].txid == 2
    assert entries[0].updated_at.tzinfo is not None


def test_a_page_names_its_batch(reading):
    [first, second] = reading.state("flights_by_carrier").pages(prefix="JFK", page_size=20, at_txid="committed")

    assert (len(first), len(second), first.txid, second.txid) == (20, 10, 2, 2)
    assert second.next is None
    assert first.epoch == second.epoch


def test_the_top_keys_come_first(reading):
    top = reading.state("flights_by_carrier").entries(order_by="-flights", measures=["flights"], limit=3)

    assert flights_of(top) == [1100, 100, 99]


def test_a_limit_may_be_more_than_a_page(reading):
    assert len(list(reading.state("flights_by_carrier").entries(limit=45, page_size=20))) == 45
    assert list(reading.state("flights_by_carrier").entries(limit=0)) == []


@pytest.mark.parametrize(
    ("range", "count"),
    [
        ({"prefix": "JFK"}, 30),
        ({"prefix": ["JFK"]}, 30),
        ({"start": ("JFK",)}, 30),
        ({"stop": "JFK"}, 30),
        ({"start": ("EWR", "C28"), "stop": ("JFK", "C02")}, 4),
        ({"search": "c0"}, 20),
        ({"at_txid": 1}, 60),
    ],
)
def test_a_range_of_entries(reading, range, count):
    assert len(list(reading.state("flights_by_carrier").entries(**range))) == count


@pytest.mark.parametrize("where", ["flights>=99", ["flights>=99"], ["flights>98", "flights<2000"]])
def test_entries_are_filtered_by_values(reading, where):
    found = reading.state("flights_by_carrier").entries(where=where, page_size=3)

    assert sorted(flights_of(found)) == [99, 99, 100, 1100]


def test_a_bound_is_a_value_of_its_column(reading):
    [entry] = reading.state("flights_by_hour").entries(prefix=FIRST_HOUR, limit=1)

    assert entry.key == (FIRST_HOUR, "EWR")


def test_pages_whose_batch_is_gone_are_an_error(web, connect):
    with views_feed(spec(changelog=False)) as feed:
        commit(feed, a=1, b=2)
        pages = connect(web.url).state(feed.specs[0].name).pages(order_by="n", page_size=1)
        next(pages)
        for _ in range(3):
            commit(feed, a=1)

        with pytest.raises(PagesGoneError, match="start again without a cursor"):
            list(pages)


def test_a_history_has_the_newest_version_first(reading):
    history = reading.state("flights_by_carrier").history(("EWR", "C00"))

    assert [(version.txid, version.status, version.value["flights"]) for version in history] == [
        (2, "found", 1100),
        (1, "found", 100),
    ]
    assert (history.key, history.complete, history.txid) == (("EWR", "C00"), True, 2)
    state = reading.state("flights_by_carrier")
    newest = state.history(("EWR", "C00"), limit=1)
    assert [version.txid for version in state.history(("EWR", "C00"), cursor=newest.next)] == [1]


def test_states_pipelines_and_batches_are_listed(reading):
    assert {state["name"] for state in reading.states()} == {"flights_by_carrier", "flights_by_hour", "totals"}
    assert reading.state("totals").info()["measures"]["flights"]["type"] == "bigint"
    assert [pipeline["name"] for pipeline in reading.pipelines()] == ["flights"]
    assert reading.pipeline("flights")["committed_txid"] == 2
    assert [batch["txid"] for batch in reading.batches("flights")] == [2, 1]


def test_a_parameter_that_is_wrong_is_an_error(reading):
    with pytest.raises(RequestError, match="measure"):
        next(reading.state("flights_by_carrier").entries(order_by="nothing"))


@pytest.mark.parametrize(("key", "error"), [("tmk_wrong", AuthenticationError), ("", AuthenticationError)])
def test_without_a_valid_key_nothing_is_read(web, flights, connect, key, error):
    with pytest.raises(error):
        connect(web.url, key).states()


def test_a_key_confined_to_another_state_is_refused(web, flights, connect):
    _, key = create_api_key("confined", ["read"], states=["totals"])

    with pytest.raises(ForbiddenError, match="flights_by_carrier"):
        connect(web.url, key).state("flights_by_carrier").get(("JFK", "C01"))


def test_pausing_takes_the_scope(web, flights, connect, client):
    _, key = create_api_key("keeper", ["read", "maintain"])
    keeper = connect(web.url, key)

    assert keeper.pause("flights")["wanted"] == "paused"
    assert keeper.resume("flights")["wanted"] == "running"
    with pytest.raises(ForbiddenError):
        client.pause("flights")


class TestMaintenance:
    @pytest.fixture
    def keeper(self, web, flights, connect):
        app.control.purge()
        yield connect(web.url, create_api_key("keeper", ["read", "maintain"])[1])
        app.control.purge()

    def test_a_run_is_requested_and_waited_for(self, keeper):
        requested = keeper.state("totals").compact()
        with pytest.raises(DeadlineError, match="is still queued after 0 s"):
            keeper.wait_for(requested["id"], seconds=0)
        run_maintenance(requested["id"])

        done = keeper.wait_for(requested["id"])

        assert (done["status"], done["kind"], done["state"]) == ("done", "compaction", "totals")
        assert keeper.run(done["id"]) == done
        assert keeper.runs(state="totals", status="done") == [done]

    def test_a_run_is_cancelled_and_a_second_one_refused(self, keeper):
        run = keeper.state("totals").expire()

        with pytest.raises(ConflictError, match="is queued already"):
            keeper.state("totals").compact()
        assert keeper.cancel(run["id"])["status"] == "cancelled"
        assert keeper.wait_for(run["id"])["status"] == "cancelled"

    def test_an_unknown_run_is_an_error(self, keeper):
        with pytest.raises(NotFoundError):
            keeper.cancel(123_456)


def members(serializer):
    return set(serializer().fields)


@pytest.mark.parametrize(
    ("described", "serializer"),
    [
        (StateDocument, documents.StateSerializer),
        (PipelineDocument, documents.PipelineSerializer),
        (BatchDocument, documents.BatchSerializer),
        (Run, documents.RunSerializer),
    ],
)
def test_what_a_document_promises_is_in_the_answers(described, serializer):
    assert set(described.__annotations__) <= members(serializer)
