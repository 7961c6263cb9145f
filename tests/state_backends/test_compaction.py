from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.all_types_measure import Wide
from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Changelog, Count, OpaqueMap, StateReader, StateSpec, Versioned, maintenance
from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.maintenance import compact, expire, sizes
from tidegauge.state_backends.maps import MAPS

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
TEXTS = StateSpec("texts", key={"page": "text"}, value="jsonb")
NOTHING, FOR_EVER = timedelta(), timedelta(days=10_000)


def txids(feed, *key):
    return [change.txid for change in Changelog(feed.conn, feed.specs[0]).history(key, upto=1_000)]


def removed(steps):
    """Return how many of what a whole run has removed."""
    return {step.step: step.removed for step in steps if step.removed}


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


class TestChangelog:
    def test_the_newest_entry_before_the_horizon_stays_and_all_after_it(self, feed, conn):
        for _ in range(3):
            feed.run(views(("a", 1)))
        feed.run(views(("b", 1)))
        let_time_pass(conn, feed.specs, feed.pipeline, timedelta(hours=2))
        for _ in range(3):
            feed.run(views(("a", 1)))

        steps = list(compact(conn, feed.specs[0], keep=timedelta(hours=1)))

        assert removed(steps) == {"changelog entries": 2}
        assert (txids(feed, "a"), txids(feed, "b")) == ([7, 6, 5, 3], [4])

    def test_reads_before_the_horizon_are_refused_with_the_oldest_batch(self, feed, conn):
        oldest = "SELECT oldest_txid FROM tidegauge.state WHERE name = %s"
        for _ in range(3):
            feed.run(views(("a", 1)))

        list(compact(conn, feed.specs[0], keep=FOR_EVER))
        assert conn.execute(oldest, [feed.specs[0].name]).fetchone() == (0,)
        list(compact(conn, feed.specs[0], keep=NOTHING))
        assert conn.execute(oldest, [feed.specs[0].name]).fetchone() == (2,)
        list(compact(conn, feed.specs[0], keep=FOR_EVER))
        assert conn.execute(oldest, [feed.specs[0].name]).fetchone() == (2,)

    def test_entries_of_an_open_batch_stay(self, feed, conn):
        feed.run(views(("a", 1)))
        feed.run(views(("a", 1)))
        feed.apply(feed.begin(2), feed.specs[0], views(("a", 1)))

        list(compact(conn, feed.specs[0], keep=NOTHING))

        assert txids(feed, "a") == [3, 2, 1]

    def test_the_committed_batch_can_still_be_reverted_with_its_history(self, feed, conn):
        for _ in range(3):
            feed.run(views(("a", 1)))
        list(compact(conn, feed.specs[0], keep=NOTHING))

        feed.run(views(("b", 1)), batch_id=2)

        assert feed.read(feed.specs[0], ("a",), ("b",)) == [{"n": 2}, {"n": 1}]
        assert (txids(feed, "a"), txids(feed, "b")) == ([2], [3])

    def test_a_second_run_removes_nothing(self, feed, conn):
        for _ in range(5):
            feed.run(views(("a", 1), ("b", 1)))
        list(compact(conn, feed.specs[0], keep=NOTHING))

        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}

    def test_states_without_one_have_nothing_to_trim(self, new_feed, fresh, conn):
        feed = new_feed(fresh(replace(VIEWS, changelog=False)))
        feed.run(views(("a", 1)))

        steps = list(compact(conn, feed.specs[0], keep=NOTHING))

        assert [step.step for step in steps] == ["tombstones", "ledger rows", "dead space"]

    def test_the_ledger_keeps_the_times_of_batches_that_can_still_be_read(self, new_feed, fresh, conn, monkeypatch):
        monkeypatch.setattr(maintenance, "KEPT_BATCHES", 1)
        feed = new_feed(one := fresh(replace(VIEWS, changelog=False)), two := fresh(VIEWS))
        for _ in range(4):
            feed.run(views(("a", 1)), views(("a", 1)))

        assert "ledger rows" not in removed(compact(conn, one, keep=NOTHING))
        assert found(conn, two, 1) == {"a": 1}
        assert removed(compact(conn, two, keep=NOTHING))["ledger rows"] == 2


