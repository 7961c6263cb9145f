from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.api.conftest import api
from tests.webapp.fixtures import connection, filled, flights, lasting, reader
from tests.webapp.notify.alerts.mail_server import MailServer, mail_server
from tests.webapp.notify.webhooks.conftest import loopback, receiving, webhook
from tidegauge.webapp.notify.alerts import checking
from tidegauge.webapp.notify.alerts.models import AlertRule, LastCheck
from tidegauge.webapp.notify.alerts.rules import USUAL
from tidegauge.webapp.notify.webhooks.models import Delivery

__all__ = ["api", "connection", "filled", "flights", "lasting", "loopback", "reader", "receiving", "webhook"]

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def mailbox(settings) -> Iterator[MailServer]:
    """A mail server that the settings lead to."""
    with mail_server() as running:
        settings.TIDEGAUGE_MAIL, settings.EMAIL_BACKEND = True, "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", running.port
        yield running


@pytest.fixture
def rule(db) -> Callable[..., AlertRule]:
    """Makes a rule that tells ops@example.com at once."""

    def make(name: str = "ops", webhooks=(), **fields) -> AlertRule:
        given = {"verdicts": USUAL, "after_seconds": 0, "mail_to": ["ops@example.com"]} | fields
        made = AlertRule.objects.create(name=name, **given)
        made.webhooks.set(webhooks)
        return made

    return make


@pytest.fixture
def look(filled) -> Callable[[float], list[str]]:
    """Looks until so many seconds after noon; returns the subjects of the mails made meanwhile.

    The first time is after 15 seconds, as on the schedule. Then it looks once a minute, because tests change nothing
    meanwhile.
    """
    LastCheck.objects.update_or_create(pk=1, defaults={"at": NOON})

    def at(seconds: float) -> list[str]:
        before = set(Delivery.objects.values_list("pk", flat=True))
        moment, end, step = LastCheck.objects.get().at, NOON + timedelta(seconds=seconds), timedelta(seconds=15)
        while moment < end:
            moment = min(moment + step, end)
            checking._look(moment)
            step = timedelta(minutes=1)
        found = Delivery.objects.filter(webhook=None).exclude(pk__in=before).order_by("id")
        return list(found.values_list("subject", flat=True))

    return at
