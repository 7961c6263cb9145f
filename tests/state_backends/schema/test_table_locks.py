"""Changes of tables that are being read."""

import threading
from dataclasses import replace

import psycopg
import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import BatchLedger, Catalog, Count, Max, StateReader, StateSpec
from tidegauge.state_backends.errors import TablesBusyError
from tidegauge.state_backends.schema import table_locks
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.swap import Swap
from tidegauge.state_backends.schema.table_locks import TableLocks, locked_tables

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
LOGGED = replace(VIEWS, changelog=True)

CHANGES = {
    "a new measure": (VIEWS, {"measures": {"n": Count(), "top": Max("x")}}),
    "a new measure beside a changelog": (LOGGED, {"measures": {"n": Count(), "top": Max("x")}}),
    "more partitions": (VIEWS, {"partitions": 3}),
    "other partitions": (replace(VIEWS, partitions=2), {"partitions": 3}),
    "a changelog begins": (VIEWS, {"changelog": True}),
}


class Registration(threading.Thread):
    """A driver that registers a state; `waiting` is set once it says whom it waits for."""

    def __init__(self, conn, pipeline, spec):
        super().__init__(daemon=True)
        self.conn, self.pipeline, self.spec = conn, pipeline, spec
        self.waiting, self.readers, self.error = threading.Event(), "", None

    def run(self):
        try:
            Catalog(self.conn).register_states(
                self.pipeline, [self.spec], {self.spec.name: ""}, on_waiting=self.say_waiting
            )
        except Exception as error:
            self.error = error

    def say_waiting(self, readers):
        self.readers = readers
        self.waiting.set()


@pytest.fixture
def exporting(connect):
    """A session that has read a state and stays in its transaction, as an export or pg_dump does."""
    conn = connect()
    conn.execute("SET application_name = 'nightly export'")

    def exporting(*relations):
        conn.autocommit = False
        for relation in relations:
            conn.execute(f"SELECT FROM {relation}")
        return conn

    return exporting


@pytest.fixture
def impatient(connect):
    """A session that a lookup fails in which waits 50 ms for a lock."""
    conn = connect()
    conn.execute("SET lock_timeout = '50ms'")
    return conn


@pytest.mark.parametrize("change", CHANGES)
def test_lookups_go_on_while_a_change_waits_for_a_reader_that_stays(
    new_feed, fresh, connect, exporting, impatient, change
):
    declared, changes = CHANGES[change]
    feed = new_feed(old := fresh(declared))
    feed.run(views(("a", 1)))
    export = exporting(f"tidegauge_state.{old.name}", f"tidegauge_live.{old.name}")
    driver = Registration(connect(), feed.pipeline, new := replace(old, **changes))

    driver.start()
    driver.waiting.wait(10)
    for _ in range(300):
        assert StateReader(impatient, old).multi_get([("a",)]).parsed()[0]["value"] == {"n": 1}
        assert impatient.execute(f"SELECT n FROM tidegauge_live.{old.name}").fetchone() == (1,)
    still_waiting = driver.is_alive()
    export.rollback()
    driver.join(20)

    assert (still_waiting, driver.error) == (True, None)
    assert f"pid {export.info.backend_pid} ('nightly export'" in driver.readers
    assert definition(Catalog(feed.conn).get(old.name)) == definition(new)


def test_a_changelog_that_ends_waits_for_its_readers(new_feed, fresh, connect, exporting, impatient):
    feed = new_feed(old := fresh(LOGGED))
    feed.run(views(("a", 1)))
    Catalog(feed.conn).edit(old.name, changelog=False)
    export = exporting(f"tidegauge_changelog.{old.name}")
    driver = Registration(connect(), feed.pipeline, old)

    driver.start()
    driver.waiting.wait(10)
    found = impatient.execute(f"SELECT count(*) FROM tidegauge_changelog.{old.name}").fetchone()
    export.rollback()
    driver.join(20)

    assert (found, driver.error) == ((1,), None)
    assert not Catalog(feed.conn).get(old.name).changelog


