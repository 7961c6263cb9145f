import psycopg
import pytest

from state_backends import BatchLedger, Catalog, driver_status


@pytest.fixture
def name(conn, request):
    """A pipeline with nobody to drive it."""
    Catalog(conn).install()
    Catalog(conn).register_pipeline(request.node.name, spout="opaque")
    return request.node.name


class TestWishes:
    def test_nobody_wishes_anything_at_first(self, conn, name):
        assert driver_status.orders(conn, name) == driver_status.DesiredState(fence=0, held=False, paused=False)

    def test_a_wish_may_come_before_the_first_driver(self, conn, name):
        driver_status.wish(conn, name, paused=True, by="ann")

        orders = driver_status.orders(conn, name)
        assert (orders.paused, orders.by, orders.since is not None) == (True, "ann", True)

    def test_a_wish_that_stands_remains_the_first_ones(self, conn, name):
        driver_status.wish(conn, name, paused=True, by="ann")
        first = driver_status.orders(conn, name)

        driver_status.wish(conn, name, paused=True, by="bob")

        assert driver_status.orders(conn, name) == first

    def test_the_last_wish_counts(self, conn, name):
        driver_status.wish(conn, name, paused=True, by="ann")
        driver_status.wish(conn, name, paused=False, by="bob")

        orders = driver_status.orders(conn, name)
        assert (orders.paused, orders.by) == (False, "bob")

    def test_a_wish_outlives_drivers(self, conn, name):
        driver_status.wish(conn, name, paused=True, by="ann")
        ledger = BatchLedger(conn, name)
        ledger.acquire()

        orders = driver_status.orders(conn, name)
        ledger.release()

        assert (orders.fence, orders.held, orders.paused) == (1, True, True)

    def test_an_unknown_pipeline_is_refused_and_has_no_orders(self, conn, name):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            driver_status.wish(conn, "nothing", paused=True, by="ann")

        assert driver_status.orders(conn, "nothing") == driver_status.DesiredState(fence=None, held=False, paused=False)


class TestReports:
    def test_a_driver_says_how_often_it_failed_and_when_it_tries_again(self, conn, name):
        ledger = BatchLedger(conn, name)
        ledger.acquire()
        (at,) = conn.execute("SELECT now()").fetchone()

        driver_status.report(conn, name, "restarting", "why", failures=2, max_failures=8, next_try_at=at)

        assert told(conn, name) == ("restarting", "why", 2, 8, at)
        ledger.acquire()
        ledger.release()
        assert told(conn, name) == ("starting", "", 0, None, None)


def told(conn, name):
    return conn.execute(
        "SELECT status, message, failures, max_failures, next_try_at FROM tidemark.driver WHERE pipeline = %s", [name]
    ).fetchone()
