import pytest

from tests.webapp.committed_flights import lasting
from tests.webapp.fixtures import connection, filled, flights, reader
from tidegauge.webapp.accounts import authentication, rate_limits

__all__ = ["connection", "filled", "flights", "lasting", "reader"]


@pytest.fixture(autouse=True)
def empty_cache():
    """A key of another test may be cached, though its transaction was rolled back."""
    authentication.clear_cache()


@pytest.fixture
def own_connections():
    """Without an outage or a connection of another test."""
    rate_limits.reset()
    yield
    rate_limits.reset()
