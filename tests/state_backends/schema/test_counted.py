"""What a reprocess has counted is compared with what the states have counted that it would replace."""

import pytest

from tidegauge.state_backends import BatchLedger, Count, StateSpec
from tidegauge.state_backends.ledger.source_input import SourceInput
from tidegauge.state_backends.schema.counted import CountedInput
from tidegauge.state_backends.schema.swap import Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def shadow(feed):
    """The ledger of a reprocess of the pipeline."""
    swap = Swap(feed.conn, feed.pipeline)
    swap.begin(feed.specs, spout=feed.spout)
    ledger = BatchLedger(feed.conn, swap.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    return ledger


def count(ledger, batch_id, held, rows):
    """Commit one batch of a source."""
    batch = ledger.begin(batch_id, offsets=[{"end": batch_id}], held=[held])
    ledger.commit(batch, rows_in=rows)


def files(*names):
    return SourceInput("files", dict.fromkeys(names, 1), listed=True)


def partitions(**offsets):
    return SourceInput("partitions", {f"topic/{name}": ends for name, ends in offsets.items()})


def shortfall(feed, shadow):
    return CountedInput(feed.conn, feed.pipeline).shortfall(shadow.pipeline)


def test_nothing_is_missing_where_the_same_input_was_counted_in_other_batches(feed, shadow):
    count(feed.ledger, 0, files("a", "b"), 3)
    count(feed.ledger, 1, files("c"), 4)
    for number, name in enumerate("cab"):
        count(shadow, number, files(name), [4, 1, 2][number])

    assert shortfall(feed, shadow) == []


def test_a_file_that_was_not_read_again_is_missing_even_if_more_rows_were(feed, shadow):
    count(feed.ledger, 0, files("a", "b"), 3)
    count(shadow, 0, files("b", "c"), 300)

    assert shortfall(feed, shadow) == ["1 files that were counted are missing: 'a'"]


def test_many_files_are_counted_and_some_are_named(feed, shadow):
    count(feed.ledger, 0, files(*"abcdef"), 6)
    count(shadow, 0, files("f"), 6)

    assert shortfall(feed, shadow) == ["5 files that were counted are missing: 'a', 'b', 'c' and 2 more"]


def test_rows_are_compared_where_a_source_says_nothing_else(feed, shadow):
    count(feed.ledger, 0, None, 10)
    count(feed.ledger, 1, None, 5)
    count(shadow, 0, None, 14)

    assert shortfall(feed, shadow) == ["15 rows were counted, but only 14 by the reprocess"]


def test_a_partition_that_begins_later_is_missing_its_beginning_even_if_more_rows_were_read(feed, shadow):
    count(feed.ledger, 0, partitions(p0=[0, 10], p1=[5, 10]), 15)
    count(shadow, 0, partitions(p0=[4, 40], p1=[5, 40]), 71)

    assert shortfall(feed, shadow) == ["partition 'topic/p0' was counted from offset 0, and now begins at 4"]


def test_what_is_counted_after_it_was_looked_at_is_left_to_the_next_driver(feed, shadow):
    count(feed.ledger, 0, files("a"), 1)
    counted = CountedInput(feed.conn, feed.pipeline)
    count(feed.ledger, 1, files("b"), 1)
    count(shadow, 0, files("a"), 1)

    assert counted.shortfall(shadow.pipeline) == []


def test_rows_of_batches_whose_totals_were_not_kept_are_added_up(feed):
    count(feed.ledger, 0, None, 10)
    count(feed.ledger, 1, None, 5)
    feed.conn.execute("UPDATE tidegauge.batch SET total_rows_in = NULL WHERE pipeline = %s", [feed.pipeline])

    assert CountedInput(feed.conn, feed.pipeline).rows == 15


def test_rows_are_known_after_their_batches_were_trimmed(feed):
    for number in range(4):
        count(feed.ledger, number, None, 10)
    feed.conn.execute("DELETE FROM tidegauge.batch WHERE pipeline = %s AND txid < 3", [feed.pipeline])

    assert CountedInput(feed.conn, feed.pipeline).rows == 40


def test_an_open_batch_is_not_counted(feed):
    feed.ledger.begin(0, held=[files("a")])

    counted = CountedInput(feed.conn, feed.pipeline)

    assert (counted.is_any, counted.rows, list(counted.of(0).files())) == (False, 0, [])
