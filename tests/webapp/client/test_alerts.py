"""Alerts of a client."""

import pytest
from django.utils.timezone import now

from tidegauge.client import RequestError, alerts
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule


@pytest.fixture
def told(transactional_db) -> list[int]:
    """Ids of five alerts, newest first, of which the first to begin is over."""
    rule = AlertRule.objects.create(name="ops", verdicts=["failed"], mail_to=["a@example.com"])
    values = {"rule": rule, "verdict": "not served", "reason": "it is not served", "began_at": now(), "told": "x"}
    made = [Alert.objects.create(pipeline="flights", state=f"state {n}", **values) for n in range(5)]
    Alert.objects.filter(pk=made[0].pk).update(ended_at=now())
    return [alert.pk for alert in reversed(made)]


class TestAlerts:
    def test_all_pages_are_one_iterator(self, client, told, monkeypatch):
        monkeypatch.setattr(alerts, "PAGE_ALERTS", 2)

        found = list(client.alerts())

        assert [alert["id"] for alert in found] == told
        assert (found[0]["status"], found[0]["state"], found[0]["until"]) == ("open", "state 4", None)

    def test_a_limit_ends_it(self, client, told, monkeypatch):
        monkeypatch.setattr(alerts, "PAGE_ALERTS", 2)

        assert [alert["id"] for alert in client.alerts(limit=3)] == told[:3]
        assert list(client.alerts(limit=0)) == []

    def test_those_of_a_pipeline_state_or_status(self, client, told):
        assert [alert["id"] for alert in client.alerts(status="over", pipeline="flights")] == told[-1:]
        assert [alert["id"] for alert in client.alerts(state="state 3")] == [told[1]]
        assert list(client.alerts(pipeline="elsewhere")) == []

    def test_a_wrong_status_is_refused(self, client, told):
        with pytest.raises(RequestError, match="status must be one of open, over"):
            list(client.alerts(status="waiting"))