def test_a_change_gets_its_turn_among_readers_that_come_and_go(new_feed, fresh, connect):
    feed = new_feed(old := fresh(VIEWS))
    stopping, errors = threading.Event(), []

    def read(conn):
        while not stopping.is_set():
            with conn.transaction():
                conn.execute(f"SELECT FROM tidegauge_live.{old.name}")
                conn.execute("SELECT pg_sleep(0.01)")

    readers = [threading.Thread(target=read, args=[connect()]) for _ in range(4)]
    driver = Registration(connect(), feed.pipeline, replace(old, **CHANGES["a new measure"][1]))
    for thread in [*readers, driver]:
        thread.start()
    driver.join(20)
    finished = not driver.is_alive()
    stopping.set()
    for thread in readers:
        thread.join()

    assert (finished, driver.error, errors) == (True, None, [])


def test_readers_that_stay_for_minutes_are_named(new_feed, fresh, connect, exporting, monkeypatch):
    monkeypatch.setattr(table_locks, "WAIT_SECONDS", 0.0)
    feed = new_feed(old := fresh(VIEWS))
    export = exporting(f"tidegauge_state.{old.name}")

    with pytest.raises(TablesBusyError) as refused:
        Catalog(feed.conn).register_states(feed.pipeline, [replace(old, partitions=2)], {old.name: ""})

    message = str(refused.value)
    assert message.startswith(
        f"state {old.name!r}: cannot be changed, as other sessions have read the tables for more than 0 s"
    )
    assert (
        f": pid {export.info.backend_pid} ('nightly export' of {export.info.user}, in a transaction since " in message
    )
    assert message.endswith("; wait until they end, or end them with pg_terminate_backend(pid), and try again")
    assert refused.value.retryable
    assert Catalog(feed.conn).get(old.name).partitions == 1


def test_a_restart_that_changes_nothing_waits_for_no_reader(new_feed, fresh, exporting):
    feed = new_feed(spec := fresh(VIEWS))
    exporting(f"tidegauge_state.{spec.name}", "tidegauge.state", "tidegauge.pipeline")

    Catalog(feed.conn).register_states(feed.pipeline, [spec], {spec.name: ""})

    assert list(Catalog(feed.conn).get(spec.name).measures) == list(spec.measures)


def test_a_lock_that_is_not_to_be_had_at_once_is_asked_for_again(conn, connect, new_feed, fresh, impatient):
    """A reader may come between the look and the lock."""
    feed, other = new_feed(spec := fresh(VIEWS)), connect()
    looks = []

    def look(locks):
        looks.append(1)
        if len(looks) == 1:
            other.autocommit = False
            other.execute(f"SELECT FROM tidegauge_state.{spec.name}")
            return set()
        other.rollback()
        return set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableLocks, "_holders", look)
        with locked_tables(conn, [spec.name]), pytest.raises(psycopg.errors.LockNotAvailable):
            impatient.execute(f"SELECT FROM tidegauge_state.{spec.name}")

    assert len(looks) == 2
    assert feed.read(spec, ("a",)) == ["missing"]


def test_lookups_go_on_while_the_swap_of_a_reprocess_waits_for_a_reader_that_stays(
    new_feed, fresh, connect, exporting, impatient
):
    feed, conn = new_feed(spec := fresh(VIEWS)), connect()
    feed.run(views(("a", 1)))
    feed.ledger.release()
    swap = Swap(conn, feed.pipeline)
    swap.begin([spec], spout="opaque")
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    ledger.commit(ledger.begin(0), rows_in=0)
    export = exporting(f"tidegauge_state.{spec.name}")
    swapping = threading.Thread(target=swap.swap, args=[[spec], {spec.name: ""}], daemon=True)

    swapping.start()
    for _ in range(300):
        assert StateReader(impatient, spec).multi_get([("a",)]).parsed()[0]["value"] == {"n": 1}
    still_waiting = swapping.is_alive()
    export.rollback()
    swapping.join(20)

    assert still_waiting
    assert feed.read(spec, ("a",)) == ["missing"]
