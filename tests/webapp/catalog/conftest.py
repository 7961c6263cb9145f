from tests.webapp.fixtures import connection, filled, flights, lasting, reader, reprocessing

__all__ = ["connection", "filled", "flights", "lasting", "reader", "reprocessing"]