def found(conn, spec, txid):
    """Return what a reader as of a batch finds."""
    return {entry["key"][0]: entry["value"]["n"] for entry in StateReader(conn, spec).page(at_txid=txid).parsed()}


class TestDeadEntries:
    """Entries whose deletion changes no answer."""

    HOUR = timedelta(hours=1)

    def remove(self, feed, *pages):
        spec = feed.specs[0]
        batch = feed.begin(feed.next_batch_id())
        counts = MAPS[spec.kind](LoggedMap(feed.backing(spec), Changelog(feed.conn, spec)))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_remove([(page,) for page in pages])
        feed.ledger.commit(batch)

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_a_removed_key_leaves_nothing_behind(self, new_feed, fresh, conn, kind):
        feed = new_feed(spec := fresh(replace(VIEWS, kind=kind)))
        feed.run(views(("a", 1), ("b", 1)))
        self.remove(feed, "a")
        feed.run([])

        assert removed(compact(conn, spec, keep=NOTHING)) == {
            "changelog entries": 1,
            "dead entries": 1,
            "tombstones": 1,
        }
        assert (txids(feed, "a"), txids(feed, "b")) == ([], [1])
        assert found(conn, spec, 2) == {"b": 1}

    def test_a_removal_at_the_committed_batch_stays_and_so_does_what_it_removed(self, feed, conn):
        feed.run(views(("a", 1)))
        self.remove(feed, "a")

        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}
        assert (found(conn, feed.specs[0], 1), found(conn, feed.specs[0], 2)) == ({"a": 1}, {})

    def test_a_removal_after_the_horizon_stays_even_if_nothing_was_there(self, feed, conn):
        feed.run([])
        self.remove(feed, "never")

        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}
        assert txids(feed, "never") == [2]

    def test_a_key_that_came_back_keeps_what_came_back(self, feed, conn):
        feed.run(views(("a", 1)))
        self.remove(feed, "a")
        feed.run([])
        feed.run(views(("a", 5)))

        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {"changelog entries": 1, "dead entries": 1}
        assert txids(feed, "a") == [4]
        assert (found(conn, feed.specs[0], 3), found(conn, feed.specs[0], 4)) == ({}, {"a": 5})

    def test_an_expired_key_leaves_nothing_behind_whether_or_not_expiry_ran(self, new_feed, fresh, conn):
        for run_expiry in (False, True):
            feed = new_feed(spec := fresh(replace(VIEWS, ttl=self.HOUR)))
            feed.run(views(("old", 1), ("kept", 1)))
            let_time_pass(conn, feed.specs, feed.pipeline, 0.7 * self.HOUR)
            feed.run(views(("kept", 1)))
            let_time_pass(conn, feed.specs, feed.pipeline, 0.7 * self.HOUR)
            feed.run([])
            feed.run([])
            if run_expiry:
                list(expire(conn, spec))

            assert removed(compact(conn, spec, keep=NOTHING)) == {"changelog entries": 1, "dead entries": 1}
            assert (txids(feed, "old"), txids(feed, "kept")) == ([], [2])
            assert found(conn, spec, 3) == found(conn, spec, 4) == {"kept": 2}

    def test_a_key_that_was_live_at_the_horizon_stays_though_it_has_expired_since(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(replace(VIEWS, ttl=self.HOUR)))
        feed.run(views(("a", 1)))
        feed.run([])
        let_time_pass(conn, feed.specs, feed.pipeline, 2 * self.HOUR)
        feed.run([])
        list(expire(conn, spec))

        assert removed(compact(conn, spec, keep=self.HOUR)) == {}
        assert (found(conn, spec, 2), found(conn, spec, 3)) == ({"a": 1}, {})

    def test_a_tombstone_whose_older_entry_was_skipped_stays(self, feed, conn, connect):
        """The older entry was locked. Without the tombstone, the removed key would come back."""
        feed.run(views(("a", 1)))
        self.remove(feed, "a")
        feed.run([])
        holder = connect()

        with holder.transaction():
            holder.execute(f"SELECT FROM tidegauge_changelog.{feed.specs[0].name} WHERE txid = 1 FOR UPDATE")
            assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {"tombstones": 1}

        assert found(conn, feed.specs[0], 2) == {}
        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {"changelog entries": 1, "dead entries": 1}


