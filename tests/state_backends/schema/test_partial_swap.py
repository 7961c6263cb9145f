"""Some states of a pipeline are swapped in under its ledger, if they stand at the very batch that it has committed."""

from datetime import timedelta

import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.errors import SwapError
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.partial_swap import PartialSwap
from tidegauge.state_backends.schema.reprocess import Phase, enter
from tidegauge.state_backends.schema.swap import ROOM, Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})


@pytest.fixture
def feed(new_feed, fresh):
    feed = new_feed(fresh(VIEWS))
    for _ in range(2):
        feed.run(views(("/", 1)))
    return feed


@pytest.fixture
def swap(feed, connect):
    return PartialSwap(connect(), feed.pipeline)


def swap_whole(conn, feed):
    """Reprocess all states, and keep the former ones for a day."""
    swap = Swap(conn, feed.pipeline)
    swap.begin(feed.specs, spout="opaque")
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    ledger.commit(ledger.begin(0), rows_in=2)
    ledger.release()
    swap.swap(feed.specs, {feed.specs[0].name: ""}, keep_old=timedelta(days=1))
    enter(conn, feed.pipeline, Phase.SWAPPED, Phase.SETTLED)


def feed_shadow(conn, swap, txid):
    """Commit one empty batch of the shadow under a txid."""
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    swap.skip_to(txid)
    ledger.bind("the shadow's checkpoint")
    batch = ledger.begin(0)
    ledger.commit(batch, rows_in=0)
    ledger.release()
    return batch


def test_a_batch_of_the_shadow_has_the_txid_of_the_pipeline(feed, swap, connect):
    swap.begin(feed.specs, spout="opaque")

    assert feed_shadow(connect(), swap, 2).txid == 2


@pytest.mark.parametrize("txid", [1, 3])
def test_a_shadow_that_stands_elsewhere_is_not_swapped_in(feed, swap, connect, txid):
    swap.begin(feed.specs, spout="opaque")
    feed_shadow(connect(), swap, txid)

    with pytest.raises(SwapError, match="it is at batch 2, and the reprocess of some of its states is not"):
        swap.swap(feed.specs, {feed.specs[0].name: ""})


def test_a_batch_that_is_committed_before_the_swap_stops_it(feed, swap, connect):
    swap.begin(feed.specs, spout="opaque")
    feed_shadow(connect(), swap, 2)
    feed.run(views(("/", 1)))

    with pytest.raises(SwapError, match="it is at batch 3"):
        swap.swap(feed.specs, {feed.specs[0].name: ""})


def test_dead_letters_of_the_states_are_the_new_ones_and_those_of_the_source_stay(feed, swap, connect):
    name = feed.specs[0].name
    letter = (
        "INSERT INTO tidegauge.dead_letter (pipeline, txid, state, source, line, reason) "
        "VALUES (%s, 1, %s, 'file', %s, '')"
    )
    swap.begin(feed.specs, spout="opaque")
    feed_shadow(connect(), swap, 2)
    for row in [(feed.pipeline, "", "a"), (feed.pipeline, name, "b"), (swap.name, "", "a"), (swap.name, name, "c")]:
        feed.conn.execute(letter, row)

    swap.swap(feed.specs, {name: ""})

    left = feed.conn.execute("SELECT line FROM tidegauge.dead_letter WHERE pipeline LIKE %s", [f"{feed.pipeline}%"])
    assert sorted(line for (line,) in left) == ["a", "c"]


def test_it_is_recorded_and_what_an_earlier_one_has_kept_goes(feed, swap, connect):
    swap_whole(connect(), feed)
    kept = Kept(feed.conn, feed.pipeline)
    before = kept.until()
    swap.begin(feed.specs, spout="opaque")
    feed_shadow(connect(), swap, ROOM + 1)

    swap.swap(feed.specs, {feed.specs[0].name: ""})

    assert (before is None, kept.until()) == (False, None)
    [last, first] = feed.conn.execute(
        "SELECT phase, swapped_at IS NOT NULL FROM tidegauge.reprocess WHERE pipeline = %s ORDER BY id DESC",
        [feed.pipeline],
    ).fetchall()
    assert last == ("settled", True)
    assert first == ("settled", True)


def test_other_states_may_live_where_a_swap_of_tables_does_not_reach(new_feed, fresh, connect):
    table, elsewhere = fresh(VIEWS), fresh(StateSpec("clicks", key=VIEWS.key, measures=VIEWS.measures, backend="redis"))
    feed = new_feed(table, elsewhere)
    swap = PartialSwap(connect(), feed.pipeline)

    swap.begin([table], spout="opaque")

    assert [spec.name for spec in Catalog(feed.conn).shadow_specs(swap.name)] == [table.name]
