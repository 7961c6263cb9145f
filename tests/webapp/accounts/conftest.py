import pytest

from tests.webapp.fixtures import connection, filled, flights, reader
from webapp.accounts import authentication

__all__ = ["connection", "filled", "flights", "reader"]


@pytest.fixture(autouse=True)
def empty_cache():
    """A key of another test may be cached, though its transaction was rolled back."""
    authentication.clear_cache()