class TestPages:
    @pytest.fixture
    def paged(self, feed, monkeypatch):
        """Three versions of each of 10 keys, trimmed 4 rows at a time."""
        monkeypatch.setattr(maintenance, "PAGE_ROWS", 4)
        for _ in range(3):
            feed.run(views(*((f"{n}", 1) for n in range(10))))
        return feed

    def test_a_walk_goes_through_every_page_once(self, paged, conn):
        steps = [step for step in compact(conn, paged.specs[0], keep=NOTHING) if step.step == "changelog entries"]

        assert [step.seen for step in steps] == [4, 8, 12, 16, 20, 24, 28, 30]
        assert steps[-1].removed == 10
        assert {tuple(txids(paged, f"{n}")) for n in range(10)} == {(3, 2)}

    def test_a_run_may_stop_between_pages_and_the_next_one_finishes(self, paged, conn):
        run = compact(conn, paged.specs[0], keep=NOTHING)
        next(run), next(run)
        run.close()
        assert sum(len(txids(paged, f"{n}")) for n in range(10)) > 20

        list(compact(conn, paged.specs[0], keep=NOTHING))

        assert {tuple(txids(paged, f"{n}")) for n in range(10)} == {(3, 2)}

    def test_a_page_is_done_before_the_next_begins(self, paged, conn, connect):
        run = compact(conn, paged.specs[0], keep=NOTHING)
        next(run)

        batch = paged.begin(3)
        paged.apply(batch, paged.specs[0], views(*((f"{n}", 1) for n in range(10))), connect())
        paged.ledger.commit(batch)
        list(run)

        assert {answer["n"] for answer in paged.read(paged.specs[0], *((f"{n}",) for n in range(10)))} == {4}

    @pytest.mark.parametrize("key", [{"page": "text", "day": "date"}, {"at": "timestamptz"}, {"x": "double precision"}])
    def test_keys_of_any_type_are_walked(self, new_feed, fresh, conn, monkeypatch, key):
        monkeypatch.setattr(maintenance, "PAGE_ROWS", 1)
        feed = new_feed(fresh(replace(VIEWS, key=key, partitions=2)))
        values = {"text": "é\"'", "date": "2013-01-01", "timestamptz": "2013-01-01T00:00:00.000001Z"}
        rows = [{name: values.get(kind, x) for name, kind in key.items()} | {"n": 1} for x in (0.1, float("nan"))]
        for _ in range(3):
            feed.run(rows if "x" in key else rows[:1])

        assert removed(compact(conn, feed.specs[0], keep=NOTHING))["changelog entries"] == (2 if "x" in key else 1)


