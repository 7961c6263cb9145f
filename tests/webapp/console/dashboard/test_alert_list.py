"""The page of alerts: what is open and over, silences, rules and their test messages, and who may do what."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence, VerdictPeriod
from tidegauge.webapp.notify.webhooks.models import Delivery

PAGE = "/alerts"


@pytest.fixture
def rule(filled) -> AlertRule:
    """A rule with one open and one past alert about `flights`, which had failed for an hour three times last week."""
    now = timezone.now()
    for days in (1, 2, 3):
        began = now - timedelta(days=days)
        period = {"pipeline": "flights", "is_current": False, "began_at": began, "until": began + timedelta(hours=1)}
        VerdictPeriod.objects.create(verdict="failed", **period)
        after = period | {"began_at": period["until"], "until": began + timedelta(hours=2)}
        VerdictPeriod.objects.create(verdict="well", **after)
    made = AlertRule.objects.create(name="on call", verdicts=["failed"], mail_to=["ann@example.com"])
    told = {"rule": made, "pipeline": "flights", "began_at": now - timedelta(hours=3)}
    Alert.objects.create(verdict="failed", told="failed", reason="it gave up", **told)
    Alert.objects.create(verdict="lost", told=Alert.OVER, reason="it vanished", ended_at=now, **told)
    return made


def may(user: str, *codenames: str) -> None:
    found = Permission.objects.filter(codename__in=codenames, content_type__app_label="tidegauge_alerts")
    User.objects.get(username=user).user_permissions.set(found)


def test_it_shows_what_is_open_what_is_over_and_how_often_rules_would_have_fired(rule, admin_client):
    page = text(admin_client.get(PAGE))

    assert "1 open alert flights failed It gave up" in page
    assert "on call all pipelines failed for 60 s ann@example.com 1 3 none Send a test" in page
    assert "Past alerts" in page
    assert "Lost flights on call it vanished" in page


def test_past_alerts_have_pages(rule, admin_client, monkeypatch):
    monkeypatch.setattr("tidegauge.webapp.console.dashboard.alert_list.PAGE_ALERTS", 1)
    now = timezone.now()
    Alert.objects.create(
        rule=rule, pipeline="flights", verdict="stale", told=Alert.OVER, reason="late", began_at=now, ended_at=now
    )

    first = admin_client.get(PAGE)

    assert "Stale" in text(first)
    assert "vanished" not in text(first)
    assert "vanished" in text(admin_client.get(PAGE, {"before": first.context["older"]}))


def test_who_acts_on_an_alert_stays_on_the_page(rule, admin_client):
    answer = admin_client.post("/incidents/silence", {"pipeline": "flights", "until": "", "next": "alerts"})

    assert answer.headers["Location"] == PAGE


def test_a_silence_is_added_with_its_time_and_ended(rule, admin_client):
    until = timezone.now().replace(microsecond=0) + timedelta(hours=5)
    admin_client.post("/alerts/silences", {"pipeline": "flights", "until": until.isoformat(), "reason": "a disk"})

    made = Silence.objects.get()
    assert (made.pipeline, made.until, made.created_by.username) == ("flights", until, "admin")
    assert "silenced until" in text(admin_client.get(PAGE))

    admin_client.post(f"/alerts/silences/{made.pk}/end")
    assert "Nothing is silenced." in text(admin_client.get(PAGE))
    assert [each.action for each in AuditEntry.objects.order_by("id")][-2:] == ["alert.silence", "alert.unsilence"]


def test_a_silence_in_the_past_is_refused_with_the_reason(rule, admin_client):
    page = admin_client.post("/alerts/silences", {"until": "2020-01-01T10:00"}, follow=True)

    assert "Nothing was silenced: Until: enter a time in the future." in text(page)
    assert not Silence.objects.exists()


def test_a_test_message_reaches_the_outbox_and_its_row(rule, admin_client):
    admin_client.post(f"/alerts/rules/{rule.pk}/test")

    sent = Delivery.objects.get()
    assert (sent.mail_to, sent.event) == (["ann@example.com"], "alert.test")
    assert "sent by admin. Nothing has happened." in sent.body
    assert "pending" in text(admin_client.get(PAGE))


def test_a_template_says_how_often_it_would_have_fired_and_becomes_a_rule(rule, admin_client, settings):
    settings.TIDEGAUGE_MAIL = True
    page = admin_client.get("/alerts/rules/new?template=down")
    assert "It would have fired 3 times last week" in text(page)
    given = {"name": "down", "verdicts": ["failed", "lost"], "after_seconds": "7200", "try": "1"}

    assert "It would have fired 0 times last week" in text(admin_client.post("/alerts/rules/new", given))
    assert not AlertRule.objects.filter(name="down").exists()

    del given["try"]
    refused = admin_client.post("/alerts/rules/new", given)
    assert (refused.status_code, "choose where to report" in text(refused).lower()) == (400, True)
    admin_client.post("/alerts/rules/new", given | {"mail_to": "bob@example.com"})
    assert AlertRule.objects.get(name="down").verdicts == ["failed", "lost"]


ACTS = ["/alerts/silences", "/alerts/silences/1/end", "/alerts/rules/1/test", "/alerts/rules/new"]


def test_a_reader_sees_alerts_and_may_do_nothing(rule, reader: Client):
    page = text(reader.get(PAGE))

    assert "1 open alert" in page
    for word in ("Acknowledge", "Send a test", "New rule", "ann@example.com"):
        assert word not in page
    assert [reader.post(address).status_code for address in ACTS] == [403, 403, 403, 403]


def test_a_restricted_person_sees_the_own_alerts_without_rules_and_does_nothing(rule, reader):
    may("reader", "add_silence", "change_silence", "view_alertrule", "add_alertrule", "change_alertrule")
    Restriction.objects.create(user=User.objects.get(username="reader"), states=["totals"])

    page = text(reader.get(PAGE))

    assert "1 open alert" in page
    assert "on call" not in page
    assert "Silences" not in page
    assert [reader.post(address).status_code for address in ACTS] == [403, 403, 403, 403]
