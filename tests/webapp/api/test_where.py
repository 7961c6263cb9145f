"""Filters of entries and exports, as clients write them."""

import csv
import io
import json
from urllib.parse import quote, urlencode

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tests.webapp.api.test_entries import keys_of
from tidegauge.state_backends import Max, StateSpec, TopK
from tidegauge.state_backends.backends.postgres import pages
from tidegauge.webapp.accounts.services import create_api_key

PATH = "/states/flights_by_carrier"
FORMS = ("entries?", "export?format=csv&", "export?format=ndjson&", "export?format=arrow&")
INJECTIONS = [
    "flights>0 OR 1=1",
    "flights>0) OR (1=1",
    "flights>0; DROP TABLE tidegauge.state",
    "flights>(SELECT 1)",
    "flights>0--",
    "flights>'0'",
    "1=1",
    "flights is null OR true",
    "txid>0",
    "prev_flights>0",
    "t.flights>0",
    '"flights">0',
    "flights in (SELECT 1)",
    "pg_sleep(9)=1",
    "%s>1",
    "{}>1",
]


def entries(api, *where, **parameters):
    query = urlencode([*parameters.items(), *(("where", each) for each in where)])
    response = api.ask("GET", f"{PATH}/entries?{query}")
    assert response.status_code == 200, response.content
    return response.json()


class TestEntries:
    def test_conditions_on_measures_and_key_columns_apply_all(self, filled, api):
        found = entries(api, "flights>97", 'carrier in ["C01", "C02"]', limit=10)

        assert keys_of(found) == [("EWR", "C01"), ("EWR", "C02"), ("JFK", "C01"), ("JFK", "C02")]
        assert keys_of(entries(api, "flights>97", "origin=EWR", "carrier!=C01", limit=1)) == [("EWR", "C00")]

    def test_they_apply_under_a_prefix_in_an_order_and_in_the_past(self, filled, api):
        filled.commit({("EWR", "C05"): 5000})

        assert keys_of(entries(api, "flights>99", prefix="EWR", order_by="-flights")) == [
            ("EWR", "C05"),
            ("EWR", "C00"),
        ]
        assert keys_of(entries(api, "flights>99", prefix="EWR", at_txid=2)) == [("EWR", "C00")]

    def test_a_plus_of_an_address_is_a_blank_and_a_percent_sign_is_decoded_once(self, filled, api):
        spec = StateSpec("named", key={"name": "text"}, measures={"at": Max("at", type="timestamptz")})
        add_state(filled.conn, spec, {(name,): {"at": "2013-01-01T05:00:00Z"} for name in ("a+b", "a b", "%41", "=x")})

        def names(condition):
            response = api.ask("GET", f"/states/named/entries?where={condition}")
            return [name for (name,) in keys_of(response.json())] if response.status_code == 200 else response.json()

        assert names("name=a%2Bb") == ["a+b"]
        assert names("name=a+b") == names("name%20=%20a%20b") == ["a b"]
        assert names("name%3D%2541") == ["%41"]
        assert names(quote('name="=x"')) == ["=x"]
        assert len(names("at=2013-01-01T07:00:00%2B02:00")) == 4
        assert "written %2B" in names("at=2013-01-01T07:00:00+02:00")["detail"]

    def test_a_page_ends_after_the_keys_it_may_look_at_and_the_cursor_goes_on(self, filled, api, monkeypatch):
        monkeypatch.setattr(pages, "MOST_SCANNED", 25)

        found = [entries(api, "carrier=C29")]
        while found[-1]["next"]:
            found.append(entries(api, cursor=found[-1]["next"]))

        assert [keys_of(page) for page in found] == [[], [("EWR", "C29")], [("JFK", "C29")]]
        assert [page["complete"] for page in found] == [False, False, True]

    def test_a_cursor_belongs_to_its_filter(self, filled, api):
        cursor = entries(api, "flights>1", limit=2)["next"]

        assert keys_of(entries(api, "flights>1", cursor=cursor, limit=1)) == [("EWR", "C02")]
        for other in ("flights>2", "carrier=C01"):
            response = api.ask("GET", f"{PATH}/entries?{urlencode({'cursor': cursor, 'where': other})}")
            assert (response.status_code, "where was ['flights>1']" in response.json()["detail"]) == (400, True)

    def test_a_filter_stays_within_the_keys_of_a_confined_api_key(self, filled, api):
        confined = type(api)(create_api_key("jfk", ["read"], key_prefix=["JFK"])[1])

        assert {origin for origin, _ in keys_of(entries(confined, "flights>0"))} == {"JFK"}
        assert keys_of(entries(confined, "origin=EWR")) == keys_of(entries(confined, "origin!=JFK")) == []


