"""Messages are sent at least once, again and again until they are dead, each webhook for itself."""

from collections import Counter
from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.webapp.notify.webhooks.receiver import receiver
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.notify.webhooks import outbox, services, upkeep
from tidegauge.webapp.notify.webhooks.models import Delivery, Webhook
from tidegauge.webapp.notify.webhooks.outbox import LOCK, MOST_ATTEMPTS, UNLOCK, Message, send_due


def messages(webhook, count=1):
    outbox.add(webhook, [Message("webhook.test", {"n": n}) for n in range(count)])
    return list(webhook.deliveries.order_by("id"))


def hurry(webhook) -> None:
    """Let all pauses of a webhook be over."""
    webhook.deliveries.update(next_attempt_at=timezone.now())
    Webhook.objects.filter(pk=webhook.pk).update(rests_until=None)


def test_messages_are_sent_once_and_in_order(webhook, receiving):
    made = webhook()
    messages(made, 5)

    assert (send_due(), send_due()) == (5, 0)

    assert [each.data["n"] for each in receiving.received] == [0, 1, 2, 3, 4]
    assert set(made.deliveries.values_list("status", "attempts")) == {("delivered", 1)}


def test_a_retry_has_the_same_id_and_body_and_another_signature_time(webhook, receiving):
    made = webhook()
    [delivery] = messages(made)
    receiving.answers.append(503)

    send_due()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempts, delivery.log[0]["status"]) == ("pending", 1, 503)
    hurry(made)
    send_due()

    first, second = receiving.received
    assert (first.id, first.body) == (second.id, second.body)
    assert second.verified(made.shown_once)
    delivery.refresh_from_db()
    assert (delivery.status, [each["status"] for each in delivery.log]) == ("delivered", [503, 200])


def test_nothing_is_sent_before_its_pause_is_over(webhook, receiving):
    made = webhook()
    messages(made)
    receiving.answers.append(500)
    send_due()
    Webhook.objects.update(rests_until=None)

    assert send_due() == 0
    assert len(receiving.received) == 1


def test_pauses_grow_to_hours_and_make_about_a_day(webhook):
    [delivery] = messages(webhook())
    pauses = []
    for attempts in range(1, MOST_ATTEMPTS):
        delivery.attempts = attempts
        before = timezone.now()
        outbox._wait_or_give_up(delivery, outbox.SendAttempt("", 0.1, 500, "answered 500"))
        pauses.append(delivery.next_attempt_at - before)

    expected = [10 * 3**n for n in range(7)] + [6 * 3600] * 3
    for pause, seconds in zip(pauses, expected, strict=True):
        assert timedelta(seconds=0.79 * seconds) < pause < timedelta(seconds=1.21 * seconds)
    assert timedelta(hours=18) < sum(pauses, timedelta()) < timedelta(hours=26)


def test_a_message_is_dead_after_all_attempts_and_can_be_sent_again(webhook, receiving):
    made = webhook()
    [delivery] = messages(made)
    receiving.answers.extend([500] * MOST_ATTEMPTS)
    for _ in range(MOST_ATTEMPTS + 1):
        hurry(made)
        send_due()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempts, len(receiving.received)) == ("dead", MOST_ATTEMPTS, MOST_ATTEMPTS)
    assert outbox.backlogs()[0].dead == 1

    services.send_again(Delivery.objects.filter(pk=delivery.pk), by="ann")
    send_due()

    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempts, len({each.id for each in receiving.received})) == ("delivered", 1, 1)
    entry = AuditEntry.objects.get(action="webhook.send_again")
    assert (entry.actor, entry.target, entry.detail["count"]) == ("ann", "webhook hook", 1)


def test_a_receiver_that_is_gone_disables_its_webhook(webhook, receiving):
    made = webhook()
    messages(made, 2)
    receiving.answers.append(410)

    send_due()

    made.refresh_from_db()
    assert (made.enabled, len(receiving.received)) == (False, 1)
    assert "410" in made.problem
    assert sorted(made.deliveries.values_list("status", flat=True)) == ["dead", "pending"]
    assert AuditEntry.objects.filter(action="webhook.disable", target="webhook hook").exists()
    made.enabled = True
    services.update(made)
    assert send_due() == 1