class TestTombstones:
    def remove(self, feed, txid, *keys):
        counts = MAPS[feed.specs[0].kind](feed.backing(feed.specs[0]))
        counts.begin_commit(txid)
        counts.multi_remove([(key,) for key in keys])

    @pytest.mark.parametrize("kind", ["opaque", "transactional", "non_transactional"])
    def test_tombstones_are_deleted_once_they_are_not_needed(self, new_feed, fresh, conn, kind):
        feed = new_feed(spec := fresh(replace(VIEWS, kind=kind, changelog=False)))
        feed.run(views(("a", 1), ("b", 1)))
        batch = feed.begin(1)
        self.remove(feed, batch.txid, "a")
        feed.ledger.commit(batch)
        feed.run([])

        assert removed(compact(conn, spec, keep=NOTHING)) == {"tombstones": 1}
        assert [key for key, _ in feed.backing(spec).scan()] == [("b",)]

    def test_a_removal_that_may_be_reverted_stays(self, feed, conn):
        feed.run(views(("a", 1), ("b", 1)))
        batch = feed.begin(1)
        self.remove(feed, batch.txid, "a")
        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}
        feed.ledger.commit(batch)
        assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}

        feed.run([], batch_id=1)

        assert feed.read(feed.specs[0], ("a",)) == [{"n": 1}]

    def test_a_removal_within_the_retention_stays(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(replace(VIEWS, changelog=False)))
        feed.run(views(("a", 1)))
        batch = feed.begin(1)
        self.remove(feed, batch.txid, "a")
        feed.ledger.commit(batch)
        feed.run([])

        assert removed(compact(conn, spec, keep=FOR_EVER)) == {}
        assert (found(conn, spec, 1), found(conn, spec, 2)) == ({"a": 1}, {})

    def test_a_row_that_is_written_again_meanwhile_stays(self, feed, conn, connect):
        feed.run(views(("a", 1)))
        batch = feed.begin(1)
        self.remove(feed, batch.txid, "a")
        feed.ledger.commit(batch)
        feed.run([])
        batch, task = feed.begin(3), connect()

        with task.transaction():
            feed.apply(batch, feed.specs[0], views(("a", 5)), task)
            assert removed(compact(conn, feed.specs[0], keep=NOTHING)) == {}
        feed.ledger.commit(batch)

        assert feed.read(feed.specs[0], ("a",)) == [{"n": 5}]


class TestPreviousVersions:
    @pytest.fixture
    def texts(self, new_feed, fresh):
        return new_feed(fresh(TEXTS))

    def run(self, feed, *pairs):
        batch = feed.begin(feed.next_batch_id())
        counts = OpaqueMap(feed.backing(feed.specs[0]))
        counts.begin_commit(batch.txid)
        counts.multi_put([(key,) for key, _ in pairs], [value for _, value in pairs])
        feed.ledger.commit(batch)

    def test_previous_json_values_are_released_below_the_committed_batch(self, texts, conn):
        self.run(texts, ("a", "old"), ("b", "old"))
        self.run(texts, ("a", "new"), ("b", "new"))
        self.run(texts, ("b", "newest"))

        assert removed(compact(conn, texts.specs[0], keep=NOTHING)) == {"previous versions": 1}

        assert dict(texts.backing(texts.specs[0]).scan()) == {
            ("a",): Versioned("new", 2),
            ("b",): Versioned("newest", 3, "new", 2),
        }

    def test_the_committed_batch_can_still_be_reverted(self, texts, conn):
        self.run(texts, ("a", "old"))
        self.run(texts, ("a", "new"))
        list(compact(conn, texts.specs[0], keep=NOTHING))

        texts.begin(1)

        assert texts.read(texts.specs[0], ("a",)) == ["old"]

    @pytest.mark.parametrize("measure", ["wide", "narrow"])
    def test_measures_are_wide_where_their_columns_are(self, new_feed, fresh, conn, monkeypatch, measure):
        monkeypatch.setitem(AGGREGATORS, "wide", Wide)
        measures = {"n": Count()} | ({"w": Wide()} if measure == "wide" else {})
        feed = new_feed(spec := fresh(StateSpec("mixed", key={"page": "text"}, measures=measures)))
        value = dict.fromkeys(spec.value_columns) | {"n": 1}
        for _ in range(2):
            self.run(feed, ("a", value))
        self.run(feed, ("b", value))

        assert removed(compact(conn, spec, keep=NOTHING)) == ({"previous versions": 1} if measure == "wide" else {})

    def test_versions_within_the_retention_stay(self, texts, conn):
        for value in ("old", "new"):
            self.run(texts, ("a", value))
        self.run(texts, ("b", 1))

        assert removed(compact(conn, texts.specs[0], keep=FOR_EVER)) == {}


