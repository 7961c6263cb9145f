from tests.webapp.api.conftest import api, lasting
from tests.webapp.fixtures import connection, filled, flights, reader

__all__ = ["api", "connection", "filled", "flights", "lasting", "reader"]
