from urllib.parse import urlencode

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Count, DistinctCount, StateSpec
from tidegauge.webapp.accounts.services import create_api_key

GROUPS = "/states/flights_by_carrier/groups"


def asked(api, path=GROUPS, **parameters):
    return api.ask("GET", f"{path}?{urlencode(parameters, doseq=True)}")


class TestGroups:
    def test_entries_are_folded_by_their_first_key_column(self, filled, api):
        found = asked(api, by="origin", order_by="-flights", measures="flights,mean_delay").json()

        assert (found["state"], found["txid"], found["by"], found["complete"]) == (
            "flights_by_carrier", 2, ["origin"], True,
        )  # fmt: skip
        assert found["groups"] == [
            {"key": ["EWR"], "keys": 30, "value": {"flights": 3_565, "mean_delay": 12.5}},
            {"key": ["JFK"], "keys": 30, "value": {"flights": 2_565, "mean_delay": 12.5}},
        ]

    def test_conditions_a_prefix_and_a_batch_say_which(self, filled, api):
        found = asked(api, by="carrier", where=["flights>98", "carrier!=C00"], prefix="EWR", at_txid=1).json()

        assert [(group["key"], group["value"]["flights"]) for group in found["groups"]] == [(["C01"], 99)]
        assert found["txid"] == 1

    def test_a_limit_leaves_groups_out_and_says_so(self, filled, api):
        found = asked(api, by="carrier", limit=3).json()

        assert ([group["key"] for group in found["groups"]], found["complete"]) == ([["C00"], ["C01"], ["C02"]], False)

    @pytest.mark.parametrize(
        ("parameters", "said"),
        [
            ({}, "name one or more key columns to group by: origin, carrier"),
            ({"by": "flights"}, "no key column 'flights' to group by; there are origin, carrier"),
            ({"by": "origin", "order_by": "nothing"}, "no measure 'nothing'"),
            ({"by": "origin", "where": "nothing>1"}, "no column 'nothing'"),
            ({"by": "origin", "limit": "0"}, "limit must be a number from 1 to 1000"),
        ],
    )
    def test_what_cannot_be_grouped_is_a_400_that_names_it(self, filled, api, parameters, said):
        answer = asked(api, **parameters)

        assert answer.status_code == 400
        assert said in answer.json()["detail"]

    def test_json_values_are_refused_by_name(self, filled, api):
        spec = StateSpec("documents", key={"page": "text"}, value="jsonb")
        add_state(filled.conn, spec, {("a",): {"x": 1}})

        answer = asked(api, "/states/documents/groups", by="page")

        assert (answer.status_code, "holds JSON values" in answer.json()["detail"]) == (400, True)

    def test_more_keys_than_may_be_folded_are_a_400_and_sketches_have_a_tenth(self, filled, api, settings):
        settings.TIDEGAUGE_GROUP_MAX_KEYS = 60
        measures = {"n": Count(), "users": DistinctCount("user")}
        spec = StateSpec("visits", key={"page": "text", "day": "bigint"}, measures=measures)
        value = {"n": 1, "users": 0, "users_sketch": None, "users_type": None}
        add_state(filled.conn, spec, {("a", n): value for n in range(7)})

        assert asked(api, by="origin").status_code == 200
        assert asked(api, "/states/visits/groups", by="page", measures="n").json()["groups"][0]["keys"] == 7
        answer = asked(api, "/states/visits/groups", by="page")
        assert (answer.status_code, answer.json()["type"].rpartition("#")[2]) == (400, "range_too_large")
        settings.TIDEGAUGE_GROUP_MAX_KEYS = 59
        assert asked(api, by="origin").status_code == 400

    def test_a_restricted_key_folds_its_own_keys_alone(self, filled, db):
        restricted = CheckedClient(create_api_key("of JFK", ["read"], key_prefix=["JFK"])[1])

        found = asked(restricted, by="origin").json()

        assert [(group["key"], group["keys"]) for group in found["groups"]] == [(["JFK"], 30)]
        assert asked(restricted, by="origin", prefix="EWR").status_code == 403

    def test_rows_of_another_store_are_folded(self, connection, api):
        with redis_views(connection, key={"page": "text", "hour": "bigint"}) as views:
            views.commit({("/home", 1): 7, ("/home", 2): 9, ("/cart", 1): 1})

            found = asked(api, f"/states/{views.name}/groups", by="page", order_by="-views").json()["groups"]

        assert [(group["key"], group["value"]["views"]) for group in found] == [(["/home"], 16), (["/cart"], 1)]
