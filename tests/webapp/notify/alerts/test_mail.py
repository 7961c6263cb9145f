"""Mails about alerts, through a real server: sent once, tried again, given up, and never waited for for long."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone

from tidegauge.webapp.notify.alerts import checking, mail
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.notify.webhooks.outbox import MOST_ATTEMPTS


@pytest.fixture
def message(filled, rule) -> Delivery:
    rule()
    filled.report("failed", "no disk")
    checking.check()
    return Delivery.objects.get()


def again(message: Delivery) -> Delivery:
    """Let a mail be due, and send it."""
    Delivery.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    mail.send_due()
    message.refresh_from_db()
    return message


def error_of(message: Delivery) -> str:
    return message.log[-1]["error"]


def test_it_is_sent_once(mailbox, message, settings):
    settings.DEFAULT_FROM_EMAIL = "tidegauge@example.com"
    mail.send_due()
    mail.send_due()

    [sent] = mailbox.received
    assert (sent["Subject"], sent["To"], sent["From"]) == (
        "Tidegauge: flights failed", "ops@example.com", "tidegauge@example.com",
    )  # fmt: skip
    assert "flights failed: its driver has given up, since " in sent.get_content()
    assert "no disk" not in sent.as_string()
    message.refresh_from_db()
    assert (message.status, message.attempts, message.log[0]["error"]) == ("delivered", 1, "")


def test_it_links_to_the_page_where_the_address_is_known(mailbox, settings, rule, filled):
    settings.TIDEGAUGE_PUBLIC_URL = "https://tidegauge.example"
    rule()
    filled.report("failed", "no disk")
    checking.check()
    mail.send_due()

    assert "  https://tidegauge.example/pipelines/flights/" in mailbox.received[0].get_content()


def test_one_that_is_refused_is_tried_again_and_given_up(mailbox, message):
    mailbox.refusal = "550 no such mailbox"
    first = again(message)
    assert (first.status, first.attempts) == ("pending", 1)
    assert "no such mailbox" in error_of(first)
    assert first.next_attempt_at > timezone.now() + timedelta(seconds=5)

    for _ in range(MOST_ATTEMPTS - 1):
        again(message)

    assert (message.status, message.attempts) == ("dead", MOST_ATTEMPTS)
    assert again(message).attempts == MOST_ATTEMPTS


def test_a_server_that_says_nothing_is_left_after_a_time(mailbox, message, settings):
    mailbox.is_silent, settings.EMAIL_TIMEOUT = True, 0.2

    found = again(message)

    assert found.status == "pending"
    assert error_of(found).endswith(": timed out")


def test_without_a_server_it_says_so(message):
    assert error_of(again(message)) == "no mail server is configured: set EMAIL_URL"


def test_the_time_limit_of_the_task_ends_an_attempt(mailbox, message, settings):
    mailbox.is_silent, settings.EMAIL_TIMEOUT = True, 60

    with task_ends_after(0.3):
        found = again(message)

    assert (found.status, error_of(found)) == ("pending", "the mail server took longer than 60 s")


@contextmanager
def task_ends_after(seconds: float) -> Iterator[None]:
    """Interrupt the test as Celery does a task at its soft limit: by a signal."""

    def end(*_: object) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
