"""ETags: a client that has the answer already gets a 304, and no 304 is ever wrong."""

import time
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tests.webapp.committed_flights import committed_flights
from tests.webapp.flights import BY_CARRIER
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api import lookups
from tidegauge.webapp.catalog import readers

LOOKUP = "/states/flights_by_carrier/lookup"
BODY = {"keys": [["JFK", "C01"]]}


def asked(api, body=BODY, state="flights_by_carrier", known=None):
    headers = {"If-None-Match": known} if known else {}
    return api.ask("POST", f"/states/{state}/lookup", body, headers=headers)


def etag_of(api, body=BODY, state="flights_by_carrier"):
    return asked(api, body, state).headers["ETag"]


@contextmanager
def statements(monkeypatch):
    """Collect the statements sent to the database."""
    seen = []
    execute = psycopg.Cursor.execute

    def record(cursor, text, *args, **options):
        seen.append(text)
        return execute(cursor, text, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", record)
        yield seen


class TestLookup:
    def test_it_names_state_txid_and_attempt(self, filled, api):
        assert etag_of(api).startswith('"flights_by_carrier-2-1-')

    def test_an_unchanged_answer_costs_a_304(self, filled, api):
        etag = etag_of(api)

        response = asked(api, known=f'"other", {etag}')

        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag)

    def test_a_304_asks_for_one_row_of_the_ledger_and_for_no_key(self, filled, api, monkeypatch):
        etag = etag_of(api)

        with statements(monkeypatch) as seen:
            asked(api, known=etag)

        assert seen == [readers.BATCH]

    def test_a_weak_tag_of_a_compressed_answer_counts_as_well(self, filled, api):
        assert asked(api, known=f"W/{etag_of(api)}").status_code == 304

    def test_the_next_batch_is_another_answer(self, filled, api):
        etag = etag_of(api)
        filled.commit({("LGA", "C01"): 1})

        assert asked(api, known=etag).status_code == 200

    @pytest.mark.parametrize(
        "other",
        [
            {"keys": [["JFK", "C02"]]},
            {"keys": [["JFK", "C01"], ["JFK", "C01"]]},
            BODY | {"measures": ["flights"]},
            BODY | {"measures": []},
            BODY | {"combine": True},
            BODY | {"at_txid": 2},
        ],
    )
    def test_another_request_is_another_answer(self, filled, api, other):
        etag = etag_of(api)

        assert asked(api, other, known=etag).status_code == 200

    def test_the_same_request_to_another_state_is_another_answer(self, filled, api):
        twin = StateSpec("twin", key=BY_CARRIER.key, measures={"flights": Count()})
        add_state(filled.conn, twin, {("JFK", "C01"): {"flights": 7}})
        etag = etag_of(api)

        response = asked(api, state="twin", known=etag.replace("flights_by_carrier", "twin"))

        assert response.status_code == 200

    def test_a_new_attempt_at_the_same_batch_is_another_answer(self, filled, api):
        etag = etag_of(api)
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_attempt = 2")

        assert asked(api, known=etag).status_code == 200

    def test_a_batch_of_the_same_number_in_a_ledger_that_was_restored_is_another_answer(self, filled, api):
        etag = etag_of(api)
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_time = committed_time + interval '1 ms'")

        assert asked(api, known=etag).status_code == 200

    def test_a_state_that_was_created_again_is_another_answer(self, filled, api):
        etag = etag_of(api)
        filled.conn.execute("UPDATE tidegauge.state SET created_at = created_at + interval '1 ms'")

        assert asked(api, known=etag).status_code == 200

    def test_a_measure_that_was_added_is_another_answer(self, filled, api, monkeypatch):
        body = {"keys": [[]]}
        etag = etag_of(api, body, "totals")
        held = Catalog(filled.conn).get("totals")
        grown = StateSpec("totals", measures={**held.measures, "late": Count("dep_delay > 0")})
        Catalog(filled.conn).register_states("flights", [grown], {"totals": "exactly once"})

        assert asked(api, body, "totals", known=etag).status_code == 200

    def test_a_ttl_that_was_shortened_is_another_answer(self, filled, api):
        filled.conn.execute("UPDATE tidegauge_state.flights_by_carrier SET updated_at = updated_at - interval '2 days'")
        etag = etag_of(api)
        filled.conn.execute("UPDATE tidegauge.state SET ttl = '1 day' WHERE name = 'flights_by_carrier'")

        assert asked(api, known=etag).json()["results"][0]["status"] == "expired"

    def test_an_expired_key_that_was_deleted_is_another_answer(self, filled, api):
        filled.conn.execute(
            "UPDATE tidegauge_state.flights_by_carrier SET updated_at = updated_at - interval '401 days'"
        )
        before = asked(api)
        filled.conn.execute("DELETE FROM tidegauge_state.flights_by_carrier")

        after = asked(api, known=before.headers["ETag"])

        assert [response.json()["results"][0]["status"] for response in (before, after)] == ["expired", "missing"]

    @pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
    def test_a_kind_that_shows_open_batches_changes_with_its_rows(self, filled, api, kind):
        spec = StateSpec("open", key={"k": "text"}, measures={"n": Count()}, kind=kind)
        add_state(filled.conn, spec, {("a",): {"n": 1}})
        body = {"keys": [["a"]]}
        etag = etag_of(api, body, "open")

        same = asked(api, body, "open", known=etag)
        filled.conn.execute("UPDATE tidegauge_state.open SET n = 2")
        changed = asked(api, body, "open", known=etag)

        assert (same.status_code, changed.json()["results"][0]["value"]) == (304, {"n": 2})

    @pytest.mark.parametrize("forged", ["{}-never", "{}-99999999999999999", "{}-x", "{}-", "{}-٣"])
    def test_a_tag_whose_end_is_not_a_time_is_refused(self, filled, api, forged):
        start = etag_of(api).strip('"').rpartition("-")[0]

        response = asked(api, known=f'"{forged.format(start)}"')

        # A client that forges a tag deceives only itself; no answer has such an end.
        assert response.status_code in ((304,) if forged[3:] in ("never", "99999999999999999") else (200,))

    def test_the_tag_of_an_earlier_batch_has_a_digest_of_the_results(self, filled, api):
        body = BODY | {"at_txid": 1}
        etag = etag_of(api, body)

        assert asked(api, body, known=etag).status_code == 304

    @pytest.mark.parametrize(
        ("path", "body"), [(LOOKUP, BODY), ("/lookup", {"lookups": [{"state": "totals", "keys": [[]]}]})]
    )
    def test_a_post_answers_whatever_any_answer_may_be(self, filled, api, path, body):
        # `*` is about what can be got at the address, and there is no GET.
        assert api.ask("POST", path, body, headers={"If-None-Match": "*"}).status_code == 200

    def test_a_lookup_in_several_states_has_a_tag_too(self, filled, api):
        body = {"lookups": [{"state": "totals", "keys": [[]]}]}
        etag = api.ask("POST", "/lookup", body).headers["ETag"]

        same = api.ask("POST", "/lookup", body, headers={"If-None-Match": etag})
        filled.commit({("LGA", "C01"): 1})
        changed = api.ask("POST", "/lookup", body, headers={"If-None-Match": etag})

        assert (same.status_code, changed.status_code) == (304, 200)