class TestLedger:
    def test_old_batches_are_deleted_except_the_last_thousand(self, feed, conn, monkeypatch):
        monkeypatch.setattr(maintenance, "KEPT_BATCHES", 3)
        for _ in range(8):
            feed.run(views(("a", 1)))

        steps = removed(compact(conn, feed.specs[0], keep=NOTHING))

        kept = conn.execute("SELECT txid FROM tidegauge.batch WHERE pipeline = %s ORDER BY txid", [feed.pipeline])
        assert steps["ledger rows"] == 4
        assert [txid for (txid,) in kept] == [5, 6, 7, 8]

    def test_the_batch_before_the_committed_one_stays_for_a_revert(self, feed, conn, monkeypatch):
        monkeypatch.setattr(maintenance, "KEPT_BATCHES", 1)
        batches = [feed.run(views(("a", 1))) for _ in range(4)]
        list(compact(conn, feed.specs[0], keep=NOTHING))

        feed.begin(3)

        (time,) = conn.execute(
            "SELECT committed_time FROM tidegauge.pipeline WHERE name = %s", [feed.pipeline]
        ).fetchone()
        assert time == batches[2].batch_time


def test_a_committed_batch_reads_and_reverts_exactly_after_compaction(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, partitions=4)))
    for number in range(6):
        feed.run(views(*((f"{n}", number) for n in range(20))))
    before = feed.read(spec, *((f"{n}",) for n in range(20)))

    list(compact(conn, spec, keep=NOTHING))

    assert feed.read(spec, *((f"{n}",) for n in range(20))) == before
    feed.run(views(("0", 100)), batch_id=5)
    assert feed.read(spec, ("0",), ("1",)) == [{"n": 110}, {"n": 10}]


def test_compaction_beside_a_task_neither_waits_nor_deadlocks(feed, conn, connect):
    for _ in range(3):
        feed.run(views(*((f"{n}", 1) for n in range(50))))
    batch, task = feed.begin(3), connect()
    conn.execute("SET lock_timeout = '2s'")

    with task.transaction():
        feed.apply(batch, feed.specs[0], views(*((f"{n}", 1) for n in range(50))), task)
        steps = removed(compact(conn, feed.specs[0], keep=NOTHING))
    feed.ledger.commit(batch)

    assert steps["changelog entries"] == 50
    assert {answer["n"] for answer in feed.read(feed.specs[0], *((f"{n}",) for n in range(50)))} == {4}


def test_figures_before_and_after_count_exactly(feed, conn):
    for _ in range(4):
        feed.run(views(("a", 1), ("b", 1)))
    before = sizes(conn, feed.specs[0])

    list(compact(conn, feed.specs[0], keep=NOTHING))

    after = sizes(conn, feed.specs[0])
    assert (before["state_rows"], before["changelog_rows"]) == (2, 8)
    assert (after["state_rows"], after["changelog_rows"]) == (2, 4)
    assert min(after["state_bytes"], after["changelog_bytes"]) > 0


def test_figures_of_a_partitioned_state_cover_its_partitions(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, partitions=3, changelog=False)))
    feed.run(views(*((f"{n}", 1) for n in range(500))))

    figures = sizes(conn, spec)

    (bytes_of_parts,) = conn.execute(
        "SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = %s::regclass",
        [f"tidegauge_state.{spec.name}"],
    ).fetchone()
    assert figures == {"state_rows": 500, "state_bytes": bytes_of_parts}


def test_a_state_that_is_not_registered_is_refused(conn, fresh):
    spec = fresh(VIEWS)

    for run in (compact(conn, spec, keep=NOTHING), expire(conn, spec)):
        with pytest.raises(UnknownStateError) as caught:
            next(run)
        assert str(caught.value) == f"state {spec.name!r} is not registered with any pipeline"
