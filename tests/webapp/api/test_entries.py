"""Entries: ranges, prefixes, top keys, in pages; the history of a key."""

import json
from base64 import urlsafe_b64encode
from datetime import datetime
from urllib.parse import urlencode

import orjson
import pytest

from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.api.entries import SIGNER, PageCursor
from tidegauge.webapp.catalog import readers


def asked(api, state="flights_by_carrier", **parameters):
    return api.ask("GET", f"/states/{state}/entries?{urlencode(parameters)}")


def page(api, state="flights_by_carrier", **parameters):
    response = asked(api, state, **parameters)
    assert response.status_code == 200, response.content
    return response.json()


def keys_of(document):
    return [tuple(entry["key"]) for entry in document["entries"]]


def pages(api, between=lambda: None, state="flights_by_carrier", **parameters):
    """Return all pages of a query, by cursor alone. between: called before each further page."""
    found = [page(api, state, **parameters)]
    while (cursor := found[-1]["next"]) is not None:
        between()
        found.append(page(api, state, cursor=cursor, limit=parameters.get("limit", 50)))
    return found


class TestRange:
    def test_entries_come_in_key_order_with_the_batch_they_are_of(self, filled, api):
        filled.commit({("EWR", "C00"): 1_000})

        document = page(api, limit=2, measures="flights")

        (entry, _) = document["entries"]
        assert keys_of(document) == [("EWR", "C00"), ("EWR", "C01")]
        assert (document["state"], document["txid"], document["isolation"]) == ("flights_by_carrier", 3, "committed")
        assert (entry["value"], entry["txid"]) == ({"flights": 2100}, 3)
        # PostgreSQL's JSON leaves out trailing zeros of the microseconds.
        assert datetime.fromisoformat(entry["updated_at"]) == datetime.fromisoformat(document["batch_time"])

    @pytest.mark.parametrize("prefix", ['["JFK"]', "JFK"])
    def test_a_prefix_is_the_first_parts_of_the_keys(self, filled, api, prefix):
        found = keys_of(page(api, prefix=prefix))

        assert len(found) == 30
        assert {origin for origin, _ in found} == {"JFK"}

    def test_a_range_has_its_first_key_and_not_its_last(self, filled, api):
        found = keys_of(page(api, **{"from": '["EWR", "C28"]', "to": '["JFK", "C02"]'}))

        assert found == [("EWR", "C28"), ("EWR", "C29"), ("JFK", "C00"), ("JFK", "C01")]

    def test_bare_text_is_the_first_part_whatever_its_type(self, filled, api):
        by_number = StateSpec("by_number", key={"n": "bigint"}, measures={"seen": Count()})
        add_state(filled.conn, by_number, {(n,): {"seen": n} for n in range(10)})

        assert keys_of(page(api, "by_number", **{"from": "3", "to": "5"})) == [(3,), (4,)]

    def test_a_search_finds_keys_with_a_part_that_starts_with_it(self, filled, api):
        assert keys_of(page(api, search="c07")) == [("EWR", "C07"), ("JFK", "C07")]

    def test_a_minus_before_a_measure_sorts_descending(self, filled, api):
        document = page(api, order_by="-flights", prefix="EWR", limit=3)

        assert [entry["value"]["flights"] for entry in document["entries"]] == [1100, 99, 98]

    def test_a_global_state_has_one_entry(self, filled, api):
        assert keys_of(page(api, "totals")) == [()]

    def test_an_earlier_batch_is_shown(self, filled, api):
        filled.commit({("AAA", "C00"): 1})

        document = page(api, at_txid=2, limit=1)

        assert (document["txid"], keys_of(document)) == (2, [("EWR", "C00")])


