"""Sends the mails about alerts: at least once each, some attempts over some hours, never for long at a time.

A mail stays pending until its attempt is recorded, so a worker that dies while it sends one sends it again.
"""

import smtplib
import time
from datetime import timedelta

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tidegauge.webapp.notify.alerts.models import Notice

# After each attempt that failed; then it is given up.
WAITS = [timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 240)]
# After it a task sends nothing new; TASK_SECONDS ends an attempt, too, which a server may draw out byte by byte.
TURN_SECONDS, TASK_SECONDS = 30.0, 60

MOST_CHARACTERS = 500


def due() -> QuerySet[Notice]:
    pending = Notice.objects.filter(channel=Notice.Channel.MAIL, status=Notice.Status.PENDING)
    return pending.filter(next_attempt_at__lte=timezone.now()).order_by("next_attempt_at", "id")


def send_due() -> int:
    """Send what is due, for TURN_SECONDS at most. Returns the number of attempts."""
    until, attempts = time.monotonic() + TURN_SECONDS, 0
    while time.monotonic() < until and _send_next():
        attempts += 1
    return attempts


def _send_next() -> bool:
    with transaction.atomic():
        # Until it is recorded no other worker sends it.
        notice = due().select_for_update(skip_locked=True).first()
        if notice is None:
            return False
        error = _send(notice)
        notice.attempts += 1
        notice.error = error[:MOST_CHARACTERS]
        if not error:
            notice.status, notice.finished_at = Notice.Status.SENT, timezone.now()
        elif notice.attempts > len(WAITS):
            notice.status, notice.finished_at = Notice.Status.FAILED, timezone.now()
        else:
            notice.next_attempt_at = timezone.now() + WAITS[notice.attempts - 1]
        notice.save()
    return True


def _send(notice: Notice) -> str:
    """Return why a mail was not sent; empty if it was."""
    if not settings.TIDEGAUGE_MAIL:
        return "there is no mail server: set EMAIL_URL"
    subject = " ".join(notice.subject.split())
    try:
        EmailMessage(subject, notice.body, to=notice.to, headers={"Auto-Submitted": "auto-generated"}).send()
    except SoftTimeLimitExceeded:
        return f"the mail server took longer than {TASK_SECONDS} s"
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
