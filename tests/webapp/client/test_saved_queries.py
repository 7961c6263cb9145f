"""Saved queries of a client: run with typed parameters, in a version, over pages, as a table, and what is refused."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.webapp.api.saved_queries.published import SHARE, TOP, published
from tests.webapp.client.scripted_server import answer, scripted_server
from tests.webapp.flights import FIRST_HOUR
from tidegauge.client import (
    BatchGoneError,
    Entry,
    ForbiddenError,
    GoneError,
    InvalidArgumentError,
    NotCommittedError,
    NotFoundError,
    RequestError,
    SavedQueryDocument,
)
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api.saved_queries.answers import SavedQuerySerializer
from tidegauge.webapp.api.saved_queries.services import create_version, publish, withdraw

ALL = {
    "parameters": {"origin": {"type": "text"}},
    "reads": [{**TOP["reads"][0], "where": [], "order_by": "", "limit": 12}],
}
KEY = {"parameters": {"hour": {"type": "timestamptz"}}, "reads": [
    {"state": "flights_by_hour", "keys": [["{hour}", "JFK"], ["{hour}", "LGA"]]}]}  # fmt: skip
TOTAL = {"reads": [{"state": "totals", "keys": [[]]}]}


def test_entries_are_typed_and_name_their_batch(client):
    published()

    found = client.saved_query("top").run({"origin": "EWR", "least": 99})

    [page] = found.answers
    assert (found.query, found.version, found.txid, page.txid) == ("top", 1, 2, 2)
    assert [(entry.key, entry.value) for entry in page] == [
        (("EWR", "C00"), {"flights": 1100}),
        (("EWR", "C01"), {"flights": 99}),
    ]
    assert found.epoch == page.epoch
    assert found.batch_time.tzinfo is not None


def test_reads_of_several_states_are_answers_in_their_order(client):
    published("share", SHARE)

    found = client.saved_query("share").run({"carrier": ["C01", "C02"]})

    totals, combined, entries = found.answers
    assert totals.found == {(): {"flights": 6130}}
    assert (combined.combined.keys, combined.combined.value["flights"]) == (4, 2 * (99 + 98))
    assert (len(entries), entries.next) == (4, None)
    assert combined.table() == [combined.combined.value]


def test_a_parameter_is_a_value_of_its_type(client):
    published("hour", KEY)

    [answer] = client.saved_query("hour").run({"hour": FIRST_HOUR}).answers

    assert answer.found == {(FIRST_HOUR, "JFK"): {"flights": 1}}
    assert answer.table() == [{"hour": FIRST_HOUR, "origin": "JFK", "flights": 1}]


def test_pages_are_followed(client, flights):
    published("all", ALL)
    query = client.saved_query("all")

    pages = query.pages({"origin": "JFK"})
    first = next(pages)
    rest = list(pages)

    assert [len(page) for page in (first, *rest)] == [12, 12, 6]
    assert [entry.key[1] for entry in query.entries({"origin": "JFK"})] == [f"C{n:02}" for n in range(30)]
    assert isinstance(next(query.entries({"origin": "JFK"})), Entry)


def test_pages_of_an_earlier_batch_stay_at_it(client, flights):
    published("all", ALL)
    flights.commit({("JFK", f"D{n:02}"): 1 for n in range(30)})

    assert {page.txid for page in client.saved_query("all").pages({"origin": "JFK"}, at_txid=2)} == {2}
    assert len(list(client.saved_query("all").entries({"origin": "JFK"}, at_txid=2))) == 30


def test_all_rows_are_a_table_of_pandas_polars_and_arrow(client):
    published("all", ALL)

    rows = client.saved_query("all").table({"origin": "EWR"})

    assert rows[0] == {"origin": "EWR", "carrier": "C00", "flights": 1100}
    assert len(rows) == 30
    total = sum(range(71, 100)) + 1100
    assert pd.DataFrame(rows)["flights"].sum() == total
    assert pl.DataFrame(rows)["flights"].sum() == total
    assert pa.Table.from_pylist(rows).num_rows == 30


def test_rows_of_lookups_and_entries_are_tables_too(client):
    state = client.state("flights_by_carrier")

    assert state.get_many([("JFK", "C01"), ("JFK", "ZZ")], measures="flights").table() == [
        {"origin": "JFK", "carrier": "C01", "flights": 99}
    ]
    assert next(state.pages(prefix="JFK", measures="flights", page_size=1)).table() == [
        {"origin": "JFK", "carrier": "C00", "flights": 100}
    ]
    with pytest.raises(InvalidArgumentError, match="use a client with typed=True"):
        client.with_options(typed=False).state("totals").get_many([()]).table()


def test_a_version_is_kept_and_none_is_the_newest(client):
    published()
    publish(create_version("top", {**TOP, "reads": [{**TOP["reads"][0], "limit": 1}]}), by="ann")

    counts = [len(client.saved_query("top", version=v).run({"origin": "EWR"}).answers[0]) for v in (None, 1, 2)]

    assert counts == [1, 3, 1]
    assert client.saved_query("top", version=1).openapi()["info"]["version"] == "1"
    assert client.saved_query("top").openapi()["info"]["version"] == "2"


def test_those_that_the_api_key_may_run_are_listed(client, web, connect):
    published()
    published("share", SHARE)
    _, key = create_api_key("confined", ["read"], states=["flights_by_carrier"])

    assert [query["name"] for query in client.saved_queries()] == ["share", "top"]
    [listed] = connect(web.url, key).saved_queries()
    assert (listed["name"], listed["version"], listed["states"]) == ("top", 1, ["flights_by_carrier"])
    assert {"name": "least", "type": "bigint", "required": False, "many": False, "description": ""} in listed[
        "parameters"
    ]


def test_what_a_document_promises_is_in_the_answer():
    assert set(SavedQueryDocument.__annotations__) == set(SavedQuerySerializer().fields)


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({}, RequestError, "'origin' is required"),
        ({"origin": "EWR", "least": "many"}, RequestError, "'least' must be bigint"),
        ({"origin": "EWR", "leest": 1}, RequestError, "leest"),
        ({"origin": ["EWR", "JFK"]}, RequestError, "is given 2 times"),
        ({"origin": "EWR", "at_txid": 1}, InvalidArgumentError, "'at_txid' cannot be a parameter"),
        ({"origin": datetime(2013, 1, 1)}, InvalidArgumentError, "has no time zone"),
    ],
)
def test_a_wrong_parameter_is_an_error_by_name(client, asked, error, told):
    published()

    with pytest.raises(error, match=told):
        client.saved_query("top").run(asked)


def test_values_are_sent_as_their_types_are_read(connect):
    found = answer(b'{"query": "q", "version": 1, "epoch": "e", "txid": 1, "batch_time": null, "answers": []}')
    values = {
        "text": 'a b&"[1]', "flag": True, "n": 2**62, "share": 0.5, "amount": Decimal("1.50"), "day": date(2013, 1, 2),
        "at": datetime(2013, 1, 2, tzinfo=UTC), "who": UUID(int=7), "absent": None, "many": (1, 2),
    }  # fmt: skip
    with scripted_server(found) as server:
        connect(server.url).saved_query("q").run(values)

    assert server.requests[0].split(b" ")[1].decode() == (
        "/api/v1/saved-queries/q?text=a+b%26%22%5B1%5D&flag=true&n=4611686018427387904&share=0.5&amount=1.50&day=2013-01-02"
        "&at=2013-01-02T00%3A00%3A00%2B00%3A00&who=00000000-0000-0000-0000-000000000007&many=1&many=2"
    )


def test_what_the_query_is_not_is_said(client):
    published("share", SHARE)
    published("hour", KEY)

    with pytest.raises(
        InvalidArgumentError, match=r"query 'share' has 3 reads, each with an answer of its own; use run\(\)"
    ):
        client.saved_query("share").table({"carrier": "C01"})
    with pytest.raises(InvalidArgumentError, match=r"query 'hour' looks up keys and has no entries; use run\(\)"):
        next(client.saved_query("hour").pages({"hour": FIRST_HOUR}))


def test_one_that_cannot_be_run_is_an_error_by_name(client, web, connect, flights):
    query = published()
    _, key = create_api_key("confined", ["read"], states=["flights_by_carrier"], key_prefix=["JFK"])

    with pytest.raises(NotFoundError, match="nothing"):
        client.saved_query("nothing").run()
    with pytest.raises(NotFoundError):
        client.saved_query("top", version=9).run({"origin": "EWR"})
    with pytest.raises(NotCommittedError):
        client.saved_query("top").run({"origin": "EWR"}, at_txid=9)
    with pytest.raises(ForbiddenError):
        connect(web.url, key).saved_query("top").run({"origin": "EWR"})
    published("total", TOTAL)
    for n in range(3):
        flights.commit({("JFK", "C01"): n + 1})
    with pytest.raises(BatchGoneError):
        client.saved_query("total").run(at_txid=1)
    withdraw(query, by="ann")
    with pytest.raises(GoneError):
        client.saved_query("top").run({"origin": "EWR"})