class TestPages:
    @pytest.mark.parametrize("order", [{}, {"order_by": "-flights"}, {"order_by": "mean_delay"}, {"search": "c"}])
    def test_no_key_comes_twice_and_none_is_left_out(self, filled, api, order):
        found = pages(api, limit=7, **order)

        keys = [key for document in found for key in keys_of(document)]
        assert len(keys) == len(set(keys)) == 60
        assert [len(document["entries"]) for document in found] == [7] * 8 + [4]

    def test_after_a_last_page_that_is_full_there_is_an_empty_one(self, filled, api):
        assert [len(document["entries"]) for document in pages(api, limit=30)] == [30, 30, 0]

    def test_the_next_page_is_linked_and_the_last_one_links_to_none(self, filled, api):
        first = asked(api, limit=59)
        address = first.headers["Link"].partition(">")[0].removeprefix("</api/v1")

        second = api.ask("GET", address)

        assert first.headers["Link"].endswith('; rel="next"')
        assert keys_of(second.json()) == [("JFK", "C29")]
        assert "Link" not in second.headers

    def test_pages_in_key_order_follow_the_committed_batch(self, filled, api):
        found = pages(api, lambda: filled.commit({("ZZZ", "C00"): 1}), limit=40)

        assert [document["txid"] for document in found] == [2, 3]
        assert keys_of(found[-1])[-1] == ("ZZZ", "C00")

    def test_pages_as_of_committed_are_those_of_the_first_ones_batch(self, filled, api):
        found = pages(api, lambda: filled.commit({("ZZZ", "C00"): 1}), limit=25, at_txid="committed")

        assert [document["txid"] for document in found] == [2, 2, 2]
        assert sum(len(document["entries"]) for document in found) == 60

    def test_pages_by_a_measure_are_those_of_the_first_ones_batch(self, filled, api):
        found = pages(api, lambda: filled.commit({("JFK", "C29"): 10_000}), limit=25, order_by="-flights")

        keys = [key for document in found for key in keys_of(document)]
        assert [document["txid"] for document in found] == [2, 2, 2]
        assert len(set(keys)) == 60
        assert keys[-1] == ("JFK", "C29")

    def test_pages_of_a_batch_out_of_reach_are_a_410_that_says_what_to_do(self, filled, api):
        first = page(api, "flights_by_hour", limit=1, order_by="-flights")
        filled.conn.execute("UPDATE tidegauge.state SET oldest_txid = 3 WHERE name = 'flights_by_hour'")

        response = asked(api, "flights_by_hour", cursor=first["next"])

        assert response.status_code == 410
        assert response.json()["detail"] == (
            "state 'flights_by_hour': batch 2, which these pages show, is no longer available; start again "
            "without a cursor, or keep a changelog of the state, which keeps its batches available"
        )

    def test_pages_of_a_batch_that_was_replayed_are_a_410(self, filled, api):
        first = page(api, limit=1, at_txid="committed")
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_attempt = 2")
        filled.conn.execute("UPDATE tidegauge.batch SET attempt = 2 WHERE txid = 2")

        response = asked(api, cursor=first["next"])

        assert (response.status_code, "was replayed" in response.json()["detail"]) == (410, True)

    def test_pages_of_a_state_that_was_created_again_are_a_410(self, filled, api):
        first = page(api, limit=1)
        filled.conn.execute("UPDATE tidegauge.state SET created_at = created_at + interval '1 s'")
        readers.clear_cache()

        response = asked(api, cursor=first["next"])

        assert (response.status_code, "was created again" in response.json()["detail"]) == (410, True)


class TestCursor:
    def test_it_contains_the_query(self, filled, api):
        first = page(api, prefix="JFK", order_by="-flights", measures="flights", limit=1)

        second = page(api, cursor=first["next"])

        assert len(second["entries"]) == 29
        assert second["entries"][0] | {"updated_at": ""} == {
            "key": ["JFK", "C01"], "value": {"flights": 99}, "txid": 1, "updated_at": "",
        }  # fmt: skip

    def test_the_parameters_may_be_repeated_with_it(self, filled, api):
        parameters = {"prefix": "JFK", "order_by": "-flights", "limit": 1}
        first = page(api, **parameters)

        assert keys_of(page(api, **parameters, cursor=first["next"])) == [("JFK", "C01")]

    @pytest.mark.parametrize(
        "other", [{"prefix": "EWR"}, {"from": "A"}, {"to": "Z"}, {"search": "c"}, {"order_by": "flights"},
                  {"order_by": "-max_delay"}, {"at_txid": 2}, {"at_txid": "committed"}, {"measures": "flights"}],
    )  # fmt: skip
    def test_other_parameters_with_a_cursor_are_a_400(self, filled, api, other):
        first = page(api, prefix="JFK", order_by="-flights", limit=1)

        response = asked(api, cursor=first["next"], **other)

        assert response.status_code == 400
        assert "another request" in response.json()["detail"]

    def test_that_of_another_state_is_a_400(self, filled, api):
        first = page(api, limit=1)

        response = asked(api, "flights_by_hour", cursor=first["next"])

        assert response.status_code == 400
        assert "belongs to state 'flights_by_carrier', not to 'flights_by_hour'" in response.json()["detail"]

    @pytest.mark.parametrize("damage", ["", "x", "{0}x", "x{0}", "{0[0]}", "é", "a.b"])
    def test_a_cursor_of_another_server_is_a_400(self, filled, api, damage):
        first = page(api, limit=1)

        response = asked(api, cursor=damage.format(first["next"]))

        assert response.status_code == 400
        assert "cursor is not one of this server" in response.json()["detail"]

    def test_one_that_an_earlier_version_wrote_is_a_400(self, filled, api):
        content = orjson.dumps(["flights_by_carrier", "", "", {"as_of": 1}, ["JFK", "C01"], None])

        response = asked(api, cursor=SIGNER.sign(urlsafe_b64encode(content).decode().rstrip("=")))

        assert response.status_code == 400
        assert response.json()["detail"].startswith("cursor is of an earlier version of this server")

    def test_every_bit_of_it_counts(self, filled, api):
        cursor = page(api, limit=1)["next"]
        changed = [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :] for at in range(len(cursor))]

        assert {asked(api, cursor=text).status_code for text in changed} == {400}


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"limit": 0}, "limit must be a number from 1 to 1000, got '0'"),
        ({"limit": 1001}, "limit must be a number from 1 to 1000"),
        ({"limit": "1_0"}, "limit must be a number from 1 to 1000"),
        ({"limit": "٣"}, "limit must be a number from 1 to 1000"),
        ({"at_txid": "yesterday"}, "at_txid must be a number from 0 to"),
        ({"prefix": "["}, "prefix starts as a JSON list but is not one"),
        ({"prefix": '["a", "b", "c"]'}, "prefix: expected a list of at most 2 parts"),
        ({"prefix": "[1]"}, "prefix: origin must be text, got 1"),
        ({"from": "[null]"}, "start: origin must be text, got None"),
        ({"to": '["a\\u0000"]'}, "stop: origin holds a NUL"),
        ({"prefix": "a\0"}, "prefix holds a NUL"),
        ({"search": "a\0"}, "search holds a NUL"),
        ({"order_by": "-none"}, "'none'"),
        ({"measures": "flights,none"}, "no measure 'none'"),
        (
            {"prefx": "A", "order": "x"},
            "unknown parameter 'order', 'prefx'; there are at_time, at_txid, cursor, ",
        ),
    ],
)
def test_an_invalid_parameter_is_a_400_that_says_why(filled, api, parameters, why):
    response = asked(api, **parameters)

    assert response.status_code == 400
    assert why in response.json()["detail"]


