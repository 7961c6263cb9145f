"""Rules: when an alert begins, becomes worse and is over, what is told of it and what is silenced."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.notify.alerts.conftest import NOON
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.notify.alerts import checking
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence
from tidegauge.webapp.notify.alerts.rules import USUAL
from tidegauge.webapp.notify.webhooks.models import Delivery

ADD = "/admin/tidegauge_alerts/alertrule/add/"
FORM = {"name": "ops", "verdicts": USUAL, "after_seconds": "60", "mail_to": "", "enabled": "on"}
WELL = {"count": 0, "unit": "files", "oldest": None}


class TestAnAlert:
    def test_it_is_told_once_and_again_when_it_is_over(self, filled, look, rule):
        rule()
        filled.report("failed", "no disk")

        assert look(15) == ["Tidegauge: flights failed"]
        assert look(600) == []

        filled.report("running", pending=WELL)
        assert look(645) == []
        assert look(700) == ["Tidegauge: flights failed is over"]
        assert look(1_200) == []
        assert Alert.objects.get().told == Alert.OVER

    def test_a_verdict_has_to_last(self, filled, look, rule):
        rule(after_seconds=300)
        filled.report("failed", "no disk")
        assert look(300) == []

        filled.report("running", pending=WELL)
        assert look(600) == []
        assert not Alert.objects.exists()

        filled.report("failed", "no disk")
        assert look(930) == ["Tidegauge: flights failed"]

    def test_one_that_comes_and_goes_is_one_alert(self, filled, look, rule):
        rule()
        told = []
        for second in range(15, 615, 30):
            filled.report("failed", "no disk")
            told += look(second)
            filled.report("running", pending=WELL)
            told += look(second + 15)

        assert told == ["Tidegauge: flights failed"]

    def test_one_that_becomes_worse_is_told_again(self, filled, look, rule):
        rule(verdicts=["retrying", "failed"])
        filled.fail("no disk", failures=1)
        assert look(15) == ["Tidegauge: flights retrying"]

        filled.report("failed", "no disk")
        assert look(120) == ["Tidegauge: flights failed"]

        filled.fail("no disk", failures=1)
        assert look(240) == []

    @pytest.mark.parametrize("status", ["stopped", "paused", "starting"])
    def test_a_driver_that_is_stopped_paused_or_started_mends_nothing(self, filled, look, rule, status):
        rule(verdicts=["failed"])
        filled.report("failed", "no disk")
        look(15)

        filled.report(status)

        assert look(600) == []
        assert Alert.objects.get().ended_at is None

    def test_a_lesser_problem_of_a_running_pipeline_ends_it(self, filled, look, rule):
        rule(verdicts=["failed"])
        filled.report("failed", "no disk")
        look(15)

        filled.report("running", pending=WELL | {"alarm": "the slot is full"})

        assert look(200) == ["Tidegauge: flights failed is over"]

    def test_a_pipeline_that_is_gone_has_none(self, filled, look, rule):
        rule()
        Catalog(filled.conn).register_pipeline("gone", spout="opaque")
        BatchLedger(filled.conn, "gone").acquire()
        driver_status.report(filled.conn, "gone", "failed", "no disk")
        assert look(15) == ["Tidegauge: gone failed"]

        filled.conn.execute("DELETE FROM tidegauge.driver WHERE pipeline = 'gone'")
        filled.conn.execute("DELETE FROM tidegauge.pipeline WHERE name = 'gone'")

        assert look(120) == ["Tidegauge: gone failed is over"]

    def test_while_no_worker_looked_no_time_is_counted(self, filled, look, rule):
        rule(after_seconds=300)
        filled.report("failed", "no disk")
        look(15)

        checking._look(NOON + timedelta(hours=3))

        assert not Delivery.objects.exists()
        assert look(3 * 3_600 + 300) == ["Tidegauge: flights failed"]

    def test_one_that_was_told_before_no_worker_looked_is_not_told_again(self, filled, look, rule):
        rule()
        filled.report("failed", "no disk")
        look(15)

        checking._look(NOON + timedelta(hours=3))

        assert Delivery.objects.count() == 1

    def test_many_at_once_are_one_message(self, filled, look, rule):
        rule()
        for name in [f"p{n:02}" for n in range(60)]:
            Catalog(filled.conn).register_pipeline(name, spout="opaque")
            BatchLedger(filled.conn, name).acquire()
            driver_status.report(filled.conn, name, "failed", "no disk")

        assert look(15) == ["Tidegauge: 60 alerts, 60 open"]
        body = Delivery.objects.get().body
        assert "p00 failed: its driver has given up, since 2026-11-23 12:00:15 UTC" in body
        assert ".. and 10 more; the dashboard shows all" in body

    def test_a_rule_that_is_disabled_finds_nothing(self, filled, look, rule):
        rule(enabled=False)
        filled.report("failed", "no disk")

        assert look(60) == []


class TestOfAState:
    def test_one_that_is_not_served_is_told(self, filled, look, rule):
        rule(states=["totals"])
        filled.conn.execute("UPDATE tidegauge.state SET finding = 'secret' WHERE name = 'totals'")

        assert look(15) == ["Tidegauge: state totals not served"]
        assert "secret" not in Delivery.objects.get().body

        filled.conn.execute("UPDATE tidegauge.state SET finding = '' WHERE name = 'totals'")
        assert look(120) == ["Tidegauge: state totals not served is over"]

    def test_one_whose_audit_found_deviations_is_told(self, filled, look, rule):
        rule()
        MaintenanceRun.objects.create(
            kind="audit", state_id="totals", requested_by="x", status="failed",
            progress={"steps": [{"step": "keys that deviate", "seen": 3, "removed": 0}]},
        )  # fmt: skip

        assert look(15) == ["Tidegauge: state totals deviating"]

    def test_a_rule_of_a_state_is_about_its_pipeline_too(self, filled, look, rule):
        rule("totals", states=["totals"])
        rule("elsewhere", states=["of another pipeline"], mail_to=["b@example.com"])
        filled.report("failed", "no disk")

        assert look(15) == ["Tidegauge: flights failed"]
        assert Delivery.objects.get().mail_to == ["ops@example.com"]


class TestSilenced:
    @pytest.mark.parametrize("pipeline", ["", "flights"])
    def test_nothing_is_told_until_then_and_the_rest_after(self, filled, look, rule, pipeline):
        rule()
        Silence.objects.create(pipeline=pipeline, until=NOON + timedelta(minutes=10))
        filled.report("failed", "no disk")

        assert look(590) == []
        assert look(620) == ["Tidegauge: flights failed"]

    def test_what_came_and_went_meanwhile_is_never_told(self, filled, look, rule):
        rule()
        Silence.objects.create(until=NOON + timedelta(minutes=10))
        filled.report("failed", "no disk")
        look(60)
        filled.report("running", pending=WELL)

        assert look(900) == []

    def test_a_silence_of_another_rule_or_pipeline_is_none(self, filled, look, rule):
        rule()
        Silence.objects.create(rule=rule("night", enabled=False), until=NOON + timedelta(minutes=10))
        Silence.objects.create(pipeline="another", until=NOON + timedelta(minutes=10))
        filled.report("failed", "no disk")

        assert look(15) == ["Tidegauge: flights failed"]


class TestByWebhook:
    def test_it_goes_through_the_outbox_of_the_webhook(self, filled, look, rule, webhook):
        rule(mail_to=[], webhooks=[webhook("alert")])
        filled.report("failed", "no disk")
        look(15)

        delivery = Delivery.objects.get()
        assert delivery.event == "alert.changed"
        assert '"verdict":"failed"' in delivery.body
        assert "no disk" not in delivery.body
        assert delivery.source.startswith(AlertRule.objects.get().source)

    def test_a_webhook_of_some_states_is_told_of_their_pipelines_alone(self, filled, look, rule, webhook):
        narrow = webhook("alert", name="narrow", states=["elsewhere"])
        rule(mail_to=[], webhooks=[narrow, webhook("alert")])
        filled.report("failed", "no disk")
        look(15)

        assert [each.webhook.name for each in Delivery.objects.all()] == ["hook"]


class TestOnThePage:
    def test_open_alerts_and_silences_are_shown(self, filled, look, rule, reader):
        rule()
        filled.report("failed", "no disk")
        look(15)
        Silence.objects.create(pipeline="flights", until=datetime(2100, 1, 1, tzinfo=UTC), reason="disk is replaced")

        page = text(reader.get("/pipelines/flights/"))

        assert "failed ops its driver has given up" in page
        assert "Silenced until 2100-01-01 00:00:00 UTC : disk is replaced" in page

    def test_a_restricted_user_sees_no_names_and_no_other_states(self, filled, look, rule, reader, django_user_model):
        rule("the secret plan", event_age_seconds=60)
        filled.conn.execute("UPDATE tidegauge.state SET finding = 'x' WHERE name = 'flights_by_carrier'")
        filled.report("failed", "the row was ABC,DE,1")
        look(15)
        Silence.objects.create(until=datetime(2100, 1, 1, tzinfo=UTC), reason="the secret plan")
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

        page = text(reader.get("/pipelines/flights/"))

        assert "failed its driver has given up" in page
        assert "secret" not in page
        assert "ABC" not in page
        assert "flights_by_carrier" not in page


class TestInTheAdmin:
    def test_a_rule_is_made_and_audited(self, filled, admin_client, mailbox):
        admin_client.post(ADD, FORM | {"mail_to": "a@example.com, b@example.com", "states": ["totals"]})

        made = AlertRule.objects.get()
        assert (made.mail_to, made.states) == (["a@example.com", "b@example.com"], ["totals"])
        assert AuditEntry.objects.get(target="alert rule ops").detail["mail_to"] == made.mail_to
        page = admin_client.get(f"/admin/tidegauge_alerts/alertrule/{made.pk}/change/").content.decode()
        assert 'value="a@example.com, b@example.com"' in page

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({}, "choose where to report: mail addresses, or a webhook that is about alerts"),
            ({"mail_to": "nobody"}, "'nobody' is not a valid mail address"),
            ({"mail_to": "a@example.com"}, "no mail server is configured: set EMAIL_URL in web and worker"),
            ({"verdicts": ["caught up"]}, "Select a valid choice"),
            ({"pipelines": ["nothing"]}, "Select a valid choice"),
        ],
    )
    def test_a_rule_that_could_tell_nobody_is_refused(self, filled, admin_client, change, said):
        answer = admin_client.post(ADD, FORM | change)

        assert said in text(answer)
        assert not AlertRule.objects.exists()

    def test_an_operator_silences_and_makes_no_rules(self, filled, django_user_model):
        client = Client()
        user = django_user_model.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="add_silence"))
        client.force_login(user)
        form = {"pipeline": "flights", "until_0": "2100-01-01", "until_1": "00:00", "reason": "disk"}

        client.post("/admin/tidegauge_alerts/silence/add/", form)

        assert client.post(ADD, FORM).status_code == 403
        silence = Silence.objects.get()
        assert (silence.pipeline, silence.created_by) == ("flights", user)
        assert AuditEntry.objects.get(action="admin.add").detail["pipeline"] == "flights"

    def test_what_was_sent_and_found_is_listed(self, filled, look, rule, webhook, admin_client):
        rule(webhooks=[webhook("alert")])
        filled.report("failed", "no disk")
        look(15)

        messages = text(admin_client.get("/admin/webhooks/delivery/"))
        alerts = text(admin_client.get("/admin/tidegauge_alerts/alert/"))

        assert "ops@example.com" in messages
        assert "pending" in messages
        assert "flights failed" in alerts
