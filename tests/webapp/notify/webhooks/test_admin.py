"""Webhooks in the admin: made, tried, rotated, sent again, by those who may."""

import re

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.notify.webhooks import outbox
from tidegauge.webapp.notify.webhooks.models import Delivery, Webhook

ADD, LIST = "/admin/webhooks/webhook/add/", "/admin/webhooks/webhook/"
DELIVERIES = "/admin/webhooks/delivery/"


@pytest.fixture
def signed_in(db, django_user_model):
    """Returns a client of a group's member who may enter the admin."""

    def signed_in(group, **restricted):
        user = django_user_model.objects.create_user(group, is_staff=True)
        user.groups.add(Group.objects.get(name=group))
        if restricted:
            Restriction.objects.create(user=user, **restricted)
        client = Client()
        client.force_login(user)
        return client

    return signed_in


def written(**fields):
    return {
        "name": "hook", "url": "https://hook.example/x?token=t0p", "kinds": ["commit"],
        "states": ["flights_by_carrier"], "key_prefix": "[]", "keys": "[]", "enabled": "on",
    } | fields  # fmt: skip


def act_of(webhook, act):
    return reverse(f"admin:webhooks_webhook_{act}", args=[webhook.pk])


def text(answer):
    return answer.content.decode()


class TestForm:
    def test_an_admin_makes_one_and_sees_its_secret_once(self, filled, signed_in):
        answer = signed_in("admin").post(ADD, written())

        webhook = Webhook.objects.get()
        assert (webhook.created_by.username, webhook.states, webhook.enabled) == ("admin", ["flights_by_carrier"], True)
        [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]{44}", text(answer))
        assert answer.headers["Cache-Control"].startswith("max-age=0")
        page = text(signed_in("operator").get(f"{LIST}{webhook.pk}/change/"))
        assert (secret in page, "whsec_" in page, webhook.secret in page) == (False, False, False)
        entry = AuditEntry.objects.get(target="webhook hook")
        assert (entry.action, entry.detail["host"]) == ("admin.add", "hook.example")
        assert "t0p" not in str(entry.detail)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"url": "http://hook.example/"}, "must begin with https://"),
            ({"url": "https://ann:secret@hook.example/"}, "user name or password"),
            ({"url": "https://169.254.169.254/"}, "is not public"),
            ({"states": []}, "choose the states whose commits are sent"),
            ({"key_prefix": '["JFK", "AA", "x"]'}, "flights_by_carrier: "),
            ({"key_prefix": "[3]"}, "flights_by_carrier: "),
            ({"keys": '["JFK"]'}, "flights_by_carrier: "),
            ({"keys": '{"a": 1}'}, "JSON list of lists"),
            ({"keys": '[["JFK", "AA"]]', "key_prefix": '["JFK"]'}, "exclude each other"),
            ({"kinds": ["maintenance"], "key_prefix": '["JFK"]'}, "are about commits"),
            ({"kinds": []}, "This field is required"),
        ],
    )
    def test_a_mistake_is_explained(self, filled, admin_client, fields, says):
        answer = admin_client.post(ADD, written(**fields))

        assert answer.status_code == 200
        assert says in text(answer)
        assert not Webhook.objects.exists()

    def test_one_is_edited_and_keeps_its_secret(self, filled, webhook, receiving, admin_client):
        made = webhook("commit", states=["totals"])

        admin_client.post(f"{LIST}{made.pk}/change/", written(url=receiving.url, kinds=["maintenance"], states=[]))

        edited = Webhook.objects.get()
        assert (edited.kinds, edited.states, edited.secret) == (["maintenance"], [], made.secret)
        assert not edited.cursors.filter(topic="commits of totals").exists()


class TestActs:
    def test_a_test_is_sent_and_its_answer_shown(self, webhook, receiving, admin_client):
        made = webhook()
        assert "Send a test to hook?" in text(admin_client.get(act_of(made, "send_test")))
        assert not made.deliveries.exists()
        receiving.answers.append(418)

        admin_client.post(act_of(made, "send_test"), {"confirmed": "yes"})
        outbox.send_due()

        delivery = Delivery.objects.get()
        page = text(admin_client.get(f"{DELIVERIES}{delivery.pk}/change/"))
        assert "answered 418" in page
        assert "webhook.test" in page
        assert delivery.message_id in page
        assert "failing" in text(admin_client.get(LIST))

    def test_a_rotation_shows_a_new_secret_and_keeps_the_old_one_meanwhile(self, webhook, receiving, admin_client):
        made = webhook()
        assert "current secret stay valid" in text(admin_client.get(act_of(made, "rotate")))

        page = text(admin_client.post(act_of(made, "rotate"), {"grace": "3600"}))
        [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]{44}", page)
        admin_client.post(act_of(made, "send_test"), {"confirmed": "yes"})
        outbox.send_due()

        assert secret != made.shown_once
        [received] = receiving.received
        assert received.verified(secret) == received.verified(made.shown_once)
        assert AuditEntry.objects.filter(action="webhook.rotate", target="webhook hook").exists()

    def test_a_dead_message_is_sent_again(self, webhook, receiving, admin_client):
        made = webhook()
        admin_client.post(act_of(made, "send_test"), {"confirmed": "yes"})
        made.deliveries.update(status="dead")
        delivery = made.deliveries.get()

        admin_client.post(DELIVERIES, {"action": "send_again", "_selected_action": [delivery.pk]})

        assert outbox.send_due() == 1
        assert [each.id for each in receiving.received] == [delivery.message_id]

    def test_the_path_of_the_url_is_in_no_list(self, webhook, admin_client):
        webhook(url="http://127.0.0.1:9/t0p-secret")

        page = text(admin_client.get(LIST))

        assert ("t0p-secret" in page, "127.0.0.1" in page) == (False, True)


class TestPermissions:
    def test_an_operator_views_and_changes_nothing(self, webhook, signed_in):
        made, operator = webhook(), signed_in("operator")
        outbox.add(made, [outbox.Message("webhook.test", {})])
        delivery = made.deliveries.get()

        assert operator.get(LIST).status_code == operator.get(DELIVERIES).status_code == 200
        assert operator.get(ADD).status_code == 403
        for act in ("send_test", "rotate"):
            assert operator.post(act_of(made, act), {"confirmed": "yes", "grace": "0"}).status_code == 403
        operator.post(DELIVERIES, {"action": "send_again", "_selected_action": [delivery.pk]})
        assert not AuditEntry.objects.filter(action__startswith="webhook.").exists()

    def test_a_viewer_without_the_permission_sees_no_webhook(self, webhook, signed_in):
        made = webhook()

        assert signed_in("viewer").get(f"{LIST}{made.pk}/change/").status_code == 403

    def test_a_restricted_person_makes_none(self, filled, signed_in):
        admin = signed_in("admin", states=["totals"])

        assert admin.post(ADD, written()).status_code != 200
        assert not Webhook.objects.exists()
