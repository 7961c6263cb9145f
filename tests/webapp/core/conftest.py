from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.logged import lines, request_lines, written
from tests.webapp.serving.conftest import fresh_snapshot, key

__all__ = ["connection", "filled", "flights", "fresh_snapshot", "key", "lines", "reader", "request_lines", "written"]
