"""Where the ledger has gone back, its batches are counted again: nothing of the epoch before is taken for today's."""

import re

import pytest

from tests.recovery_page import message_of
from tidegauge.state_backends.ledger.epochs import new_epoch

STATE = "flights_by_carrier"
KEYS = {"keys": [["JFK", "C01"]], "measures": ["flights"]}


@pytest.fixture
def again(filled):
    """Ends the epoch of the pipeline, whose rows stay as they are; returns the one before and the new one."""

    def again():
        before = epoch_of(filled)
        return before, new_epoch(filled.conn, "restored", filled.name)

    return again


def epoch_of(flights):
    return flights.conn.execute("SELECT epoch FROM tidegauge.pipeline WHERE name = %s", [flights.name]).fetchone()[0]


def asked(api, **when):
    return api.ask("POST", f"/states/{STATE}/lookup", KEYS | when)


class TestAnswers:
    @pytest.mark.parametrize(
        "path",
        [
            f"/states/{STATE}",
            f"/states/{STATE}/entries",
            f'/states/{STATE}/history?key=["JFK","C01"]',
            "/pipelines/flights",
        ],
    )
    def test_they_name_the_epoch(self, filled, api, path):
        assert api.ask("GET", path).json()["epoch"] == epoch_of(filled) != ""

    def test_lookups_of_one_and_of_several_states_name_it(self, filled, api):
        together = api.ask("POST", "/lookup", {"lookups": [{"state": STATE, **KEYS}]})

        assert asked(api).json()["epoch"] == together.json()["epoch"] == epoch_of(filled)

    def test_a_batch_in_the_past_has_it_too(self, filled, api):
        assert asked(api, at_txid=1).json()["epoch"] == epoch_of(filled)

    def test_a_stream_has_it_as_a_header(self, lasting, api):
        response = api.ask("GET", f"/states/{STATE}/export?format=csv")
        response.close()

        assert response.headers["Tidegauge-Epoch"] == epoch_of(lasting)

    def test_batches_name_the_epoch_they_were_begun_in(self, filled, again, api):
        before, now = again()
        filled.commit({("JFK", "C01"): 1})

        batches = api.ask("GET", "/pipelines/flights/batches").json()["batches"]

        assert [batch["epoch"] for batch in batches] == [now, before, before]


class TestETags:
    def test_an_equal_batch_of_another_epoch_is_no_304(self, again, api):
        tag = asked(api).headers["ETag"]
        again()

        response = api.ask("POST", f"/states/{STATE}/lookup", KEYS, headers={"If-None-Match": tag})

        assert (response.status_code, response.json()["txid"]) == (200, 2)
        assert response.headers["ETag"] != tag

    def test_nor_is_a_document_of_it(self, again, api):
        tag = api.ask("GET", f"/states/{STATE}").headers["ETag"]
        again()

        assert api.ask("GET", f"/states/{STATE}", headers={"If-None-Match": tag}).status_code == 200


class TestCursors:
    @pytest.mark.parametrize("order", ["", "&order_by=-flights", "&at_txid=committed"])
    def test_one_of_another_epoch_is_refused_with_what_to_do(self, again, api, order):
        cursor = api.ask("GET", f"/states/{STATE}/entries?limit=1{order}").json()["next"]
        before, now = again()

        response = api.ask("GET", f"/states/{STATE}/entries?cursor={cursor}")

        assert (response.status_code, response.json()["detail"]) == (
            410,
            f"state '{STATE}': these pages are of epoch {before!r} of the ledger, which went back and counts its "
            f"batches again under epoch {now!r}; start again without a cursor",
        )
        assert re.search(message_of("The database was restored, or a standby promoted", 1), response.json()["detail"])

    def test_pages_of_a_batch_that_the_ledger_lost_are_gone(self, filled, again, api):
        cursor = api.ask("GET", f"/states/{STATE}/entries?limit=1&order_by=-flights").json()["next"]
        again()
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 1")

        assert api.ask("GET", f"/states/{STATE}/entries?cursor={cursor}").status_code == 410


class TestMinTxid:
    def test_under_its_epoch_it_is_answered(self, filled, api):
        assert asked(api, min_txid=2, epoch=epoch_of(filled)).status_code == 200

    @pytest.mark.parametrize("when", [{"min_txid": 2}, {"min_txid": 9}, {"at_txid": 1}, {}])
    def test_under_another_epoch_it_is_a_409_at_once(self, again, api, while_waiting, when):
        before, now = again()
        pauses = while_waiting()

        response = asked(api, epoch=before, **when)

        problem = response.json()
        assert (response.status_code, problem["epoch"], problem["txid"], pauses) == (409, now, problem["txid"], [])
        assert problem["detail"] == (
            f"state '{STATE}': epoch {before!r} is no longer valid: the ledger was restored and is at batch "
            f"{problem['txid']} of epoch {now!r}; retry without min_txid, at_txid and epoch, and re-send lost writes"
        )
        assert re.search(message_of("The database was restored, or a standby promoted", 2), problem["detail"])

    def test_several_states_are_refused_as_one_is(self, again, api):
        before, _ = again()

        body = {"lookups": [{"state": STATE, **KEYS}], "min_txid": 2, "epoch": before}

        assert api.ask("POST", "/lookup", body).status_code == 409

    def test_a_known_etag_does_not_pass_it(self, again, api):
        before, now = again()
        tag = asked(api, epoch=now).headers["ETag"]

        response = api.ask("POST", f"/states/{STATE}/lookup", KEYS | {"epoch": before}, headers={"If-None-Match": tag})

        assert response.status_code == 409

    def test_an_epoch_that_is_no_text_is_a_400(self, filled, api):
        response = asked(api, min_txid=1, epoch=3)

        assert (response.status_code, response.json()["detail"]) == (
            400,
            "epoch must be the epoch of an answer, which is text",
        )
