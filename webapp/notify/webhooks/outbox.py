"""The outbox of webhooks and mails: stores messages, and sends them until they are delivered or given up.

A message is sent at least once: it stays pending until its attempt is recorded, so if a worker dies in between, it is
sent again with the same id. Only one worker sends at a time. Webhooks take turns with one message each. After a failure
a webhook rests, so a silent receiver only now and then takes one of the threads for TIDEGAUGE_WEBHOOK_SECONDS.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson
from django.db import transaction
from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.notify.webhooks.models import Delivery, Webhook
from tidegauge.webapp.notify.webhooks.sending import GONE, SendAttempt, attempt

# Waits of 10 s, 30 s, 90 s .. 6 hours, about 21 hours in total.
MOST_ATTEMPTS = 11
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=6)
JITTER = 0.2
# How long a webhook rests after failed attempts in a row.
FIRST_REST, LONGEST_REST = timedelta(seconds=5), timedelta(minutes=5)

MOST_LOGGED = 2 * MOST_ATTEMPTS
# Per webhook; its cursors wait while it has so many.
MOST_PENDING = 1_000

THREADS = 16
# After this time a task starts no more attempts, so that the worker gets to other tasks.
TURN_SECONDS = 30.0

SENDER = "webhooks"
LOCK = "SELECT pg_try_advisory_lock(hashtextextended('tidegauge webhooks', 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('tidegauge webhooks', 0))"


@dataclass(frozen=True)
class Message:
    """event: its `type`. source: what it is about, if there must be only one message about it."""

    event: str
    data: dict[str, Any]
    source: str | None = None
    at: datetime = field(default_factory=timezone.now)

    @property
    def body(self) -> str:
        return orjson.dumps({"type": self.event, "timestamp": self.at, "data": self.data}).decode()


@dataclass(frozen=True)
class News:
    """What a webhook has not been told yet, oldest first. position: of its cursor then. more: whether more is left."""

    messages: list[Message]
    position: Any
    more: bool = False


@dataclass(frozen=True)
class Backlog:
    """oldest: when the oldest pending message was stored. dead: number of messages that were given up."""

    webhook: str
    pending: int
    oldest: datetime | None
    dead: int


def add(webhook: Webhook, messages: Iterable[Message]) -> None:
    """Store messages, oldest first, in the caller's transaction; skip one if a message with its source exists."""
    rows = [
        Delivery(webhook=webhook, message_id=_new_id(), event=each.event, source=each.source, body=each.body)
        for each in messages
    ]
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)


def add_mail(to: Sequence[str], subject: str, text: str, *, event: str, source: str) -> None:
    """Store a mail, in the caller's transaction."""
    Delivery.objects.create(
        mail_to=to, subject=subject, body=text, message_id=_new_id(), event=event, source=source
    )  # fmt: skip


def add_refused(webhook: Webhook, message: Message) -> None:
    """Store a message that is given up at once, because too many others are pending."""
    made = SendAttempt(message.at.isoformat(), 0.0, None, f"{MOST_PENDING} messages of the webhook are pending already")
    Delivery.objects.create(
        webhook=webhook, message_id=_new_id(), event=message.event, source=message.source, body=message.body,
        status=Delivery.Status.DEAD, log=[asdict(made)], finished_at=message.at,
    )  # fmt: skip


def _new_id() -> str:
    return f"msg_{uuid4().hex}"


def room(webhook: Webhook) -> int:
    """Return how many more messages may be pending for a webhook."""
    return max(0, MOST_PENDING - webhook.deliveries.filter(status=Delivery.Status.PENDING).count())


def send_due() -> int:
    """Send what is due, for TURN_SECONDS at most, unless another worker does. Returns the number of attempts."""
    with readers.own_connection("sending webhooks") as conn:
        # A lock of the session, because it ends with the connection, so that a killed worker does not keep it.
        row: Any = conn.execute(LOCK).fetchone()
        if not row[0]:
            return 0
        try:
            return _send_due()
        finally:
            # Because the server ends a closed session some milliseconds later, and until then nobody else could send.
            conn.execute(UNLOCK)


def _send_due() -> int:
    until = time.monotonic() + TURN_SECONDS
    turns: Counter[int | None] = Counter()
    under_way: dict[Future[SendAttempt], Delivery] = {}
    with ThreadPoolExecutor(THREADS, thread_name_prefix="webhooks") as pool:
        while True:
            if time.monotonic() < until:
                for delivery in _next(turns, under_way.values()):
                    turns[delivery.webhook_id] += 1
                    under_way[pool.submit(attempt, delivery)] = delivery
            if not under_way:
                return turns.total()
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                keep(under_way.pop(future), future.result())