def test_an_unknown_state_is_a_404(filled, api):
    assert asked(api, "flihgts").status_code == 404


def test_a_batch_that_is_not_committed_yet_is_a_409(filled, api):
    response = asked(api, at_txid=3)

    assert (response.status_code, response.json()["committed_txid"]) == (409, 2)


def test_a_state_in_redis_has_pages_too(api, connection):
    with redis_views(connection) as views:
        views.commit({f"page {n:02}": n for n in range(25)})

        by_key = pages(api, state=views.name, limit=10, measures="views")
        by_views = pages(api, state=views.name, limit=10, order_by="-views")

    assert [key for document in by_key for key in keys_of(document)] == [(f"page {n:02}",) for n in range(25)]
    assert [entry["value"]["views"] for document in by_views for entry in document["entries"]] == [*range(24, -1, -1)]


class TestHistory:
    def history(self, api, state="flights_by_carrier", **parameters):
        response = api.ask("GET", f"/states/{state}/history?{urlencode(parameters)}")
        return response.status_code, response.json()

    def test_committed_versions_come_newest_first(self, filled, api):
        filled.commit({("JFK", "C01"): 1})
        filled.open({("JFK", "C01"): 1})

        status, document = self.history(api, key='["JFK", "C01"]')

        assert (status, document["txid"], document["key"], document["complete"]) == (200, 3, ["JFK", "C01"], True)
        found = [(version["txid"], version["status"], version["value"]["flights"]) for version in document["versions"]]
        assert found == [(3, "found", 100), (1, "found", 99)]

    def test_it_goes_on_before_the_last_one(self, filled, api):
        filled.commit({("JFK", "C01"): 1})

        _, first = self.history(api, key='["JFK", "C01"]', limit=1)
        _, second = self.history(api, key='["JFK", "C01"]', limit=1, cursor=first["next"])
        _, third = self.history(api, key='["JFK", "C01"]', limit=1, cursor=second["next"])
        of_another_key, _ = self.history(api, key='["JFK", "C02"]', cursor=first["next"])

        assert [document["versions"][0]["txid"] for document in (first, second)] == [3, 1]
        assert (third["versions"], third["next"], of_another_key) == ([], None, 400)

    def test_a_state_without_a_key_needs_none(self, filled, api):
        _, document = self.history(api, "totals")

        assert [version["value"]["flights"] for version in document["versions"]] == [6130, 5130]

    @pytest.mark.parametrize(
        ("parameters", "why"),
        [
            ({}, "key must be given, as a JSON list of origin, carrier"),
            ({"key": "JFK"}, "expected 2 parts (origin, carrier), got 1"),
            ({"key": "[1, 2]"}, "origin must be text, got 1"),
            ({"key": '["a", "b"]', "limit": 0}, "limit must be a number"),
            ({"key": '["a", "b"]', "cursor": "now"}, "cursor is not one of this server"),
        ],
    )
    def test_an_invalid_parameter_is_a_400_that_says_why(self, filled, api, parameters, why):
        status, document = self.history(api, **parameters)

        assert status == 400
        assert why in document["detail"]


def test_a_cursor_is_signed_and_not_encrypted(filled, api):
    cursor = PageCursor.from_text(page(api, limit=1, prefix="JFK")["next"])

    assert json.dumps(cursor.query["prefix"]) == '"JFK"'
    assert cursor.state == "flights_by_carrier"


def test_a_measure_that_was_added_later_has_entries_too(filled, api, monkeypatch):
    monkeypatch.setattr(readers, "CHECK_SECONDS", 0)
    held = Catalog(filled.conn).get("totals")
    grown = StateSpec("totals", measures={**held.measures, "late": Count("dep_delay > 0")})
    Catalog(filled.conn).register_states("flights", [grown], {"totals": "exactly once"})

    assert page(api, "totals")["entries"][0]["value"] == {"flights": 6130, "late": 0}
