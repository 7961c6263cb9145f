import pytest

from tests.webapp.fixtures import connection, filled, flights, reader
from webapp.api_keys import verification

__all__ = ["connection", "filled", "flights", "reader"]


@pytest.fixture(autouse=True)
def forgetful():
    """No key is remembered from another test, whose transaction is gone."""
    verification.forget()