def _next(turns: Counter[int | None], under_way: Iterable[Delivery]) -> list[Delivery]:
    """Return the first due message of each webhook with the fewest turns, as many as there are free threads."""
    busy = {delivery.webhook_id for delivery in under_way}
    firsts: dict[int, int] = dict(due().exclude(pk__in=busy).values_list("pk", "due"))
    chosen = sorted(firsts, key=lambda webhook: (turns[webhook], firsts[webhook]))[: THREADS - len(busy)]
    return list(Delivery.objects.select_related("webhook").filter(pk__in=[firsts[each] for each in chosen]))


def due() -> QuerySet[Any]:
    """Return the webhooks with a due message, whose id is the attribute `due`."""
    now = timezone.now()
    pending = Delivery.objects.filter(
        webhook=OuterRef("pk"), status=Delivery.Status.PENDING, next_attempt_at__lte=now
    ).order_by("next_attempt_at", "id")
    ready = Webhook.objects.filter(Q(rests_until=None) | Q(rests_until__lte=now), enabled=True)
    return ready.annotate(due=Subquery(pending.values("pk")[:1])).exclude(due=None)


def keep(delivery: Delivery, made: SendAttempt) -> None:
    """Record an attempt, and what becomes of the message and its webhook."""
    with transaction.atomic():
        # no_key, so that new messages, whose foreign key locks the webhook, can be stored at the same time.
        held = Delivery.objects.select_for_update(no_key=True).filter(pk=delivery.pk).first()
        if held is None:  # deleted during the attempt
            return
        held.attempts += 1
        held.log = [*held.log, asdict(made)][-MOST_LOGGED:]
        if made.is_delivered:
            _finish(held, Delivery.Status.DELIVERED)
        else:
            _wait_or_give_up(held, made)
        held.save()
        for webhook in Webhook.objects.select_for_update(no_key=True).filter(deliveries=held):
            _keep_of_webhook(webhook, made)


def _keep_of_webhook(webhook: Webhook, made: SendAttempt) -> None:
    if made.is_delivered:
        webhook.failures, webhook.rests_until = 0, None
    else:
        webhook.failures += 1
        webhook.rests_until = timezone.now() + _growing(FIRST_REST, 2, webhook.failures, LONGEST_REST)
    if made.status == GONE and webhook.enabled:
        webhook.enabled, webhook.problem = False, "the receiver answered 410 Gone, so it is disabled"
        record("webhook.disable", f"webhook {webhook}", by=SENDER, reason="410 Gone")
    webhook.save(update_fields=["failures", "rests_until", "enabled", "problem"])


def _wait_or_give_up(delivery: Delivery, made: SendAttempt) -> None:
    if made.status == GONE or delivery.attempts >= MOST_ATTEMPTS:
        _finish(delivery, Delivery.Status.DEAD)
    else:
        pause = _growing(FIRST_WAIT, 3, delivery.attempts, LONGEST_WAIT)
        delivery.next_attempt_at = timezone.now() + pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311


def _finish(delivery: Delivery, status: str) -> None:
    delivery.status, delivery.finished_at = status, timezone.now()


def _growing(first: timedelta, factor: int, times: int, longest: timedelta) -> timedelta:
    return min(first * factor ** min(times - 1, 20), longest)


def send_again(deliveries: QuerySet[Delivery]) -> int:
    """Make messages due now, with all attempts again, whatever their status. Returns their number."""
    now = timezone.now()
    webhooks = list(deliveries.values_list("webhook", flat=True).distinct())
    again = deliveries.update(status=Delivery.Status.PENDING, attempts=0, next_attempt_at=now, finished_at=None)
    Webhook.objects.filter(pk__in=webhooks).update(rests_until=None)
    return again


def backlogs() -> list[Backlog]:
    """Return the pending and dead messages of each webhook."""
    kept = Delivery.objects.exclude(status=Delivery.Status.DELIVERED).order_by()
    counted = kept.values_list("webhook", "status").annotate(Count("id"), Min("created_at"))
    found = {(webhook, status): (count, oldest) for webhook, status, count, oldest in counted}
    none = (0, None)
    return [
        Backlog(name, *found.get((pk, Delivery.Status.PENDING), none), found.get((pk, Delivery.Status.DEAD), none)[0])
        for pk, name in Webhook.objects.values_list("pk", "name")
    ]
