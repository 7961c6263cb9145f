"""Rewind: states and ledger as they were after an earlier batch, or an error before anything is touched."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import BatchLedger, Catalog, Changelog, Count, Max, StateReader, StateSpec
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.errors import (
    BatchOrderError,
    FencedError,
    OutOfReachError,
    PipelineHeldError,
    RewindError,
    UnknownPipelineError,
)
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.repair.rewind import Rewind

LOGGED = StateSpec("logged", key={"page": "text"}, measures={"n": Count()}, changelog=True)
HOUR = timedelta(hours=1)
PLAIN = StateSpec("plain", key={"page": "text"}, measures={"n": Count()})


def rewind(feed, to):
    """Take the feed's pipeline back, and begin again as its next driver does."""
    feed.ledger.release()
    with BatchLedger(feed.conn, feed.pipeline).idle():
        rewound = Rewind(feed.conn, feed.pipeline, to)
        rewound.run()
        rewound.follow()
    feed.ledger.acquire()


def plan(feed, to):
    steps = {step.spec.name: (step.way, step.obstacle) for step in Rewind(feed.conn, feed.pipeline, to).plan()}
    return [steps[spec.name] for spec in feed.specs]


def live(feed, spec=None):
    spec = spec or feed.specs[0]
    page = StateReader(feed.conn, spec).page(limit=100)
    return {entry["key"][0]: entry["value"]["n"] for entry in page.parsed()}


def everything(feed):
    """What is stored of the feed's states and of its ledger."""
    tables = [f"tidegauge_state.{spec.name}" for spec in feed.specs]
    tables += [f"tidegauge_changelog.{spec.name}" for spec in feed.specs if spec.changelog]
    rows = [feed.conn.execute(f"SELECT * FROM {table} ORDER BY 1, txid").fetchall() for table in tables]
    for table in ("pipeline", "batch", "state"):
        column = "name" if table == "pipeline" else "pipeline"
        rows += feed.conn.execute(f"SELECT * FROM tidegauge.{table} WHERE {column} = %s", [feed.pipeline]).fetchall()
    return rows


def remove(feed, *pages):
    """Run a batch that removes keys."""
    spec = feed.specs[0]
    batch = feed.begin(feed.next_batch_id())
    with feed.conn.transaction():
        lock_fence(feed.conn, batch)
        counts = MAPS[spec.kind](LoggedMap(feed.backing(spec), Changelog(feed.conn, spec)))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_remove([(page,) for page in pages])
    feed.ledger.commit(batch)


class TestByTheChangelog:
    def test_every_key_is_what_it_was_after_that_batch_and_counting_goes_on_from_there(self, new_feed, fresh):
        feed = new_feed(fresh(LOGGED))
        feed.run(views(("kept", 1), ("often", 1), ("gone", 1)))
        feed.run(views(("often", 10)))
        then = live(feed)
        remove(feed, "gone")
        feed.run(views(("often", 100), ("new", 100)))
        feed.apply(feed.begin(feed.next_batch_id()), feed.specs[0], views(("kept", 1000), ("newer", 1000)))

        rewind(feed, 2)
        at_once = live(feed)
        again = feed.run(views(("often", 5), ("gone", 5)))

        assert then == at_once == {"kept": 1, "often": 11, "gone": 1}
        assert again.txid == 3
        assert live(feed) == {"kept": 1, "often": 16, "gone": 6}
        history = Changelog(feed.conn, feed.specs[0]).history(("often",))
        assert [(change.txid, change.value["n"]) for change in history] == [(3, 16), (2, 11), (1, 1)]

    def test_what_follows_a_rewind_is_what_would_have_followed_the_batch(self, new_feed, fresh):
        batches = st.lists(st.lists(st.sampled_from("abcd"), max_size=3), min_size=1, max_size=5)

        @examples(8)
        @given(batches, st.data(), batches)
        def check(before, data, after):
            feed = new_feed(fresh(LOGGED))
            counts = []
            for pages in before:
                feed.run(views(*((page, 1) for page in sorted(set(pages)))))
                counts.append(live(feed))
            to = data.draw(st.integers(1, len(before)))

            rewind(feed, to)
            assert live(feed) == counts[to - 1]
            expected = live(feed)
            for pages in after:
                feed.run(views(*((page, 1) for page in sorted(set(pages)))))
                expected |= {page: expected.get(page, 0) + 1 for page in set(pages)}

            assert live(feed) == expected

        check()

    @pytest.mark.parametrize("kind", ["transactional", "opaque"])
    def test_a_state_of_either_kind_goes_back_several_batches(self, new_feed, fresh, kind):
        feed = new_feed(fresh(replace(LOGGED, kind=kind)), spout="transactional")
        for _ in range(4):
            feed.run(views(("a", 1)))

        rewind(feed, 1)

        assert live(feed) == {"a": 1}
        feed.run(views(("a", 1)))
        assert live(feed) == {"a": 2}

    def test_a_batch_before_the_last_compaction_is_refused_with_the_oldest_one(self, new_feed, fresh):
        feed = new_feed(fresh(LOGGED))
        for _ in range(4):
            feed.run(views(("a", 1)))
        let_time_pass(feed.conn, feed.specs, feed.pipeline, "2 days")
        feed.run(views(("a", 1)))
        for _ in compact(feed.conn, feed.specs[0], keep=HOUR):
            pass
        before = everything(feed)

        with pytest.raises(RewindError) as caught:
            rewind(feed, 2)

        assert "its changelog reaches back only to batch 4" in str(caught.value)
        feed.ledger.release()
        assert everything(feed)[:2] == before[:2]


