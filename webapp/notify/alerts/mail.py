"""Sends the mails about alerts, which the outbox keeps: at least once each, and never for long at a time.

A mail stays pending until its attempt is recorded, so if a worker dies while it sends one, the mail is sent again.
"""

import smtplib
import time

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tidegauge.webapp.notify.webhooks import outbox
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.notify.webhooks.sending import SendAttempt

# After TURN_SECONDS a task starts no more mails, so that the worker gets to other tasks. TASK_SECONDS also ends a
# running attempt, because a server that sends byte by byte could prolong it.
TURN_SECONDS, TASK_SECONDS = 30.0, 60

MOST_CHARACTERS = 500


def due() -> QuerySet[Delivery]:
    pending = Delivery.objects.filter(webhook=None, status=Delivery.Status.PENDING)
    return pending.filter(next_attempt_at__lte=timezone.now()).order_by("next_attempt_at", "id")


def send_due() -> int:
    """Send what is due, for TURN_SECONDS at most. Returns the number of attempts."""
    until, attempts = time.monotonic() + TURN_SECONDS, 0
    while time.monotonic() < until and _send_next():
        attempts += 1
    return attempts


def _send_next() -> bool:
    with transaction.atomic():
        # The row stays locked until the attempt is recorded, so that no other worker sends the mail.
        mail = due().select_for_update(skip_locked=True).first()
        if mail is None:
            return False
        began, at = time.monotonic(), timezone.now()
        error = _send(mail)[:MOST_CHARACTERS]
        outbox.keep(mail, SendAttempt(at.isoformat(), round(time.monotonic() - began, 3), None, error))
    return True


def _send(mail: Delivery) -> str:
    """Return why a mail was not sent; empty if it was."""
    if not settings.TIDEGAUGE_MAIL:
        return "no mail server is configured: set EMAIL_URL"
    # On one line, because Django refuses a subject with a newline.
    subject = " ".join(mail.subject.split())
    try:
        EmailMessage(subject, mail.body, to=mail.mail_to, headers={"Auto-Submitted": "auto-generated"}).send()
    except SoftTimeLimitExceeded:
        return f"the mail server took longer than {TASK_SECONDS} s"
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
