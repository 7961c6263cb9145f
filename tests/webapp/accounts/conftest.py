import pytest

from tests.webapp.fixtures import connection, filled, flights, reader
from webapp.accounts import authentication

__all__ = ["connection", "filled", "flights", "reader"]


@pytest.fixture(autouse=True)
def forgetful():
    """No key is remembered from another test, whose transaction is gone."""
    authentication.forget()
