"""A reader as of an earlier batch gets what a reader at that batch got, or an error that says how far back it goes."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Catalog, Changelog, Count, Mean, OpaqueMap, StateReader, StateSpec, maintenance
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.errors import (
    BatchOrderError,
    KeyShapeError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    UnknownStateError,
)
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.maps import MAPS

HOUR = timedelta(hours=1)
NOTHING = timedelta()
WAIT = timedelta(minutes=25)  # two of them are within the ttl and three are not, by minutes either way
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=HOUR, changelog=True)
BARE = replace(VIEWS, changelog=False)
KEYS = [("a",), ("b",), ("c",), ("d",)]

STATES = {
    "opaque_logged": VIEWS,
    "transactional_logged": replace(VIEWS, kind="transactional"),
    "partitioned_logged": replace(VIEWS, partitions=3, ttl=None),
    "opaque": BARE,
    "opaque_for_ever": replace(BARE, ttl=None),
    "transactional": replace(BARE, kind="transactional"),
    "non_transactional": replace(BARE, kind="non_transactional"),
}

# What a batch does with each key: add a number, nothing, or remove it.
amounts = st.tuples(*[st.sampled_from([0, 0, 1, 2, None])] * len(KEYS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), amounts),
        st.tuples(st.just("batch"), amounts),
        st.tuples(st.just("batch after a failed attempt"), st.tuples(amounts, amounts)),
        st.tuples(st.just("the committed batch again"), amounts),
        st.tuples(st.just("open batch"), amounts),
        st.tuples(st.just("wait"), st.integers(1, 3)),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.just("compact"), st.sampled_from([NOTHING, 1.5 * WAIT, timedelta(days=1)])),
    ),
    min_size=4,
    max_size=14,
)


class History:
    """Feeds one state and records what readers saw after each batch."""

    def __init__(self, feed):
        self.feed = feed
        (self.spec,) = feed.specs
        self.reader = StateReader(feed.conn, self.spec)
        self.seen = {0: seen(self.reader)}
        self.last = self.left = None  # what the committed batch brought, and the one that is left open
        self.waited = False  # since the last commit

    def do(self, step, argument):
        {
            "batch": self.batch,
            "batch after a failed attempt": self.retried,
            "the committed batch again": self.again,
            "open batch": self.open,
            "wait": self.wait,
            "expire": lambda _: list(expire(self.feed.conn, self.spec)),
            "compact": lambda keep: list(compact(self.feed.conn, self.spec, keep=keep)),
        }[step](argument)

    def wait(self, times):
        """Not while a batch is open: it would be committed at an earlier time than readers see it first."""
        if self.left is None:
            let_time_pass(self.feed.conn, [self.spec], self.feed.pipeline, times * WAIT)
            self.waited = True

    def batch(self, adds):
        self.finish(self.feed.begin(self.feed.next_batch_id()), adds)

    def retried(self, both):
        failed, adds = both
        self.open(failed)
        # One version cannot be reverted: such a state is for sources that replay the same tuples.
        self.batch(adds if self.spec.kind == "opaque" else failed)

    def again(self, adds):
        """Not after a wait, for the same reason: the batch keeps its time."""
        if self.waited:
            return
        with suppress(BatchOrderError):  # before there is one, and once the next has begun
            batch = self.feed.begin(self.feed.next_batch_id() - 1)
            if self.spec.kind != "opaque":
                adds = self.last
            self.finish(batch, adds)

    def open(self, adds):
        """Leave a batch open; the next step that runs one begins by reverting it."""
        if self.spec.kind != "opaque":
            adds = self.left or adds
        self.write(self.feed.begin(self.feed.next_batch_id()), adds)
        self.left = adds

    def finish(self, batch, adds):
        if self.spec.kind != "opaque":
            adds = self.left or adds
        self.write(batch, adds)
        self.feed.ledger.commit(batch)
        self.last, self.left, self.waited = adds, None, False
        self.seen = {txid: answers for txid, answers in self.seen.items() if txid < batch.txid}
        self.seen[batch.txid] = seen(self.reader)

    def write(self, batch, adds):
        conn, spec = self.feed.conn, self.spec
        rows = views(*((page, n) for (page,), n in zip(KEYS, adds, strict=True) if n))
        if rows:
            self.feed.apply(batch, spec, rows)
        with conn.transaction():
            lock_fence(conn, batch)
            backing = self.feed.backing(spec)
            counts = MAPS[spec.kind](LoggedMap(backing, Changelog(conn, spec)) if spec.changelog else backing)
            counts.begin_commit(batch.txid, at=batch.batch_time)
            counts.multi_remove([key for key, n in zip(KEYS, adds, strict=True) if n is None])

    def check(self):
        for txid, then in self.seen.items():
            if self.spec.changelog and txid < self.oldest():
                with pytest.raises(OutOfReachError) as caught:
                    seen(self.reader, at_txid=txid)
                assert caught.value.oldest == self.oldest()
                continue
            with nullcontext() if self.spec.changelog else suppress(OutOfReachError):
                assert without_times(seen(self.reader, at_txid=txid)) == without_times(then)

    def oldest(self):
        query = "SELECT oldest_txid FROM tidegauge.state WHERE name = %s"
        return self.feed.conn.execute(query, [self.spec.name]).fetchone()[0]


def seen(reader, **at_txid):
    """Return the answers of a lookup and of a page. Only a read of now distinguishes expired from missing."""
    lookup, page = reader.multi_get(KEYS, **at_txid), reader.page(**at_txid)
    assert (lookup.txid, lookup.attempt, lookup.batch_time) == (page.txid, page.attempt, page.batch_time)
    return [answer["value"] for answer in lookup.parsed()], page.parsed()


def without_times(answers):
    lookup, page = answers
    return lookup, [{name: part for name, part in entry.items() if name != "updated_at"} for entry in page]


@pytest.mark.parametrize("state", STATES)
@examples(6)
@given(steps=steps)
def test_every_batch_reads_as_it_did_then_or_is_refused(new_feed, fresh, state, steps):
    history = History(new_feed(fresh(STATES[state])))

    for step, argument in steps:
        history.do(step, argument)
        if step in ("open batch", "expire", "compact"):
            history.check()
    history.check()


@pytest.fixture
def logged(new_feed, fresh):
    return new_feed(fresh(replace(VIEWS, ttl=None)))


@pytest.fixture
def bare(new_feed, fresh):
    return new_feed(fresh(replace(BARE, ttl=None)))


def read(feed, at_txid, *keys):
    answers = StateReader(feed.conn, feed.specs[0]).multi_get(keys, at_txid=at_txid).parsed()
    return [answer["value"]["n"] if answer["value"] else answer["status"] for answer in answers]


def oldest(feed, at_txid, *keys):
    """Return the oldest batch that the error names."""
    with pytest.raises(OutOfReachError) as caught:
        read(feed, at_txid, *keys)
    return caught.value.oldest


class TestAnswers:
    def test_the_snapshot_is_that_batchs(self, logged, conn):
        first = logged.run(views(("a", 1)))
        logged.begin(1)
        second = logged.run(views(("a", 1)), batch_id=1)
        logged.run(views(("a", 1)))
        reader = StateReader(conn, logged.specs[0])

        snapshots = [reader.multi_get([("a",)], at_txid=txid) for txid in (0, 1, 2)]

        assert [(each.txid, each.attempt, each.batch_time) for each in snapshots] == [
            (0, 0, None),
            (1, 1, first.batch_time),
            (2, 2, second.batch_time),
        ]

    def test_keys_are_answered_in_the_order_asked_and_measures_finished(self, new_feed, fresh, conn):
        spec = fresh(
            StateSpec("delays", key={"page": "text"}, measures={"mean": Mean("x"), "n": Count()}, changelog=True)
        )
        feed = new_feed(spec)
        for total in (3.0, 4.0, 100.0):
            feed.run([{"page": "a", "mean_sum": total, "mean_count": 2, "n": 2}])
        reader = StateReader(conn, spec)

        answer = reader.multi_get([("b",), ("a",), ("a",)], ["mean"], at_txid=2).parsed()

        assert [(each["key"], each["status"], each["value"]) for each in answer] == [
            (["b"], "missing", None),
            (["a"], "found", {"mean": 1.75}),
            (["a"], "found", {"mean": 1.75}),
        ]
        assert reader.multi_get([], at_txid=2).parsed() == []

    def test_entries_are_searched_ordered_and_paged_as_now(self, logged, conn):
        logged.run(views(("ab", 1), ("ac", 5), ("b", 9)))
        logged.run(views(("ab", 100), ("new", 7)))
        reader = StateReader(conn, logged.specs[0])

        def page(**arguments):
            return [entry["key"][0] for entry in reader.page(at_txid=1, **arguments).parsed()]

        assert page() == ["ab", "ac", "b"]
        assert page(search="a", order_by="n", descending=True) == ["ac", "ab"]
        assert page(limit=1, after=["ab"]) == ["ac"]

    @pytest.mark.parametrize("changelog", [True, False])
    def test_a_global_state_and_one_of_json_values_have_a_past_too(self, new_feed, fresh, conn, changelog):
        totals = new_feed(fresh(StateSpec("totals", measures={"n": Count()}, changelog=changelog)))
        texts = new_feed(fresh(StateSpec("texts", key={"page": "text"}, value="jsonb", changelog=changelog)))
        for number in (1, 2):
            totals.run([{"n": number}])
            batch = texts.begin(number - 1)
            backing = texts.backing(texts.specs[0])
            counts = OpaqueMap(LoggedMap(backing, Changelog(conn, texts.specs[0])) if changelog else backing)
            counts.begin_commit(batch.txid)
            counts.multi_put([("a",)], [{"x": [number]}])
            texts.ledger.commit(batch)

        assert read(totals, 1, ()) == [1]
        (answer,) = StateReader(conn, texts.specs[0]).multi_get([("a",)], at_txid=1).parsed()
        (entry,) = StateReader(conn, texts.specs[0]).page(at_txid=1).parsed()
        assert (answer["value"], entry["value"]) == ({"x": [1]}, {"x": [1]})

    def test_ttl_counts_at_the_time_of_the_batch(self, new_feed, fresh):
        feed = new_feed(fresh(VIEWS))
        feed.run(views(("a", 1)))
        feed.run([])
        let_time_pass(feed.conn, feed.specs, feed.pipeline, 1.1 * HOUR)
        feed.run([])

        assert [read(feed, txid, ("a",)) for txid in (1, 2, 3)] == [[1], [1], ["expired"]]

    def test_wrong_arguments_are_refused_as_now(self, logged, conn, fresh):
        reader = StateReader(conn, logged.specs[0])

        with pytest.raises(KeyShapeError, match="key 0: page must be text, got 7"):
            reader.multi_get([(7,)], at_txid=0)
        with pytest.raises(SpecError, match="no measure 'speed'"):
            reader.multi_get([("a",)], ["speed"], at_txid=0)
        with pytest.raises(UnknownStateError):
            StateReader(conn, fresh(VIEWS)).multi_get([("a",)], at_txid=0)


class TestReach:
    def test_a_batch_that_is_not_committed_is_refused_even_while_it_is_open(self, logged):
        logged.run(views(("a", 1)))
        logged.apply(logged.begin(1), logged.specs[0], views(("a", 1)))

        with pytest.raises(NotCommittedError) as caught:
            read(logged, 2, ("a",))

        assert str(caught.value) == (
            f"state {logged.specs[0].name!r}: batch 2 is not committed, the newest one is 1; wait for it, or ask for "
            "an earlier one"
        )

    def test_a_batch_before_the_horizon_is_refused_with_the_oldest_on_hand(self, logged, conn):
        for _ in range(4):
            logged.run(views(("a", 1)))
        list(compact(conn, logged.specs[0], keep=NOTHING))

        with pytest.raises(OutOfReachError) as caught:
            read(logged, 2, ("a",))

        assert caught.value.oldest == 3
        assert str(caught.value) == (
            f"state {logged.specs[0].name!r}: batch 2 is out of reach, this query can be answered from batch 3 on; "
            "ask for that or a later one"
        )
        assert read(logged, 3, ("a",)) == [3]
        assert oldest(logged, -1, ("a",)) == 3

    def test_a_state_that_was_added_later_cannot_answer_for_earlier_batches(self, logged, conn, fresh):
        logged.run(views(("a", 1)))
        late = fresh(VIEWS)
        Catalog(conn).register_states(logged.pipeline, [late], {late.name: ""})

        with pytest.raises(OutOfReachError) as caught:
            StateReader(conn, late).multi_get([("a",)], at_txid=0)

        assert caught.value.oldest == 1
        assert StateReader(conn, late).multi_get([("a",)], at_txid=1).parsed()[0]["status"] == "missing"

    def test_rows_of_an_open_batch_are_never_shown(self, logged, bare):
        for feed in (logged, bare):
            feed.run(views(("a", 1)))
            feed.apply(feed.begin(1), feed.specs[0], views(("a", 5), ("new", 1)))

            assert read(feed, 1, ("a",), ("new",)) == [1, "missing"]


class TestWithoutAChangelog:
    """Two versions: each key reaches back as far as the older one was written."""

    def test_the_batch_before_the_committed_one_can_be_read(self, bare):
        bare.run(views(("a", 1), ("b", 1)))
        bare.run(views(("a", 1), ("new", 1)))

        assert read(bare, 1, ("a",), ("b",), ("new",), ("nope",)) == [1, 1, "missing", "missing"]
        assert [entry["key"] for entry in StateReader(bare.conn, bare.specs[0]).page(at_txid=1).parsed()] == [
            ["a"],
            ["b"],
        ]

    def test_a_key_overwritten_twice_since_cannot_be_read_and_others_can(self, bare):
        bare.run(views(("a", 1), ("b", 1)))
        bare.run(views(("a", 1)))
        bare.run(views(("a", 1)))

        assert read(bare, 1, ("b",)) == [1]
        assert oldest(bare, 1, ("b",), ("a",)) == 2
        with pytest.raises(OutOfReachError):
            StateReader(bare.conn, bare.specs[0]).page(at_txid=1)

    def test_a_version_that_a_revert_used_up_is_not_taken_for_a_new_key(self, bare):
        bare.run(views(("a", 1)))
        bare.run(views(("a", 1)))
        bare.apply(bare.begin(2), bare.specs[0], views(("a", 1)))
        assert read(bare, 1, ("new",)) == ["missing"]

        bare.begin(2)

        assert oldest(bare, 1, ("a",)) == 2
        assert read(bare, 2, ("a",)) == [2]

    def test_an_open_batch_uses_one_version_up(self, bare):
        bare.run(views(("a", 1)))
        bare.run(views(("a", 1)))
        bare.apply(bare.begin(2), bare.specs[0], views(("a", 1)))

        assert read(bare, 2, ("a",)) == [2]
        assert oldest(bare, 1, ("a",)) == 2

    def test_a_row_that_expiry_freed_was_there_once(self, new_feed, fresh, conn):
        feed = new_feed(fresh(BARE))
        feed.run(views(("a", 1)))
        feed.run([])
        let_time_pass(conn, feed.specs, feed.pipeline, 1.1 * HOUR)
        assert read(feed, 2, ("a",)) == [1]

        list(expire(conn, feed.specs[0]))

        assert oldest(feed, 2, ("a",)) == 3
        feed.run([])
        assert read(feed, 3, ("a",)) == ["missing"]

    def test_expiry_that_finds_nothing_leaves_the_reach_alone(self, new_feed, fresh, conn):
        feed = new_feed(fresh(BARE))
        feed.run(views(("a", 1)))
        list(expire(conn, feed.specs[0]))

        assert read(feed, 1, ("a",)) == [1]
        assert read(feed, 0, ("a",)) == ["missing"]

    def test_a_batch_whose_record_is_deleted_cannot_be_read(self, new_feed, fresh, conn, monkeypatch):
        monkeypatch.setattr(maintenance, "KEPT_BATCHES", 1)
        feed = new_feed(one := fresh(BARE), two := fresh(BARE))
        for _ in range(4):
            feed.run(views(("a", 1)), views(("a", 1)) if feed.next_batch_id() == 0 else [])
        list(compact(conn, one, keep=NOTHING))  # the ledger is one for both

        with pytest.raises(OutOfReachError) as caught:
            StateReader(conn, two).multi_get([("a",)], at_txid=2)

        assert caught.value.oldest == 3
        assert StateReader(conn, two).multi_get([("a",)], at_txid=3).parsed()[0]["value"] == {"n": 1}

    def test_a_transactional_row_has_nothing_from_before_it(self, new_feed, fresh):
        feed = new_feed(fresh(replace(BARE, kind="transactional")))
        feed.run(views(("a", 1), ("b", 1)))
        feed.run(views(("a", 1)))

        assert read(feed, 2, ("a",), ("b",)) == [2, 1]
        assert read(feed, 1, ("b",), ("nope",)) == [1, "missing"]
        assert oldest(feed, 1, ("a",)) == 2

    def test_a_state_without_txids_answers_for_the_committed_batch_while_none_is_open(self, new_feed, fresh):
        feed = new_feed(fresh(replace(BARE, kind="non_transactional")))
        feed.run(views(("a", 1)))
        feed.run([])

        assert read(feed, 2, ("a",)) == [1]
        assert oldest(feed, 1, ("a",)) == 2
        feed.begin(2)
        assert oldest(feed, 2, ("a",)) == 3


def test_reads_in_the_past_beside_compaction_are_right_or_refused(logged, connect, monkeypatch):
    """Compaction deletes pages while readers read; a reader that misses an entry is refused."""
    monkeypatch.setattr(maintenance, "PAGE_ROWS", 7)
    for _ in range(5):
        logged.run(views(*((f"{n:02}", 1) for n in range(30))))
    keys = [(f"{n:02}",) for n in range(30)]
    reader = StateReader(connect(), logged.specs[0])
    answers = []

    for _ in compact(logged.conn, logged.specs[0], keep=NOTHING):
        for txid in (1, 4, 5):
            with suppress(OutOfReachError):
                answers.append(
                    (txid, {answer["value"]["n"] for answer in reader.multi_get(keys, at_txid=txid).parsed()})
                )

    assert set(map(str, answers)) == {"(4, {4})", "(5, {5})"}
