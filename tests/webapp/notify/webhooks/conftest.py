from collections.abc import Callable, Iterator
from ipaddress import ip_network

import pytest

from tests.webapp.fixtures import connection, filled, flights, lasting, reader
from tests.webapp.notify.webhooks.receiver import Receiver, receiver
from tidegauge.webapp.notify.webhooks import following, services
from tidegauge.webapp.notify.webhooks.models import Webhook

__all__ = ["connection", "filled", "flights", "lasting", "reader"]

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]


@pytest.fixture
def loopback(settings) -> None:
    settings.TIDEGAUGE_WEBHOOK_NETWORKS = LOOPBACK


@pytest.fixture
def receiving(loopback) -> Iterator[Receiver]:
    with receiver() as running:
        yield running


@pytest.fixture
def webhook(receiving, db) -> Callable[..., Webhook]:
    """Makes a webhook of the receiver, which has been told everything up to now; `shown_once` is its secret."""

    def make(*kinds: str, name: str = "hook", url: str = receiving.url, **fields) -> Webhook:
        made = Webhook(name=name, url=url, kinds=list(kinds) or ["maintenance"], **fields)
        made.shown_once = services.create(made)
        following.follow(made)
        return made

    return make
