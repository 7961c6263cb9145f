import pytest

from tests.webapp.committed_flights import lasting
from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.logged import lines, request_lines, written
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.console import system_snapshot

__all__ = ["connection", "filled", "flights", "lasting", "lines", "reader", "request_lines", "written"]


@pytest.fixture(autouse=True)
def fresh_snapshot() -> None:
    system_snapshot.clear_cache()


@pytest.fixture
def key(db) -> str:
    """The secret of an API key that may read."""
    authentication.clear_cache()
    return create_api_key("reader", ["read"])[1]
