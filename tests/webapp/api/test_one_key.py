"""One key at an address of its own: the same answer as a bulk lookup, with an ETag, for keys of every type."""

import json
from datetime import date
from urllib.parse import urlencode
from uuid import UUID

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Count, StateSpec, Sum
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key

STATE = "/states/flights_by_carrier"
COUNT = {"n": Count()}


def of(*key, state="flights_by_carrier", **parameters):
    """Return the path of one key."""
    return f"/states/{state}/keys?{urlencode({'key': json.dumps(key)} | parameters)}"


def one(api, path, status=200, **options):
    response = api.ask("GET", path, **options)
    assert response.status_code == status, response.content
    return response.json()


def test_it_answers_what_a_bulk_lookup_does(filled, api):
    answer = one(api, of("JFK", "C01", measures="flights"))
    bulk = api.ask("POST", f"{STATE}/lookup", {"keys": [["JFK", "C01"]], "measures": ["flights"]}).json()

    (result,) = bulk.pop("results")
    assert answer == bulk | result
    assert answer["value"] == {"flights": 99}


@pytest.mark.parametrize(
    ("when", "txid", "count"), [({"at_txid": 1}, 1, 100), ({}, 2, 1100), ({"min_txid": 2, "wait_ms": 0}, 2, 1100)]
)
def test_a_batch_may_be_asked_for(filled, api, when, txid, count):
    answer = one(api, of("EWR", "C00", **when))

    assert (answer["txid"], answer["value"]["flights"]) == (txid, count)


def test_an_absent_key_is_a_404_that_says_of_which_batch(filled, api):
    problem = one(api, of("JFK", "ZZ"), 404)

    assert (problem["code"], problem["key_status"], problem["txid"]) == ("key_not_found", "missing", 2)
    assert problem["detail"] == 'state \'flights_by_carrier\': key ["JFK","ZZ"] is missing as of batch 2'


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (of("a", state="nothing"), 404, "unknown_state"),
        (of("JFK"), 400, "invalid_key"),
        (of("JFK", "C01", "x"), 400, "invalid_key"),
        (of(1, 2), 400, "invalid_key"),
        (f"{STATE}/keys", 400, "invalid_key"),
        (of("yesterday", "JFK", state="flights_by_hour"), 400, "invalid_key"),
        (of("JFK", "C01", measures="nothing"), 400, "invalid_request"),
        (of("JFK", "C01", at_txid=9), 409, "not_committed"),
        (of("JFK", "C01", min_txid=9, wait_ms=0), 409, "not_reached"),
        (of("JFK", "C01", min_txid=9, epoch="gone"), 409, "other_epoch"),
        (of("JFK", "C01", combine="true"), 400, "unknown_parameter"),
    ],
)
def test_what_cannot_be_answered_is_refused(filled, api, path, status, code):
    assert one(api, path, status)["code"] == code


class TestCaching:
    def test_an_unchanged_answer_is_a_304_until_the_next_batch(self, filled, api):
        path = of("JFK", "C01")
        answer = api.ask("GET", path)
        known = {"If-None-Match": answer.headers["ETag"]}

        again = api.ask("GET", path, headers=known)
        filled.commit({("JFK", "C01"): 1})
        changed = api.ask("GET", path, headers=known)

        assert (again.status_code, again.content, changed.status_code) == (304, b"", 200)
        for response in (answer, again, changed):
            assert response.headers["Cache-Control"] == "private, max-age=0"
            assert "Authorization" in response.headers["Vary"]

    def test_any_answer_will_do_where_the_key_exists(self, filled, api):
        known = {"If-None-Match": "*"}
        found = api.ask("GET", of("JFK", "C01"))

        any_answer = api.ask("GET", of("JFK", "C01"), headers=known)
        missing = api.ask("GET", of("JFK", "ZZ"), headers=known)

        assert (any_answer.status_code, any_answer.content, missing.status_code) == (304, b"", 404)
        assert any_answer.headers["ETag"] == found.headers["ETag"]

    def test_the_tag_of_a_bulk_lookup_is_not_that_of_one_key(self, filled, api):
        bulk = api.ask("POST", f"{STATE}/lookup", {"keys": [["JFK", "C01"]]}).headers["ETag"]

        assert api.ask("GET", of("JFK", "C01"), headers={"If-None-Match": bulk}).status_code == 200

    def test_a_known_etag_gives_no_access(self, filled, api):
        etag = api.ask("GET", of("EWR", "C01")).headers["ETag"]
        authentication.clear_cache()
        of_jfk = CheckedClient(create_api_key("of JFK", ["read"], key_prefix=["JFK"])[1])

        refused = of_jfk.ask("GET", of("EWR", "C01"), headers={"If-None-Match": etag})

        assert refused.status_code == 403
        assert of_jfk.ask("GET", of("JFK", "C01")).status_code == 200