class TestExports:
    def test_every_format_has_the_entries_that_are_left(self, lasting, api):
        where = urlencode([("where", "flights>=98"), ("where", "origin=EWR")])

        rows = list(csv.reader(io.StringIO(b"".join(api.ask("GET", f"{PATH}/export?format=csv&{where}")).decode())))

        assert [row[:3] for row in rows[1:]] == [["EWR", "C00", "1100"], ["EWR", "C01", "99"], ["EWR", "C02", "98"]]
        assert b"".join(api.ask("GET", f"{PATH}/export?format=ndjson&{where}")).count(b"\n") == 3
        assert b"".join(api.ask("GET", f"{PATH}/export?format=ndjson&{where}&at_txid=1")).count(b"\n") == 3


class TestRefusals:
    def test_a_wrong_condition_is_a_problem_that_names_measure_type_and_operators(self, lasting, api):
        for form in FORMS:
            response = api.ask("GET", f"{PATH}/{form}{urlencode({'where': 'flights>many'})}")

            assert response.status_code == 400
            assert "flights is bigint" in response.json()["detail"]
            assert "=, !=, <, <=, >, >=, in, is null" in response.json()["detail"]

    @pytest.mark.parametrize("condition", INJECTIONS)
    def test_what_would_be_sql_is_refused(self, filled, api, condition):
        response = api.ask("GET", f"{PATH}/entries?{urlencode({'where': condition})}")

        assert (response.status_code, "where: " in response.json()["detail"]) == (400, True)

    @pytest.mark.parametrize("text", ["' OR '1'='1", "C00' --", "%s", "{0}", "\\", "C0%", "C0_", "\u202eC00"])
    def test_text_is_a_value_whatever_it_holds(self, filled, api, text):
        for condition in (f"carrier in [{text!r}]".replace("'", '"'), f"origin=EWR{text}", f"carrier=x{text}"):
            response = api.ask("GET", f"{PATH}/entries?{urlencode({'where': condition})}")
            assert response.status_code == 400 or keys_of(response.json()) == []

    def test_a_list_is_refused_by_name(self, filled, api):
        add_state(filled.conn, StateSpec("tops", key={"k": "text"}, measures={"top": TopK("page")}), {})

        response = api.ask("GET", "/states/tops/entries?where=top%3D1")

        assert response.status_code == 400
        assert "measure 'top' is a top_k of type jsonb" in response.json()["detail"]

    def test_a_nul_character_is_refused(self, filled, api):
        assert api.ask("GET", f"{PATH}/entries?where=carrier%3D%00").status_code == 400


class TestByPost:
    """Conditions that are too long for an address."""

    def test_it_answers_what_the_address_does(self, lasting, api):
        where = ["flights>90", 'carrier in ["C01", "C02"]']
        cases = [
            (
                "entries",
                {"where": where, "prefix": ["JFK"], "limit": 1, "measures": ["flights"], "order_by": "-flights"},
            ),
            ("groups", {"where": where, "by": ["origin"], "at_txid": 1}),
        ]
        for path, body in cases:
            parts = {"prefix": '["JFK"]', "measures": "flights", "by": "origin"}
            address = urlencode({name: parts.get(name, value) for name, value in body.items()}, doseq=True)

            by_post = api.ask("POST", f"{PATH}/{path}", body).json()

            assert by_post == api.ask("GET", f"{PATH}/{path}?{address}").json()

    def test_a_list_that_no_address_holds_is_answered(self, lasting, api):
        carriers = json.dumps([f"{number:060}" for number in range(999)] + ["C01"])
        body = {"where": [f"carrier in {carriers}"] * 2, "limit": 1, "measures": ["flights"]}
        assert len(carriers) * 2 > 100_000

        first = api.ask("POST", f"{PATH}/entries", body).json()
        second = api.ask("POST", f"{PATH}/entries", {"cursor": first["next"]}).json()

        assert [entry["key"] for page in (first, second) for entry in page["entries"]] == [
            ["EWR", "C01"],
            ["JFK", "C01"],
        ]

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ([], "the body must be an object with the parameters as members"),
            ({"wher": []}, "unknown parameter 'wher'; there are at_time, at_txid, cursor"),
            ({"where": "flights>1"}, "where must be a list of texts"),
            ({"where": [1]}, "where must be a list of texts"),
            ({"measures": [1]}, "measures must be a list of texts"),
            ({"limit": True}, "limit must be text, a whole number or a list"),
            ({"limit": 0}, "limit must be a number from 1 to 1000"),
            ({"prefix": {}}, "prefix must be text, a whole number or a list"),
            ({"cursor": "x"}, "cursor is not one of this server"),
        ],
    )
    def test_what_is_wrong_is_refused_by_name(self, lasting, api, body, why):
        response = api.ask("POST", f"{PATH}/entries", body)

        assert response.status_code == 400
        assert why in response.json()["detail"]

    def test_it_is_confined_as_the_address_is(self, lasting):
        confined = CheckedClient(create_api_key("of JFK", ["read"], key_prefix=["JFK"])[1])

        assert confined.ask("POST", f"{PATH}/entries", {"prefix": ["EWR"]}).status_code == 403
        found = confined.ask("POST", f"{PATH}/entries", {"limit": 500}).json()["entries"]
        assert {entry["key"][0] for entry in found} == {"JFK"}