class TestByPreviousVersions:
    def test_rows_go_back_one_batch(self, new_feed, fresh):
        feed = new_feed(fresh(PLAIN), fresh(LOGGED))
        feed.run(views(("a", 1), ("b", 1)), views(("a", 1)))
        feed.run(views(("a", 10), ("c", 10)), views(("a", 10)))

        assert plan(feed, 1) == [("previous versions", ""), ("changelog", "")]
        rewind(feed, 1)

        assert live(feed) == {"a": 1, "b": 1}
        assert live(feed, feed.specs[1]) == {"a": 1}
        feed.run(views(("a", 5)), views(("a", 5)))
        assert live(feed) == {"a": 6, "b": 1}
        assert live(feed, feed.specs[1]) == {"a": 6}

    def test_the_batch_that_was_gone_back_to_is_not_replayed_as_its_rows_lost_their_previous_versions(
        self, new_feed, fresh
    ):
        feed = new_feed(fresh(PLAIN))
        feed.run(views(("a", 1)))
        feed.run(views(("a", 10)))
        feed.run(views(("a", 100)))
        rewind(feed, 2)

        with pytest.raises(BatchOrderError):
            feed.begin(1)
        with pytest.raises(RewindError, match="batch 3 was begun; reverting it uses up the previous versions"):
            rewind(feed, 1)

        assert live(feed) == {"a": 11}

    def test_an_earlier_batch_is_not_read_from_rows_that_lost_it(self, new_feed, fresh):
        feed = new_feed(fresh(PLAIN))
        for _ in range(3):
            feed.run(views(("a", 1)))

        rewind(feed, 2)

        with pytest.raises(OutOfReachError):
            StateReader(feed.conn, feed.specs[0]).multi_get([("a",)], at_txid=1)

    @pytest.mark.parametrize(
        ("kind", "batches", "reason"),
        [
            ("opaque", 3, "has no changelog, and its rows reach back only to batch 2"),
            ("transactional", 2, "has no changelog, and a transactional state has no previous versions"),
            ("non_transactional", 2, "has no changelog, and a non_transactional state has no previous versions"),
        ],
    )
    def test_what_rows_cannot_mend_is_said_of_each_state_before_anything_is_touched(
        self, new_feed, fresh, kind, batches, reason
    ):
        feed = new_feed(fresh(replace(PLAIN, kind=kind)), fresh(LOGGED))
        for _ in range(batches):
            feed.run(views(("a", 1)), views(("a", 1)))
        feed.ledger.release()
        states = [f"tidegauge_state.{spec.name}" for spec in feed.specs]
        before = [feed.conn.execute(f"SELECT * FROM {name}").fetchall() for name in states]

        with pytest.raises(RewindError) as caught:
            Rewind(feed.conn, feed.pipeline, 1).run()

        assert str(caught.value) == (
            f"pipeline {feed.pipeline!r} cannot go back to batch 1: state {feed.specs[0].name!r}: {reason}"
        )
        assert [feed.conn.execute(f"SELECT * FROM {name}").fetchall() for name in states] == before
        assert plan(feed, 1)[1] == ("changelog", "")


