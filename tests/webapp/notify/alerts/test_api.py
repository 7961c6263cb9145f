"""GET /alerts: which alerts are listed, in which order, and to whom."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.notify.alerts.conftest import NOON, rule
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.notify.alerts.models import Alert

__all__ = ["rule"]


@pytest.fixture
def alert(rule):
    """Makes an alert that was told: an hour after the one before."""
    made = rule("ops")

    def make(pipeline="flights", *, over=False, **values) -> Alert:
        began_at = NOON + timedelta(hours=Alert.objects.count())
        values = {"verdict": "failed", "reason": "its driver has given up", "told": "failed"} | values
        ended_at = began_at + timedelta(minutes=5) if over else None
        return Alert.objects.create(rule=made, pipeline=pipeline, began_at=began_at, ended_at=ended_at, **values)

    return make


def asked(api, **parameters):
    return api.ask("GET", f"/alerts?{urlencode(parameters)}")


def listed(api, **parameters) -> list[int]:
    return [each["id"] for each in asked(api, **parameters).json()["alerts"]]


class TestAlerts:
    def test_an_alert_has_its_rule_reason_and_times(self, filled, alert, api):
        made = alert(verdict="lag above limit", figure="lag_seconds", reason="it waits", over=True)

        assert asked(api).json() == {
            "alerts": [
                {
                    "id": made.pk, "status": "over", "pipeline": "flights", "state": "", "rule": "ops",
                    "verdict": "lag above limit", "figure": "lag_seconds", "reason": "it waits",
                    "since": "2026-11-23T12:00:00+00:00", "until": "2026-11-23T12:05:00+00:00",
                }
            ],
            "next": None,
        }  # fmt: skip

    def test_those_of_a_pipeline_a_state_or_a_status_are_listed_newest_first(self, filled, alert, api):
        first, second = alert(over=True), alert(state="totals", verdict="not served")
        third = alert("elsewhere")

        assert listed(api) == [third.pk, second.pk, first.pk]
        assert listed(api, pipeline="flights") == [second.pk, first.pk]
        assert listed(api, state="totals") == [second.pk]
        assert listed(api, status="open") == [third.pk, second.pk]
        assert listed(api, status="over", pipeline="flights") == [first.pk]
        assert listed(api, pipeline="nothing") == []
        assert listed(api, status="", state="", pipeline="") == listed(api)

    def test_one_that_was_not_told_is_not_listed(self, filled, alert, api):
        alert(told="")

        assert listed(api) == []

    def test_all_are_on_one_page_each_while_new_ones_begin(self, filled, alert, api):
        made = [alert(state=f"state {number}").pk for number in range(5)]
        alert("elsewhere")

        page, found = asked(api, pipeline="flights", limit=2), []
        while True:
            found += [each["id"] for each in page.json()["alerts"]]
            if page.json()["next"] is None:
                break
            assert urlencode({"cursor": page.json()["next"]}) in page.headers["Link"]
            alert(state=f"new {len(found)}")
            page = asked(api, cursor=page.json()["next"], limit=2)

        assert found == made[::-1]
        assert "Link" not in page.headers

    @pytest.mark.parametrize(
        ("parameters", "said"),
        [
            ({"status": "waiting"}, "status must be one of open, over, got 'waiting'"),
            ({"limit": "0"}, "limit must be a number from 1 to 500"),
            ({"cursor": "nonsense"}, "cursor is not one of this server"),
            ({"rule": "ops"}, "unknown parameter 'rule'; there are cursor, limit, pipeline, state, status"),
        ],
    )
    def test_a_wrong_parameter_is_refused_by_its_name(self, filled, api, parameters, said):
        answer = asked(api, **parameters)

        assert answer.status_code == 400
        assert said in answer.json()["detail"]

    def test_a_cursor_of_other_parameters_is_refused(self, filled, alert, api):
        alert()
        alert(state="totals", verdict="not served")
        cursor = asked(api, pipeline="flights", limit=1).json()["next"]

        answer = asked(api, cursor=cursor, pipeline="elsewhere")

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")
        assert "pipeline was 'flights', not 'elsewhere'" in answer.json()["detail"]
        assert len(listed(api, cursor=cursor, pipeline="flights")) == 1


@pytest.mark.parametrize(
    "restriction", [{"states": ["totals"]}, {"key_prefix": ["JFK"], "states": ["flights_by_carrier"]}]
)
def test_a_restricted_key_gets_those_of_its_states_and_their_pipelines_without_rules(filled, alert, restriction):
    of_pipeline, own = alert(), alert(state=restriction["states"][0], verdict="not served")
    alert(state="flights_by_hour", verdict="not served")
    alert("elsewhere")
    api = CheckedClient(create_api_key("own", ["read"], **restriction)[1])

    assert [(each["id"], each["rule"]) for each in asked(api).json()["alerts"]] == [(own.pk, ""), (of_pipeline.pk, "")]
    assert listed(api, state="flights_by_hour") == []
    assert listed(api, pipeline="elsewhere") == []


def test_a_cursor_gives_a_restricted_key_no_others(filled, alert, api):
    alert("elsewhere")
    alert("elsewhere", state="x")
    cursor = asked(api, limit=1).json()["next"]

    assert listed(CheckedClient(create_api_key("own", ["read"], states=["totals"])[1]), cursor=cursor) == []


def test_its_statements_do_not_grow_with_alerts(filled, alert, api, django_assert_num_queries):
    for number in range(20):
        alert(state=f"state {number}")
    listed(api)

    with django_assert_num_queries(1):
        listed(api)
