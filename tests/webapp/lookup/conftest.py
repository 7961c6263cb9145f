import pytest

from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.lookup.openapi import CheckedClient
from webapp.api_keys import verification
from webapp.api_keys.services import create_api_key

__all__ = ["connection", "filled", "flights", "reader"]


@pytest.fixture
def api(db) -> CheckedClient:
    """A client whose key may read."""
    verification.forget()
    return CheckedClient(create_api_key("reader", ["read"])[1])


@pytest.fixture
def keeper(db) -> CheckedClient:
    """A client whose key may read and maintain."""
    verification.forget()
    return CheckedClient(create_api_key("keeper", ["read", "maintain"])[1])
