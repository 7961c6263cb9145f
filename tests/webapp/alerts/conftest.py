from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.states.conftest import lasting

__all__ = ["connection", "filled", "flights", "lasting", "reader"]
