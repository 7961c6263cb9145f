import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.large import add_large_state
from tests.webapp.committed_flights import lasting
from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.flights import Flights
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api import lookups

__all__ = ["connection", "filled", "flights", "lasting", "reader"]


@pytest.fixture
def api(db) -> CheckedClient:
    """A client whose key may read."""
    authentication.clear_cache()
    return CheckedClient(create_api_key("reader", ["read"])[1])


@pytest.fixture
def keeper(db) -> CheckedClient:
    """A client whose key may read and maintain."""
    authentication.clear_cache()
    return CheckedClient(create_api_key("keeper", ["read", "maintain"])[1])


@pytest.fixture
def large(lasting) -> Flights:
    add_large_state(lasting)
    return lasting


@pytest.fixture
def while_waiting(monkeypatch):
    """Run an action in the first pause of a request that waits for a batch; returns the pauses that it made."""
    pauses = []

    def arrange(action=lambda: None):
        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) == 1:
                action()

        monkeypatch.setattr(lookups, "sleep", sleep)
        return pauses

    return arrange