def test_a_webhook_that_fails_rests_and_others_go_on(webhook, receiving, monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_REST", outbox.LONGEST_REST)
    with receiver() as broken:
        broken.answers.extend([500] * 100)
        bad, good = webhook(name="bad", url=broken.url), webhook(name="good")
        messages(bad, 50)
        messages(good, 50)

        send_due()

        assert (len(broken.received), len(receiving.received)) == (1, 50)
    bad.refresh_from_db()
    assert bad.failures == 1
    assert bad.rests_until > timezone.now()


def test_silent_receivers_do_not_hold_up_the_others(webhook, receiving, settings, monkeypatch):
    settings.TIDEGAUGE_WEBHOOK_SECONDS = 2
    monkeypatch.setattr(outbox, "FIRST_REST", outbox.LONGEST_REST)
    with receiver() as silent:
        silent.hold.clear()
        for n in range(outbox.THREADS - 1):
            messages(webhook(name=f"a{n}", url=silent.url), 20)
        messages(webhook(name="z"), 20)

        send_due()

        # Each silent one had one attempt, and now rests.
        assert (len(receiving.received), len(silent.received)) == (20, outbox.THREADS - 1)


def test_webhooks_take_turns_however_much_one_of_them_has(webhook, monkeypatch):
    monkeypatch.setattr(outbox, "THREADS", 1)
    messages(webhook(name="busy"), 10)
    messages(webhook(name="calm"), 2)
    turns, order = Counter(), []

    for _ in range(4):
        [delivery] = outbox._next(turns, [])
        turns[delivery.webhook_id] += 1
        order.append(delivery.webhook.name)
        outbox.keep(delivery, outbox.SendAttempt("", 0.1, 200, ""))

    assert order == ["busy", "calm", "busy", "calm"]


def test_a_second_sender_sends_nothing_meanwhile(webhook, receiving):
    messages(webhook())
    with readers.own_connection() as other:
        other.execute(LOCK)
        assert send_due() == 0
        other.execute(UNLOCK)

    assert send_due() == 1


def test_another_sender_may_begin_before_the_server_has_ended_the_session_of_the_one_before(webhook, monkeypatch):
    with readers.own_connection() as kept, readers.own_connection() as other:
        monkeypatch.setattr(readers, "own_connection", lambda work: nullcontext(kept))

        send_due()

        assert other.execute(LOCK).fetchone() == other.execute(UNLOCK).fetchone() == (True,)


def test_an_attempt_that_was_not_recorded_is_made_again_with_the_same_id(webhook, receiving, monkeypatch):
    messages(webhook())

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "keep", crash)
        with pytest.raises(KeyboardInterrupt):
            send_due()
    send_due()

    assert len(receiving.received) == 2
    assert len({each.id for each in receiving.received}) == 1


def test_a_message_whose_webhook_was_deleted_meanwhile_is_forgotten(webhook):
    made = webhook()
    [delivery] = messages(made)
    made.delete()

    outbox.keep(delivery, outbox.SendAttempt("", 0.1, 200, ""))

    assert not Delivery.objects.exists()


def test_old_messages_are_deleted_and_pending_ones_kept(webhook, receiving, settings):
    made = webhook()
    old, young, pending = messages(made, 3)
    long_ago = timezone.now() - timedelta(days=settings.TIDEGAUGE_WEBHOOK_KEEP_DAYS + 1)
    Delivery.objects.filter(pk__in=[old.pk, young.pk]).update(status="delivered", finished_at=timezone.now())
    Delivery.objects.filter(pk=old.pk).update(finished_at=long_ago, created_at=long_ago)
    Delivery.objects.filter(pk=pending.pk).update(created_at=long_ago)

    upkeep.forget_old()

    assert set(made.deliveries.all()) == {young, pending}


def test_backlogs_are_counted_by_webhook(webhook):
    made, _ = webhook(name="a"), webhook(name="b")
    messages(made, 2)

    assert [(each.webhook, each.pending, each.dead) for each in outbox.backlogs()] == [("a", 2, 0), ("b", 0, 0)]
