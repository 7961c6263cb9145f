"""What people do with webhooks: save, rotate the secret, send a test, send again. The admin audits what is saved."""

from datetime import timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.notify.webhooks import following, outbox
from tidegauge.webapp.notify.webhooks.models import Cursor, Delivery, Webhook
from tidegauge.webapp.notify.webhooks.outbox import Message
from tidegauge.webapp.notify.webhooks.signing import new_seed, secret_of

TEST = "webhook.test"


def create(webhook: Webhook, *, by: User | None = None) -> str:
    """Store a new webhook, which is told what happens from now on. Returns its secret, which is not shown again."""
    webhook.secret, webhook.created_by = new_seed(), by
    webhook.save()
    transaction.on_commit(partial(following.follow, webhook))
    return secret_of(webhook.secret)


def update(webhook: Webhook) -> None:
    """Store an edited webhook. Topics that it already followed continue where they were; new ones begin now.

    A webhook that is enabled again is sent what it has missed.
    """
    webhook.rests_until = None
    webhook.save()
    Cursor.objects.filter(webhook=webhook).exclude(topic__in=following.topics(webhook)).delete()
    if webhook.enabled:
        transaction.on_commit(partial(following.follow, webhook))


def rotate(webhook: Webhook, grace: timedelta, *, by: str) -> str:
    """Give a webhook a new secret, and return it. Until `grace` has passed, messages are signed with both secrets."""
    with transaction.atomic():
        held = Webhook.objects.select_for_update(no_key=True).get(pk=webhook.pk)
        held.previous_secret, held.previous_until = held.secret, timezone.now() + grace
        held.secret = new_seed()
        held.save(update_fields=["secret", "previous_secret", "previous_until"])
        record("webhook.rotate", f"webhook {held}", by=by, both_until=held.previous_until.isoformat())
    webhook.refresh_from_db()
    return secret_of(webhook.secret)


def send_test(webhook: Webhook, *, by: str) -> Delivery:
    """Store a test message, which is sent like any other."""
    with transaction.atomic():
        outbox.add(webhook, [Message(TEST, {"webhook": webhook.name})])
        record("webhook.test", f"webhook {webhook}", by=by)
    return webhook.deliveries.latest("id")


def send_again(deliveries: QuerySet[Delivery], *, by: str) -> int:
    """Make messages due again, with the same ids and all attempts. Returns their number."""
    with transaction.atomic():
        for name in sorted(set(deliveries.values_list("webhook__name", flat=True))):
            messages = list(deliveries.filter(webhook__name=name).values_list("message_id", flat=True))
            record("webhook.send_again", f"webhook {name}", by=by, messages=messages[:100], count=len(messages))
        return outbox.send_again(deliveries)
