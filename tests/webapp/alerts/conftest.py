from collections.abc import Callable, Iterator

import pytest

from tests.webapp.alerts.mail_server import MailServer, mail_server
from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.states.conftest import lasting
from tests.webapp.webhooks.conftest import loopback, receiving, webhook
from webapp.alerts.models import AlertRule
from webapp.alerts.rules import USUAL

__all__ = ["connection", "filled", "flights", "lasting", "loopback", "reader", "receiving", "webhook"]


@pytest.fixture
def mailbox(settings) -> Iterator[MailServer]:
    """A mail server that the settings lead to."""
    with mail_server() as running:
        settings.TIDEMARK_MAIL, settings.EMAIL_BACKEND = True, "django.core.mail.backends.smtp.EmailBackend"
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
