"""States and measures that a release leaves out, and a later one feeds again."""

import re
from dataclasses import replace

import pytest

from tests.recovery_page import message_of
from tests.state_backends.feed import views
from tidegauge.state_backends import Catalog, Count, StateSpec, Sum
from tidegauge.state_backends.errors import SpecMismatchError, StateGapError
from tidegauge.state_backends.schema.feeding import Feeding, feeding, take_back_feeding

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
CLICKS = StateSpec("clicks", key={"page": "text"}, measures={"n": Count()})
TOTALS = StateSpec("totals", key={"page": "text"}, measures={"n": Count(), "total": Sum("x", type="bigint")})


def declare(feed, *specs, accept_gap=False):
    """Start a release that declares these states."""
    guarantees = {spec.name: "" for spec in specs}
    Catalog(feed.conn).register_states(feed.pipeline, specs, guarantees, accept_gap=accept_gap)
    feed.specs = list(specs)


def since(feed, spec):
    return feed.conn.execute(
        "SELECT since_txid, measures_since FROM tidegauge.state WHERE name = %s", [spec.name]
    ).fetchone()


@pytest.fixture
def feed(new_feed, fresh):
    feed = new_feed(fresh(VIEWS), fresh(CLICKS))
    feed.run(views(("a", 1)), views(("a", 10)))
    return feed


class TestStates:
    def test_a_state_that_is_left_out_says_which_batch_fed_it_last(self, feed):
        kept, left = feed.specs

        declare(feed, kept)
        feed.run(views(("a", 1)))
        declare(feed, kept)

        assert feeding(feed.conn, left.name) == Feeding(last_fed_txid=1)
        assert feeding(feed.conn, kept.name) == Feeding()

    def test_one_that_missed_batches_is_refused_with_the_ways_out(self, feed):
        kept, left = feed.specs
        declare(feed, kept)
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))

        with pytest.raises(StateGapError) as refused:
            declare(feed, kept, left)

        assert str(refused.value) == (
            f"state {left.name!r}: it was not fed by batches 2 to 3 of pipeline {feed.pipeline!r}, which ran without "
            "it, so its values would miss them; run with --reprocess to feed everything again, declare it under "
            "another name to start empty, or run with --accept-gap to keep its values, marked as complete only from "
            "batch 4 on"
        )
        assert re.search(message_of("A state or a measure was not fed for a while", 1), str(refused.value))
        assert feeding(feed.conn, left.name) == Feeding(last_fed_txid=1)

    def test_one_whose_gap_is_accepted_says_since_when_it_is_complete(self, feed):
        kept, left = feed.specs
        declare(feed, kept)
        feed.run(views(("a", 1)))

        declare(feed, kept, left, accept_gap=True)
        feed.run(views(("a", 1)), views(("a", 5)))

        assert since(feed, left) == (2, {})
        assert feeding(feed.conn, left.name) == Feeding()
        assert feed.read(left, ("a",)) == [{"n": 15}]
        declare(feed, kept, left)

    def test_one_that_missed_no_batch_goes_on_as_if_nothing_had_been(self, feed):
        kept, left = feed.specs
        declare(feed, kept)

        declare(feed, kept, left)

        assert since(feed, left) == (0, {})
        assert feeding(feed.conn, left.name) == Feeding()

    def test_a_batch_that_is_reverted_counts_as_missed_by_the_states_that_are_left_out(self, feed):
        """A source that brings the committed batch again: what it brings then does not reach them."""
        kept, left = feed.specs
        declare(feed, kept)
        again = feed.ledger.begin(0)
        for spec in (kept, left):
            feed.backing(spec).revert(again.txid)

        take_back_feeding(feed.conn, feed.pipeline, again.txid)
        feed.apply(again, kept, views(("a", 3)))
        feed.ledger.commit(again)

        assert feeding(feed.conn, left.name) == Feeding(last_fed_txid=0)
        with pytest.raises(StateGapError, match="was not fed by batches 1 to 1 of"):
            declare(feed, kept, left)

    def test_a_pipeline_of_another_name_does_not_touch_it(self, feed, new_feed, fresh):
        new_feed(fresh(VIEWS))

        assert [feeding(feed.conn, spec.name) for spec in feed.specs] == [Feeding(), Feeding()]


class TestMeasures:
    @pytest.fixture
    def feed(self, new_feed, fresh):
        feed = new_feed(fresh(TOTALS))
        feed.run([{"page": "a", "n": 1, "total": 10}])
        return feed

    def rolled_back(self, feed):
        (newer,) = feed.specs
        return replace(newer, measures={"n": Count()})

    def test_a_release_without_a_measure_keeps_it_and_says_which_batch_fed_it_last(self, feed):
        (newer,) = feed.specs

        declare(feed, self.rolled_back(feed))

        assert feeding(feed.conn, newer.name) == Feeding(measures={"total": 1})
        assert list(Catalog(feed.conn).get(newer.name).measures) == ["n", "total"]
        assert feed.read(newer, ("a",)) == [{"n": 1, "total": 10}]

    def test_the_newer_release_goes_on_where_no_batch_was_committed_meanwhile(self, feed):
        (newer,) = feed.specs
        declare(feed, self.rolled_back(feed))

        declare(feed, newer)
        feed.run([{"page": "a", "n": 1, "total": 5}])

        assert feeding(feed.conn, newer.name) == Feeding()
        assert since(feed, newer) == (0, {})
        assert feed.read(newer, ("a",)) == [{"n": 2, "total": 15}]

    def test_the_newer_release_is_refused_where_batches_were_committed_meanwhile(self, feed):
        (newer,) = feed.specs
        declare(feed, self.rolled_back(feed))
        feed.ledger.commit(feed.ledger.begin(feed.next_batch_id()))

        with pytest.raises(StateGapError, match=message_of("A state or a measure was not fed for a while", 2)):
            declare(feed, newer)

        declare(feed, newer, accept_gap=True)
        assert since(feed, newer) == (0, {"total": 2})
        assert feeding(feed.conn, newer.name) == Feeding()

    def test_a_rollback_after_a_rollback_keeps_the_first_batch(self, feed):
        (newer,) = feed.specs
        older = self.rolled_back(feed)
        declare(feed, older)
        feed.ledger.commit(feed.ledger.begin(feed.next_batch_id()))

        declare(feed, older)

        assert feeding(feed.conn, newer.name) == Feeding(measures={"total": 1})

    def test_a_measure_in_place_of_another_is_refused_as_before(self, feed):
        (newer,) = feed.specs

        with pytest.raises(SpecMismatchError, match="measure 'total' is gone"):
            declare(feed, replace(newer, measures={"n": Count(), "sum": Sum("x", type="bigint")}))

    def test_a_state_without_the_measure_is_still_migrated_where_it_must_be(self, feed):
        older = self.rolled_back(feed)

        declare(feed, replace(older, partitions=2))

        held = Catalog(feed.conn).get(older.name)
        assert (held.partitions, list(held.measures)) == (2, ["n", "total"])
        assert feed.read(held, ("a",)) == [{"n": 1, "total": 10}]