class TestKeys:
    """Keys of every type, as JSON and, with one column, as bare text."""

    @pytest.mark.parametrize(
        ("sql_type", "key", "text"),
        [
            ("text", "JFK", "JFK"),
            ("text", "a/b", "a/b"),
            ("text", 'quoted "?#%\n', 'quoted "?#%\n'),
            ("text", "ü", "ü"),
            ("bigint", -(2**63), str(-(2**63))),
            ("integer", 7, "7"),
            ("double precision", -2.0, "-2"),
            ("boolean", True, "true"),
            ("date", date(2013, 2, 28), "2013-02-28"),
            ("uuid", UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        ],
    )
    def test_one_column(self, filled, api, sql_type, key, text):
        add_state(filled.conn, StateSpec("typed", key={"k": sql_type}, measures=COUNT), {(key,): {"n": 5}})

        assert one(api, f"/states/typed/keys?{urlencode({'key': text})}")["value"] == {"n": 5}
        assert one(api, of(key if isinstance(key, int | float) else text, state="typed"))["value"] == {"n": 5}

    def test_a_timestamp_and_a_text(self, filled, api):
        answer = one(api, of("2013-01-01T10:00:00+00:00", "JFK", state="flights_by_hour"))

        assert (answer["key"], answer["value"]) == (["2013-01-01T10:00:00+00:00", "JFK"], {"flights": 1})

    def test_bare_text_that_begins_as_a_list_is_refused(self, filled, api):
        add_state(filled.conn, StateSpec("typed", key={"k": "text"}, measures=COUNT), {("[1",): {"n": 5}})

        assert "starts as a JSON list but is not one" in one(api, "/states/typed/keys?key=%5B1", 400)["detail"]
        assert one(api, of("[1", state="typed"))["value"] == {"n": 5}

    def test_slashes_and_empty_parts(self, filled, api):
        spec = StateSpec("pages", key={"site": "text", "path": "text"}, measures=COUNT)
        add_state(filled.conn, spec, {("a", "/b/"): {"n": 5}, ("", "c"): {"n": 6}})

        assert one(api, of("a", "/b/", state="pages"))["value"] == {"n": 5}
        assert one(api, of("", "c", state="pages"))["value"] == {"n": 6}

    def test_a_state_without_key_columns_needs_none(self, filled, api):
        assert one(api, "/states/totals/keys")["value"] == {"flights": 6130}

    def test_every_digit_of_a_value_is_kept(self, filled, api):
        spec = StateSpec("money", key={"k": "text"}, measures={"sum": Sum("x", type="numeric")})
        add_state(filled.conn, spec, {("a",): {"sum": "12345678901234567890.123456789"}})

        assert b"12345678901234567890.123456789" in api.ask("GET", of("a", state="money")).content

    def test_a_state_in_redis(self, api, connection):
        with redis_views(connection) as views:
            views.commit({"a/b": 3})

            assert one(api, of("a/b", state=views.name, measures="views"))["value"] == {"views": 3}
