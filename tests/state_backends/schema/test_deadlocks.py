"""Sessions that lock the catalog and a state's tables at the same time."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Catalog, Count, Max, StateSpec
from tidegauge.state_backends.backends.postgres import maintenance as rows
from tidegauge.state_backends.maintenance import expire
from tidegauge.state_backends.schema import overrides

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=timedelta(hours=1))
MORE = {"n": Count(), "top": Max("x")}


class Session(threading.Thread):
    """Work beside the test's own; `error` is what it raised."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.error = work, None
        self.start()

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error

    def end(self):
        self.join(30)
        assert not self.is_alive()
        assert self.error is None


@pytest.fixture
def pause(monkeypatch, connect):
    """Stops a session at a function until another one waits for a lock, or says that it waits for readers."""
    looking, waiting = connect(), threading.Event()

    def is_awaited():
        locks = looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
        return waiting.is_set() or locks[0]

    def pause(module, name):
        original = getattr(module, name)

        def paused(*given, **named):
            reached.set()
            while not is_awaited():
                pass
            return original(*given, **named)

        reached = threading.Event()
        monkeypatch.setattr(module, name, paused)
        return reached, lambda readers: waiting.set()

    return pause


def test_an_expiry_and_a_driver_that_adds_a_measure_wait_for_each_other_in_one_order(new_feed, fresh, connect, pause):
    feed = new_feed(spec := fresh(VIEWS))
    feed.run(views(("a", 1)))
    let_time_pass(feed.conn, [spec], feed.pipeline, timedelta(hours=2))
    expiring, registering = connect(), connect()
    # Rows are deleted, and the catalog is to be told.
    deleted, _ = pause(rows, "_shorten_reach")

    expiry = Session(lambda: list(expire(expiring, spec)))
    deleted.wait(10)
    driver = Session(
        lambda: Catalog(registering).register_states(feed.pipeline, [replace(spec, measures=MORE)], {spec.name: ""})
    )

    expiry.end()
    driver.end()
    assert list(Catalog(feed.conn).get(spec.name).measures) == ["n", "top"]


def test_an_edit_and_a_driver_that_registers_wait_for_each_other_in_one_order(new_feed, fresh, connect, pause):
    feed = new_feed(spec := fresh(VIEWS))
    editing, registering = connect(), connect()
    # The edit has locked the row, and is to change it.
    locked, wait = pause(overrides, "store")

    edit = Session(lambda: Catalog(editing).edit(spec.name, ttl=timedelta(hours=3)))
    locked.wait(10)
    driver = Session(
        lambda: Catalog(registering).register_states(feed.pipeline, [spec], {spec.name: ""}, on_waiting=wait)
    )

    edit.end()
    driver.end()
    assert Catalog(feed.conn).get(spec.name).ttl == timedelta(hours=3)