class TestLedger:
    def test_a_state_that_was_added_later_is_emptied_and_lacks_what_came_before_as_ever(self, new_feed, fresh):
        early, late = fresh(LOGGED), fresh(PLAIN)
        feed = new_feed(early)
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))
        Catalog(feed.conn).register_states(feed.pipeline, [early, late], {early.name: "", late.name: ""})
        feed.specs = [early, late]
        feed.run(views(("a", 1)), views(("a", 1)))
        feed.run(views(("a", 1)), views(("a", 1)))

        assert plan(feed, 1) == [("changelog", ""), ("emptied", "")]
        rewind(feed, 1)

        assert live(feed) == {"a": 1}
        assert live(feed, late) == {}
        assert feed.conn.execute("SELECT since_txid FROM tidegauge.state WHERE name = %s", [late.name]).fetchone() == (
            1,
        )

    def test_a_measure_that_was_added_later_holds_nothing_again(self, new_feed, fresh):
        spec = fresh(LOGGED)
        feed = new_feed(spec)
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))
        grown = replace(spec, measures=spec.measures | {"most": Max("n", type="bigint")})
        Catalog(feed.conn).register_states(feed.pipeline, [grown], {grown.name: ""})
        feed.specs = [grown]
        feed.run([{"page": "a", "n": 1, "most": 7}])

        rewind(feed, 1)

        assert feed.read(grown, ("a",)) == [{"n": 1, "most": None}]
        assert feed.conn.execute(
            "SELECT measures_since FROM tidegauge.state WHERE name = %s", [grown.name]
        ).fetchone() == ({"most": 1},)

    def test_batches_and_dead_letters_after_it_are_gone_and_the_epoch_is_a_new_one(self, new_feed, fresh):
        feed = new_feed(fresh(LOGGED))
        for _ in range(3):
            batch = feed.begin(feed.next_batch_id())
            with feed.conn.transaction():
                write_dead_letters(feed.conn, batch, [DeadLetter("file", "line", "reason")])
            feed.ledger.commit(batch, dead_letters=1)
        epoch = feed.ledger.epoch

        rewind(feed, 1)

        place = [feed.pipeline]
        assert feed.ledger.epoch != epoch
        assert feed.conn.execute("SELECT txid FROM tidegauge.batch WHERE pipeline = %s", place).fetchall() == [(1,)]
        assert feed.conn.execute("SELECT txid FROM tidegauge.dead_letter WHERE pipeline = %s", place).fetchall() == [
            (1,)
        ]
        assert feed.conn.execute("SELECT reason FROM tidegauge.epoch ORDER BY number DESC LIMIT 1").fetchone() == (
            f"pipeline {feed.pipeline!r} was rewound from batch 3 to batch 1",
        )

    def test_a_task_of_the_time_before_writes_nothing(self, new_feed, fresh):
        feed = new_feed(fresh(LOGGED))
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))
        late = feed.begin(2)
        feed.ledger.release()

        Rewind(feed.conn, feed.pipeline, 1).run()

        with pytest.raises(FencedError):
            feed.apply(late, feed.specs[0], views(("a", 41)))
        assert live(feed) == {"a": 1}

    def test_going_back_to_the_committed_batch_changes_nothing(self, new_feed, fresh):
        feed = new_feed(fresh(PLAIN))
        feed.run(views(("a", 1)))
        before = everything(feed)

        Rewind(feed.conn, feed.pipeline, 1).run()

        assert everything(feed) == before

    def test_a_batch_that_the_ledger_does_not_know_is_refused_with_those_it_knows(self, new_feed, fresh):
        feed = new_feed(fresh(LOGGED))
        feed.run(views(("a", 1)))

        with pytest.raises(RewindError) as caught:
            Rewind(feed.conn, feed.pipeline, 7)

        assert str(caught.value) == (
            f"pipeline {feed.pipeline!r} cannot go back to batch 7: the ledger has batches 1 to 1; to count from the "
            "start of the input, run it with --reprocess"
        )

    def test_an_unknown_pipeline_is_named(self, conn):
        with pytest.raises(UnknownPipelineError, match="pipeline 'nope' does not exist"):
            Rewind(conn, "nope", 1)

    def test_a_live_driver_keeps_its_pipeline(self, new_feed, fresh, connect):
        feed = new_feed(fresh(LOGGED))

        with pytest.raises(PipelineHeldError), BatchLedger(connect(), feed.pipeline).idle():
            pass
