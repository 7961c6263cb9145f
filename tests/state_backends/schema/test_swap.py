"""The shadow of a pipeline's states belongs to who fills it, from its first row to the swap."""

from dataclasses import replace

import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.errors import StateBusyError
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.state_backends.schema.swap import Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
ROWS = 40


@pytest.fixture(autouse=True)
def few_rows_per_chunk(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 10)


@pytest.fixture
def feed(new_feed, fresh):
    feed = new_feed(fresh(VIEWS))
    feed.run(views(*((f"page {number}", 1) for number in range(ROWS))))
    return feed


def stored(feed):
    (name,) = (spec.name for spec in feed.specs)
    return feed.conn.execute(f"SELECT count(*) FROM tidegauge_state.{name}").fetchone()[0]


def migrate(feed, on_copied=lambda rows: None):
    wider = [replace(spec, partitions=2) for spec in feed.specs]
    guarantees = {spec.name: "" for spec in wider}
    Catalog(feed.conn).register_states(feed.pipeline, wider, guarantees, lambda state, rows: on_copied(rows))


def feed_shadow(conn, swap, *pages):
    """Commit one batch of a reprocess."""
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    ledger.commit(ledger.begin(0), rows_in=len(pages))
    ledger.release()


def test_a_reprocess_that_begins_while_a_migration_copies_is_refused_and_the_copy_is_whole(feed, connect):
    other = Swap(connect(), feed.pipeline)
    refused = []

    def begin(rows):
        with pytest.raises(StateBusyError) as caught:
            other.begin(feed.specs, spout="opaque")
        refused.append(caught.value.work)

    migrate(feed, begin)

    assert set(refused) == {"migration"}
    assert stored(feed) == ROWS


def test_a_swap_while_a_migration_copies_is_refused_and_the_copy_is_whole(feed, connect):
    conn, refused = connect(), []
    swap = Swap(conn, feed.pipeline)

    def swap_now(rows):
        with pytest.raises(StateBusyError) as caught:
            swap.swap(feed.specs, {spec.name: "" for spec in feed.specs})
        refused.append(caught.value.work)

    migrate(feed, swap_now)

    assert set(refused) == {"migration"}
    assert stored(feed) == ROWS


def test_a_migration_is_refused_by_name_as_long_as_a_reprocess_owns_the_shadow(feed, connect):
    conn = connect()
    swap = Swap(conn, feed.pipeline)

    with swap.owning(feed.specs):
        swap.begin(feed.specs, spout="opaque")
        with pytest.raises(StateBusyError) as refused:
            migrate(feed)

    assert refused.value.work == "reprocess"
    assert stored(feed) == ROWS


def test_a_shadow_that_was_taken_over_is_not_swapped_in(feed, connect):
    """The session that held the lock has ended, and its process does not know."""
    (spec,) = feed.specs
    conn, other = connect(), connect()
    swap = Swap(conn, feed.pipeline)

    with swap.owning(feed.specs):
        swap.begin(feed.specs, spout="opaque")
        feed_shadow(conn, swap)
        conn.execute("SELECT pg_advisory_unlock_all()")
        with state_lock(other, spec.name, "reprocess"):
            pass
        with pytest.raises(StateBusyError, match="its shadow tables were taken over by a work that has just ended"):
            swap.swap(feed.specs, {spec.name: ""})

    assert stored(feed) == ROWS


def test_a_shadow_that_is_being_fed_is_not_dropped_by_an_abort(feed, connect):
    swap = Swap(connect(), feed.pipeline)

    with swap.owning(feed.specs):
        swap.begin(feed.specs, spout="opaque")
        with pytest.raises(StateBusyError):
            Swap(feed.conn, feed.pipeline).abort()

    assert swap.exists


def test_a_swap_is_refused_while_a_state_is_compacted(feed, connect, monkeypatch):
    (spec,) = feed.specs
    monkeypatch.setattr("tidegauge.state_backends.ledger.state_lock.PATIENCE_MS", 50)
    conn = connect()
    swap = Swap(conn, feed.pipeline)
    swap.begin(feed.specs, spout="opaque")
    feed_shadow(conn, swap, "a")

    with state_lock(connect(), spec.name, "compaction"), pytest.raises(StateBusyError) as refused:
        swap.swap(feed.specs, {spec.name: ""})

    assert refused.value.work == "compaction"
    assert stored(feed) == ROWS
