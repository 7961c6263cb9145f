"""The changes of each batch add up to what a lookup answers, or `gap` says why they do not."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Count, Mean, StateReader, StateSpec
from tidegauge.state_backends.errors import BatchOrderError, KeyShapeError, SpecError, UnknownStateError
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.reader.changes import changes

HOUR = timedelta(hours=1)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=HOUR, changelog=True)
FLIGHTS = StateSpec(
    "flights",
    key={"origin": "text", "carrier": "text"},
    measures={"flights": Count(), "mean_delay": Mean("delay")},
    changelog=True,
)
TOTALS = StateSpec("totals", measures={"n": Count()}, changelog=True)
TEXTS = StateSpec("texts", key={"page": "text"}, value="jsonb", changelog=True)


def flight(origin, carrier, flights):
    return {"origin": origin, "carrier": carrier, "flights": flights, "mean_delay_sum": 5.0, "mean_delay_count": 2}


def by_batch(changed):
    """Return txid to its changes, None where they are not complete."""
    return {batch.txid: orjson.loads(batch.changes) if batch.complete else None for batch in changed.batches}


def found(page, n):
    return {"key": [page], "status": "found", "value": {"n": n}}


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


class TestChanges:
    def test_each_batch_has_its_finished_values_in_key_order(self, feed):
        feed.run(views(("b", 2), ("a", 1)))
        feed.run(views(("a", 4)))

        changed = changes(feed.conn, feed.specs[0], 0)

        assert by_batch(changed) == {1: [found("a", 1), found("b", 2)], 2: [found("a", 5)]}
        assert (changed.txid, changed.attempt) == (2, 1)

    def test_only_later_batches_come_and_one_without_changes_too(self, feed):
        feed.run(views(("a", 1)))
        feed.run(views())
        feed.run(views(("a", 1)))

        assert by_batch(changes(feed.conn, feed.specs[0], 1)) == {2: [], 3: [found("a", 2)]}

    def test_an_open_batch_is_left_out(self, feed):
        feed.run(views(("a", 1)))
        feed.apply(feed.begin(1), feed.specs[0], views(("a", 7)))

        assert by_batch(changes(feed.conn, feed.specs[0], 0)) == {1: [found("a", 1)]}

    def test_a_removed_key_comes_and_so_does_a_version_that_has_expired_since(self, feed):
        spec = feed.specs[0]
        feed.run(views(("a", 1), ("b", 1)))
        let_time_pass(feed.conn, [spec], feed.pipeline, 2 * HOUR)
        feed.run(views(("c", 3)))
        feed.conn.execute(f"UPDATE tidegauge_changelog.{spec.name} SET removed = true WHERE page = 'b'")

        changed = by_batch(changes(feed.conn, spec, 0))

        assert changed[1] == [{"key": [page], "status": "removed", "value": None} for page in "ab"]
        assert changed[2] == [found("c", 3)]

    def test_keys_and_prefixes_restrict_the_changes(self, new_feed, fresh):
        feed = new_feed(fresh(FLIGHTS))
        feed.run([flight("EWR", "AA", 1), flight("JFK", "AA", 2), flight("JFK", "B6", 3)])

        by_key = changes(feed.conn, feed.specs[0], 0, keys=[("JFK", "AA"), ("LGA", "AA")], measures=["flights"])
        by_prefix = changes(feed.conn, feed.specs[0], 0, prefix=("JFK",), measures=["mean_delay"])

        assert by_batch(by_key) == {1: [{"key": ["JFK", "AA"], "status": "found", "value": {"flights": 2}}]}
        assert [change["key"] for change in by_batch(by_prefix)[1]] == [["JFK", "AA"], ["JFK", "B6"]]
        assert by_batch(by_prefix)[1][0]["value"] == {"mean_delay": 2.5}

    @pytest.mark.parametrize(("keys", "count"), [(None, 1), ([()], 1), ([], 0)])
    def test_a_state_of_one_value_has_an_empty_key(self, new_feed, fresh, keys, count):
        feed = new_feed(fresh(TOTALS))
        feed.run([{"n": 3}])

        changed = by_batch(changes(feed.conn, feed.specs[0], 0, keys=keys))

        assert changed == {1: [{"key": [], "status": "found", "value": {"n": 3}}] * count}

    def test_a_json_value_comes_as_it_is(self, new_feed, fresh):
        feed = new_feed(fresh(TEXTS))
        batch = feed.begin(0)
        feed.conn.execute(
            f"INSERT INTO tidegauge_changelog.{feed.specs[0].name} (page, value, removed, updated_at, txid) "
            "VALUES ('a', '[1, {\"b\": null}]', false, now(), 1)"
        )
        feed.ledger.commit(batch)

        assert by_batch(changes(feed.conn, feed.specs[0], 0))[1][0]["value"] == [1, {"b": None}]

    def test_a_batch_that_changed_more_than_the_limit_comes_without_its_changes(self, feed):
        feed.run(views(("a", 1), ("b", 1), ("c", 1)))
        feed.run(views(("a", 1), ("b", 1)))

        changed = by_batch(changes(feed.conn, feed.specs[0], 0, limit=2))

        assert changed[1] is None
        assert changed[2] == [found("a", 2), found("b", 2)]

    def test_a_batch_whose_record_says_that_it_is_too_large_is_not_read(self, feed):
        spec = feed.specs[0]
        batch = feed.begin(0)
        feed.apply(batch, spec, views(("a", 1)))
        feed.ledger.commit(batch, keys_written={spec.name: 1_001})

        assert by_batch(changes(feed.conn, spec, 0)) == {1: None}
        assert by_batch(changes(feed.conn, spec, 0, keys=[("a",)])) == {1: [found("a", 1)]}
        assert by_batch(changes(feed.conn, spec, 0, prefix=("a",))) == {1: [found("a", 1)]}

    def test_a_state_without_a_changelog_has_batches_without_changes(self, new_feed, fresh):
        feed = new_feed(fresh(replace(VIEWS, changelog=False)))
        feed.run(views(("a", 1)))

        assert by_batch(changes(feed.conn, feed.specs[0], 0)) == {1: None}

    def test_a_store_that_shows_an_earlier_batch_gets_changes_up_to_it(self, feed):
        for _ in range(3):
            feed.run(views(("a", 1)))

        changed = changes(feed.conn, feed.specs[0], 1, upto=2)

        assert (list(by_batch(changed)), changed.txid, changed.attempt) == ([2], 2, 1)

    def test_many_batches_come_page_by_page(self, feed):
        for _ in range(5):
            feed.run(views(("a", 1)))

        pages = [changes(feed.conn, feed.specs[0], after, most_batches=2) for after in (0, 2, 4)]

        assert [list(by_batch(page)) for page in pages] == [[1, 2], [3, 4], [5]]
        assert [page.more for page in pages] == [True, True, False]

    def test_all_of_it_is_one_statement(self, feed):
        for _ in range(5):
            feed.run(views(("a", 1), ("b", 2)))
        counted = Counting(feed.conn)

        changes(counted, feed.specs[0], 0)

        assert counted.statements == 1

    def test_arguments_that_do_not_fit_are_refused(self, feed, conn):
        with pytest.raises(SpecError, match="no measure 'm'"):
            changes(conn, feed.specs[0], 0, measures=["m"])
        with pytest.raises(KeyShapeError):
            changes(conn, feed.specs[0], 0, keys=[("a", "b")])
        with pytest.raises(UnknownStateError):
            changes(conn, replace(VIEWS, name="nothing_here"), 0)


class TestGap:
    def test_there_is_none_if_every_batch_is_on_hand(self, feed):
        for _ in range(3):
            feed.run(views(("a", 1)))

        assert [changes(feed.conn, feed.specs[0], after).gap(after, None) for after in range(4)] == [None] * 4

    def test_a_batch_that_is_not_committed_any_more_is_a_gap(self, feed):
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))
        feed.begin(1)

        changed = changes(feed.conn, feed.specs[0], 2)

        assert "batch 2 is not committed" in changed.gap(2, 1)

    @pytest.mark.parametrize("seen", [1, None])
    @pytest.mark.parametrize("batches_since", [0, 1])
    def test_a_batch_that_was_reverted_and_committed_again_is_a_gap(self, feed, seen, batches_since):
        feed.run(views(("a", 1)))
        feed.run(views(("b", 1)), batch_id=0)
        for _ in range(batches_since):
            feed.run(views(("c", 1)))

        changed = changes(feed.conn, feed.specs[0], 1)

        assert "replayed" in changed.gap(1, seen)
        assert changed.gap(1, 2) is None

    def test_compaction_makes_a_gap_before_its_horizon(self, feed):
        spec = feed.specs[0]
        for _ in range(4):
            feed.run(views(("a", 1)))
        list(compact(feed.conn, spec, keep=timedelta()))

        assert "no longer on hand" in changes(feed.conn, spec, 2).gap(2, 1)
        assert changes(feed.conn, spec, 3).gap(3, 1) is None

    def test_a_batch_of_another_epoch_is_a_gap_whatever_its_number(self, feed):
        feed.run(views(("a", 1)))
        changed = changes(feed.conn, feed.specs[0], 1)

        assert changed.gap(1, 1, epoch=changed.epoch) is None
        assert "of another epoch" in changed.gap(1, 1, epoch="another")

    def test_another_declaration_is_a_gap(self, feed):
        feed.run(views(("a", 1)))
        before = changes(feed.conn, feed.specs[0], 1).catalog_version
        feed.conn.execute("UPDATE tidegauge.state SET version = version + 1 WHERE name = %s", [feed.specs[0].name])

        assert "redeclared or reprocessed" in changes(feed.conn, feed.specs[0], 1).gap(1, 1, before)


amounts = st.tuples(*[st.sampled_from([0, 0, 1, 2])] * 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), amounts),
        st.tuples(st.just("batch after a failed attempt"), amounts),
        st.tuples(st.just("the committed batch again"), amounts),
        st.tuples(st.just("open batch"), amounts),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("read"), st.none()),
        st.tuples(st.just("forget the attempt"), st.none()),
    ),
    min_size=4,
    max_size=16,
)


@examples(15)
@given(steps=steps)
def test_a_follower_ends_with_what_a_lookup_says(new_feed, fresh, steps):
    feed = new_feed(fresh(replace(VIEWS, ttl=None)))
    follower = Follower(feed)

    for step, argument in [*steps, ("read", None)]:
        follower.do(step, argument)

    assert follower.values == follower.lookup()[1]


class Follower:
    """Applies the changes, and looks all keys up again after a gap."""

    KEYS = (("a",), ("b",), ("c",))

    def __init__(self, feed):
        self.feed = feed
        (self.spec,) = feed.specs
        self.look_up()

    def do(self, step, argument):
        last = self.feed.next_batch_id() - 1
        rows = views(*((page, n) for (page,), n in zip(self.KEYS, argument or (), strict=False) if n))
        match step:
            case "batch":
                self.feed.run(rows)
            case "batch after a failed attempt":
                self.feed.apply(self.feed.begin(last + 1), self.spec, views(("a", 50)))
                self.feed.run(rows)
            case "the committed batch again" if last >= 0:
                with suppress(BatchOrderError):  # once the next has begun
                    self.feed.run(rows, batch_id=last)
            case "open batch":
                self.feed.apply(self.feed.begin(last + 1), self.spec, rows)
            case "compact":
                list(compact(self.feed.conn, self.spec, keep=timedelta()))
            case "forget the attempt":
                self.attempt = None
            case "read":
                self.read()

    def read(self):
        changed = changes(self.feed.conn, self.spec, self.txid, limit=2)
        batches = by_batch(changed)
        if changed.gap(self.txid, self.attempt) or None in batches.values():
            return self.look_up()
        for batch in batches.values():
            self.values |= {change["key"][0]: change["value"] for change in batch}
        self.txid, self.attempt = changed.txid, changed.attempt

    def look_up(self):
        snapshot, self.values = self.lookup()
        self.txid, self.attempt = snapshot.txid, snapshot.attempt

    def lookup(self):
        snapshot = StateReader(self.feed.conn, self.spec).multi_get(self.KEYS)
        return snapshot, {r["key"][0]: r["value"] for r in snapshot.parsed() if r["status"] == "found"}


class Counting:
    def __init__(self, conn):
        self.conn = conn
        self.statements = 0

    def execute(self, *arguments):
        self.statements += 1
        return self.conn.execute(*arguments)
