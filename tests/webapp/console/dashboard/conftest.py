from tests.webapp.committed_flights import lasting
from tests.webapp.fixtures import connection, filled, flights, may_view_dead_letters, reader, reprocessing

__all__ = ["connection", "filled", "flights", "lasting", "may_view_dead_letters", "reader", "reprocessing"]
