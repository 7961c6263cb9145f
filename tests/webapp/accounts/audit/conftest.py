from tests.webapp.fixtures import connection, filled, flights, reader

__all__ = ["connection", "filled", "flights", "reader"]