def test_a_key_that_expires_between_two_batches_is_another_answer_from_that_moment_on(transactional_db):
    with committed_flights() as flights:
        api = CheckedClient(create_api_key("reader", ["read"])[1])
        api.ask("GET", "/states")
        left = timedelta(seconds=1)
        flights.conn.execute(
            "UPDATE tidegauge_state.flights_by_carrier SET updated_at = now() - interval '400 days' + %s", [left]
        )
        etag = etag_of(api)
        assert asked(api, known=etag).status_code == 304

        deadline = time.monotonic() + 10
        while (response := asked(api, known=etag)).status_code == 304:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert response.json()["results"][0]["status"] == "expired"


def test_the_time_of_expiry_is_that_of_the_first_key_to_expire(filled, api):
    filled.conn.execute(
        "UPDATE tidegauge_state.flights_by_carrier SET updated_at = now() - interval '399 days' WHERE carrier = 'C02'"
    )

    def until(*carriers):
        return int(etag_of(api, {"keys": [["JFK", carrier] for carrier in carriers]}).strip('"').rpartition("-")[2])

    assert until("C02") == until("C01", "C02") == until("C02", "C01", "C03") < until("C01")


def test_a_state_without_ttl_has_no_time_of_expiry(filled, api):
    assert etag_of(api, {"keys": [[]]}, "totals").endswith(f'-{lookups.NEVER}"')


@pytest.mark.parametrize(
    "path",
    [
        "/states",
        "/states/totals",
        "/pipelines/flights/batches",
        "/states/flights_by_carrier/entries?limit=3",
        '/states/flights_by_carrier/history?key=["EWR","C00"]',
        "/maintenance",
    ],
)
def test_every_get_has_a_tag_that_holds_until_the_answer_changes(filled, api, path):
    first = api.ask("GET", path)
    etag = first.headers["ETag"]

    same = api.ask("GET", path, headers={"If-None-Match": etag})
    filled.commit({("EWR", "C00"): 1})
    changed = api.ask("GET", path, headers={"If-None-Match": etag})

    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag)
    assert changed.status_code == (304 if path == "/maintenance" else 200)


@pytest.mark.parametrize("path", ["/pipelines", "/pipelines/flights"])
def test_idle_pipelines_have_a_tag(filled, api, path):
    # The rows per second fall while no batch is committed; here no batch is recent.
    filled.conn.execute(
        "UPDATE tidegauge.batch SET committed_at = now() - interval '1 h', started_at = now() - interval '1 h'"
    )
    etag = api.ask("GET", path).headers["ETag"]

    same = api.ask("GET", path, headers={"If-None-Match": etag})
    filled.commit({("EWR", "C00"): 1})

    assert same.status_code == 304
    assert api.ask("GET", path, headers={"If-None-Match": etag}).status_code == 200


def test_the_catalog_version_of_a_state_is_that_of_its_reader(filled):
    readers.clear_cache()

    _, made = readers.versioned_reader(filled.conn, "totals")
    mark = readers.batch_version(filled.conn, "totals")

    assert mark is not None
    assert (mark.catalog, mark.batch.txid, mark.batch.attempt) == (made, 2, 1)
    assert readers.batch_version(filled.conn, "nothing") is None
