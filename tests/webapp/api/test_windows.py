from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.backends.postgres.tiles import compact_tiles
from tidegauge.webapp.accounts.services import create_api_key

WINDOWS = "/states/views_by_minute/windows"
NOW = datetime(2026, 3, 2, 7, 9, tzinfo=UTC)
SPEC = StateSpec(
    "views_by_minute",
    key={"page": "text", "start": "timestamptz"},
    measures={"views": Count(), "errors": Count("status >= 500")},
    tiles={"minute": timedelta(hours=2), "hour": timedelta(days=3)},
)


@pytest.fixture
def tiled(filled):
    """Views of four tiles of /home, and of one of /cart, before a compaction."""
    ages = {"/home": [(1, 7), (59, 5), (90, 3), (300, 2)], "/cart": [(60 * 30, 11)]}
    rows = {
        (page, NOW - timedelta(minutes=age)): {"views": views, "errors": 0}
        for page, found in ages.items()
        for age, views in found
    }
    add_state(filled.conn, SPEC, rows)
    list(compact_tiles(filled.conn, SPEC))
    return filled


TO = NOW.isoformat()
ASKED = {"keys": [["/home"], ["/cart"]], "windows": ["1h", "24h"], "to": TO}


def asked(api, path=WINDOWS, **body):
    return api.ask("POST", path, ASKED | body)


class TestWindows:
    def test_several_windows_of_several_keys_say_what_they_cover(self, tiled, api):
        found = asked(api, measures=["views"]).json()

        assert (found["state"], found["txid"], found["isolation"]) == ("views_by_minute", 2, "committed")
        assert found["windows"] == [
            {
                "window": "1h",
                "from": "2026-03-02T06:09:00+00:00",
                "to": "2026-03-02T07:09:00+00:00",
                "granularity": "minute",
            },
            {
                "window": "24h",
                "from": "2026-03-01T07:00:00+00:00",
                "to": "2026-03-02T07:09:00+00:00",
                "granularity": "hour",
            },
        ]
        assert found["results"] == [
            {"key": ["/home"], "values": [{"views": 12}, {"views": 17}]},
            {"key": ["/cart"], "values": [{"views": 0}, {"views": 0}]},
        ]

    def test_without_an_end_they_end_now(self, tiled, api):
        [window] = asked(api, to=None, windows=["90s"]).json()["windows"]

        age = datetime.now(UTC) - datetime.fromisoformat(window["to"])
        assert timedelta() <= age < timedelta(minutes=2)

    def test_a_client_that_has_the_answer_gets_a_304(self, tiled, api):
        tag = asked(api)["ETag"]

        again = api.ask("POST", WINDOWS, ASKED, headers={"If-None-Match": tag})

        assert again.status_code == 304

    def test_min_txid_waits_for_a_batch_as_in_lookups(self, tiled, api):
        reached, missed = asked(api, min_txid=2), asked(api, min_txid=3, wait_ms=10)

        assert (reached.status_code, missed.status_code) == (200, 409)
        assert (missed.json()["txid"], missed.json()["min_txid"], missed["Retry-After"]) == (2, 3, "1")
        other = asked(api, min_txid=2, epoch="of-another-one")
        assert (other.status_code, other.json()["epoch"]) == (409, reached.json()["epoch"])

    @pytest.mark.parametrize(
        ("body", "code", "said"),
        [
            ({"windows": []}, "invalid_request", "windows must be a list of 1 to 20 different windows such as '1h'"),
            ({"windows": ["1h", "1h"]}, "invalid_request", "different windows"),
            ({"windows": ["1 hour"]}, "invalid_request", "such as '1h'"),
            ({"windows": ["99999999d"]}, "invalid_request", "is not a whole number of seconds from 1 to"),
            ({"windows": [3600]}, "invalid_request", "such as '1h'"),
            ({"keys": [["/home", NOW.isoformat()]]}, "invalid_key", "key 0: expected 1 parts (page), got 2"),
            ({"keys": [[9]]}, "invalid_key", "key 0: page must be text, got 9"),
            ({"measures": ["clicks"]}, "invalid_request", "no measure 'clicks'"),
            ({"to": "2026-03-02T07:09:00"}, "invalid_request", "to must be a time with its offset"),
            ({"from": NOW.isoformat()}, "invalid_request", "unknown member 'from'"),
            ({"at_txid": 1, "at_time": NOW.isoformat()}, "invalid_request", "both name a batch"),
        ],
    )
    def test_a_wrong_request_is_a_400_that_names_it(self, tiled, api, body, code, said):
        answer = asked(api, **body)

        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert said in answer.json()["detail"]

    def test_a_window_over_tiles_that_are_gone_is_a_410(self, tiled, api):
        answer = asked(api, windows=["1h", "7d"])

        assert (answer.status_code, answer.json()["code"]) == (410, "tiles_gone")
        assert "tiles are kept from 2026-02-27T07:00:00+00:00" in answer.json()["detail"]

    def test_too_many_tiles_and_a_state_without_are_400s(self, tiled, api, settings):
        settings.TIDEGAUGE_GROUP_MAX_KEYS = 2

        assert asked(api).json()["code"] == "range_too_large"
        assert "has no tiles" in asked(api, "/states/totals/windows").json()["detail"]

    def test_a_bare_value_is_a_key_of_one_part(self, tiled, api):
        assert asked(api, keys=["/home"], windows=["1h"]).json()["results"][0]["key"] == ["/home"]

    def test_a_restricted_key_reads_its_own_keys_alone(self, tiled, db):
        restricted = CheckedClient(create_api_key("of /cart", ["read"], key_prefix=["/cart"])[1])

        assert asked(restricted, keys=[["/cart"]]).status_code == 200
        answer = asked(restricted)
        assert (answer.status_code, answer.json()["index"]) == (403, 0)

    def test_its_document_has_the_types_of_its_keys_and_others_have_no_windows(self, tiled, api):
        document = api.ask("GET", "/states/views_by_minute/openapi").json()

        assert "/api/v1/states/views_by_minute/windows" in document["paths"]
        schemas = document["components"]["schemas"]
        assert schemas["AskedWindowsRequest"]["properties"]["keys"]["items"]["description"] == "page (text)"
        assert "/api/v1/states/totals/windows" not in api.ask("GET", "/states/totals/openapi").json()["paths"]
