"""What every map state must do, and what each kind adds: begin, commit, roll back, replay."""

from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.state_backends import (
    Combine,
    NonTransactionalMap,
    OpaqueMap,
    Reduce,
    Replace,
    SnapshottableMap,
    StateSpec,
    TransactionalMap,
    Versioned,
)
from tidegauge.state_backends.errors import RepeatedUpdateError, StaleBatchError

MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)


def add(number: int) -> Combine:
    return Combine(lambda stored, partial: stored + partial, number)


class Refusing:
    """An updater that fails, as a user's own may."""

    def update(self, stored):
        raise ZeroDivisionError


class MapStateContract:
    """What a map state of any kind must do; a subclass sets `kind` and `map_class`."""

    kind: str
    map_class: type

    @pytest.fixture
    def backing(self, new_backing):
        return new_backing(StateSpec("counts", key={"word": "text"}, value="jsonb", kind=self.kind))

    @pytest.fixture
    def counts(self, backing):
        # Some tests update a key in several calls, which a transactional map takes only where its writes are atomic.
        return self.map_class(backing, atomic=True)

    def run(self, counts, txid, *pairs):
        """Run one whole batch that adds numbers to words; returns the new values."""
        counts.begin_commit(txid)
        values = counts.multi_update([(word,) for word, _ in pairs], [add(number) for _, number in pairs])
        counts.commit(txid)
        return values

    def test_updates_return_the_new_values_in_the_order_asked(self, counts):
        assert self.run(counts, 1, ("b", 2), ("a", 1)) == [2, 1]
        assert self.run(counts, 2, ("a", 10), ("c", 5), ("b", 20)) == [11, 5, 22]
        assert counts.multi_get([("c",), ("a",), ("nope",), ("a",)]) == [5, 11, None, 11]

    def test_empty_calls_change_nothing(self, counts, backing):
        counts.begin_commit(1)

        assert counts.multi_update([], []) == []
        counts.multi_put([], [])
        counts.multi_remove([])
        assert counts.multi_get([]) == []
        assert list(backing.scan()) == []

    def test_a_batch_sees_what_it_wrote(self, counts):
        self.run(counts, 1, ("a", 1))

        counts.begin_commit(2)
        counts.multi_update([("a",)], [add(2)])

        assert counts.multi_get([("a",)]) == [3]
        assert counts.multi_update([("a",)], [add(4)]) == [7]

    def test_a_key_that_comes_twice_in_one_call_is_updated_twice(self, counts):
        assert self.run(counts, 1, ("a", 1), ("b", 5), ("a", 2)) == [1, 5, 3]
        assert counts.multi_get([("a",), ("b",)]) == [3, 5]

    def test_an_updater_that_raises_leaves_the_whole_call_unwritten(self, counts, backing):
        self.run(counts, 1, ("a", 1))
        before = list(backing.scan())
        counts.begin_commit(2)

        with pytest.raises(ZeroDivisionError):
            counts.multi_update([("a",), ("b",)], [add(1), Refusing()])

        assert list(backing.scan()) == before

    def test_a_reducer_starts_from_init_where_nothing_is_stored(self, counts):
        reduce = Reduce(lambda: 100, lambda total, item: total + item, [1, 2])
        counts.begin_commit(1)

        assert counts.multi_update([("a",)], [reduce]) == [103]
        assert counts.multi_update([("a",)], [Reduce(lambda: 100, lambda total, item: total + item, [])]) == [103]

    def test_falsy_values_are_values(self, counts):
        counts.begin_commit(1)
        counts.multi_put([("zero",), ("empty",), ("no",)], [0, "", False])

        assert counts.multi_get([("zero",), ("empty",), ("no",)]) == [0, "", False]
        assert counts.multi_update([("zero",)], [add(5)]) == [5]

    def test_a_removed_key_reads_as_absent_and_counts_from_the_start(self, counts):
        self.run(counts, 1, ("a", 7))
        counts.begin_commit(2)
        counts.multi_remove([("a",), ("never there",)])
        assert counts.multi_get([("a",)]) == [None]
        counts.commit(2)

        assert counts.multi_get([("a",)]) == [None]
        assert self.run(counts, 3, ("a", 1)) == [1]

    def test_remove_then_put_in_one_batch_is_a_put(self, counts):
        self.run(counts, 1, ("a", 7))
        counts.begin_commit(2)
        counts.multi_remove([("a",)])
        counts.multi_put([("a",)], [5])
        counts.commit(2)

        self.run(counts, 3, ("b", 1))

        assert counts.multi_get([("a",)]) == [5]

    def test_values_outlive_the_map_object(self, counts, backing):
        self.run(counts, 1, ("a", 7))

        assert self.map_class(backing).multi_get([("a",)]) == [7]

    def test_outside_a_batch_an_update_changes_the_value_but_not_its_txid(self, counts, backing):
        self.run(counts, 3, ("a", 7))
        (before,) = backing.multi_get([("a",)])

        assert counts.multi_update([("a",), ("b",)], [add(1), Replace(2)]) == [8, 2]

        (after, new) = backing.multi_get([("a",), ("b",)])
        assert (after.value, after.txid, after.prev, after.prev_txid) == (8, before.txid, before.prev, before.prev_txid)
        assert new.value == 2
        assert self.run(counts, 4, ("a", 1), ("b", 1)) == [9, 3]

    def test_writes_under_no_txid_are_writes_outside_a_batch(self, counts, backing):
        """Storm writes rows without a txid there, which its opaque map cannot read in any later batch."""
        self.run(counts, 3, ("a", 7))
        (before,) = backing.multi_get([("a",)])

        counts.begin_commit(None)
        assert counts.multi_update([("a",), ("b",)], [add(1), add(1)]) == [8, 1]
        assert counts.multi_update([("a",)], [add(1)]) == [9]
        counts.multi_put([("c",)], [5])
        counts.multi_remove([("b",)])
        counts.commit(None)

        assert backing.multi_get([("a",)])[0].txid == before.txid
        assert counts.multi_get([("a",), ("b",), ("c",)]) == [9, None, 5]
        assert self.run(counts, 4, ("a", 1), ("b", 1), ("c", 1)) == [10, 1, 6]

    def test_an_expired_value_counts_as_absent(self, new_backing):
        spec = StateSpec("counts", key={"word": "text"}, value="jsonb", kind=self.kind, ttl=timedelta(hours=1))
        counts = self.map_class(new_backing(spec))
        counts.begin_commit(1, at=MIDNIGHT)
        counts.multi_update([("a",), ("b",)], [add(10), add(10)])
        counts.begin_commit(2, at=MIDNIGHT + timedelta(minutes=59))
        assert counts.multi_get([("a",)]) == [10]
        counts.multi_update([("b",)], [add(1)])

        counts.begin_commit(3, at=MIDNIGHT + timedelta(minutes=60))

        assert counts.multi_get([("a",), ("b",)]) == [None, 11]
        assert counts.multi_update([("a",), ("b",)], [add(1), add(1)]) == [1, 12]

    def test_outside_a_batch_a_value_expires_by_the_clock(self, new_backing):
        spec = StateSpec("counts", key={"word": "text"}, value="jsonb", kind=self.kind, ttl=timedelta(hours=1))
        counts = self.map_class(new_backing(spec))
        counts.begin_commit(1, at=MIDNIGHT)
        counts.multi_put([("a",)], [10])
        counts.commit(1)

        assert counts.multi_get([("a",)]) == [None]
        assert counts.multi_update([("a",)], [add(1)]) == [1]
        assert counts.multi_get([("a",)]) == [1]

    def test_a_snapshot_is_one_global_value(self, new_backing):
        backing = new_backing(StateSpec("totals", value="jsonb", kind=self.kind))
        snapshot = SnapshottableMap(self.map_class(backing, atomic=True))

        snapshot.begin_commit(1)
        assert snapshot.get() is None
        assert snapshot.update(add(3)) == 3
        snapshot.commit(1)
        snapshot.begin_commit(2)
        assert snapshot.update(add(4)) == 7
        snapshot.set(1)
        snapshot.commit(2)

        assert snapshot.get() == 1


class OpaqueMapContract(MapStateContract):
    kind = "opaque"
    map_class = OpaqueMap

    def test_a_replay_computes_again_from_the_value_before_the_batch(self, counts):
        self.run(counts, 1, ("a", 10))
        self.run(counts, 2, ("a", 5))

        assert self.run(counts, 2, ("a", 1)) == [11]
        assert self.run(counts, 2, ("a", 1), ("a", 2)) == [11, 13]
        assert counts.multi_get([("a",)]) == [13]

    def test_a_replay_runs_every_call_for_a_key_that_the_failed_attempt_wrote(self, counts):
        counts.begin_commit(1)
        counts.multi_update([("a",)], [add(1)])  # and fails before its second call

        counts.begin_commit(1)

        assert [counts.multi_update([("a",)], [add(number)]) for number in (1, 2)] == [[1], [3]]

    def test_a_read_in_a_replay_sees_the_value_before_the_batch_until_the_batch_writes(self, counts):
        self.run(counts, 1, ("a", 10))
        self.run(counts, 2, ("a", 5), ("new", 1))
        counts.begin_commit(2)

        assert counts.multi_get([("a",), ("new",)]) == [10, None]
        counts.multi_update([("a",)], [add(1)])
        assert counts.multi_get([("a",), ("new",)]) == [11, None]

    def test_rollback_undoes_what_the_replay_does_not_touch(self, counts):
        self.run(counts, 1, ("dog", 7), ("cat", 1))
        self.run(counts, 2, ("dog", 1), ("cat", 1), ("new", 1))

        counts.begin_commit(2)
        rows = counts.rollback(2)
        counts.multi_update([("cat",)], [add(5)])
        counts.commit(2)

        assert rows == 3
        assert counts.multi_get([("dog",), ("cat",), ("new",)]) == [7, 6, None]
        assert self.run(counts, 3, ("dog", 1), ("new", 1)) == [8, 1]

    def test_a_replay_checks_the_ttl_of_the_previous_version(self, new_backing):
        spec = StateSpec("counts", key={"word": "text"}, value="jsonb", ttl=timedelta(hours=1))
        counts = OpaqueMap(new_backing(spec))
        counts.begin_commit(1, at=MIDNIGHT)
        counts.multi_put([("a",)], [10])
        for rolls_back in (False, True):
            for _ in range(2):
                counts.begin_commit(2, at=MIDNIGHT + timedelta(hours=1))
                assert counts.multi_update([("a",)], [add(1)]) == [1]
            if rolls_back:
                counts.rollback(2)
                counts.begin_commit(2, at=MIDNIGHT + timedelta(minutes=59))
                assert counts.multi_get([("a",)]) == [10]

    def test_a_replay_checks_the_ttl_of_the_previous_version_after_a_second_update_too(self, new_backing):
        spec = StateSpec("counts", key={"word": "text"}, value="jsonb", ttl=timedelta(hours=1))
        counts = OpaqueMap(new_backing(spec))
        counts.begin_commit(1, at=MIDNIGHT)
        counts.multi_put([("a",)], [10])

        for _ in range(2):
            counts.begin_commit(2, at=MIDNIGHT + timedelta(hours=1))
            assert [counts.multi_update([("a",)], [add(1)]) for _ in range(2)] == [[1], [2]]

    def test_what_a_batch_writes_after_a_rollback_is_rolled_back_too(self, counts, backing):
        self.run(counts, 1, ("a", 1))
        counts.begin_commit(2)
        counts.multi_update([("a",)], [add(10)])
        counts.rollback(2)
        counts.multi_update([("a",)], [add(100)])
        assert backing.multi_get([("a",)]) == [Versioned(101, 2, 1, 1)]

        counts.rollback(2)

        assert counts.multi_get([("a",)]) == [1]

    def test_rollback_undoes_a_removal(self, counts):
        self.run(counts, 1, ("a", 7))
        counts.begin_commit(2)
        counts.multi_remove([("a",)])

        counts.rollback(2)
        counts.commit(2)

        assert counts.multi_get([("a",)]) == [7]

    def test_rollback_in_the_middle_of_a_batch_starts_it_over(self, counts):
        self.run(counts, 1, ("a", 1))
        counts.begin_commit(2)
        counts.multi_update([("a",)], [add(10)])

        counts.rollback(2)

        assert counts.multi_update([("a",)], [add(100)]) == [101]

    def test_rollback_of_a_batch_that_wrote_nothing_changes_nothing(self, counts):
        self.run(counts, 1, ("a", 1))

        assert counts.rollback(2) == 0
        assert counts.multi_get([("a",)]) == [1]

    def test_an_older_batch_is_refused_for_reads_and_writes_and_changes_nothing(self, counts, backing):
        self.run(counts, 8, ("a", 1))
        before = list(backing.scan())
        counts.begin_commit(7)

        with pytest.raises(StaleBatchError) as caught:
            counts.multi_update([("b",), ("a",)], [add(1), add(1)])
        for call in (
            lambda: counts.multi_get([("a",)]),
            lambda: counts.multi_put([("a",)], [5]),
            lambda: counts.multi_remove([("a",)]),
        ):
            with pytest.raises(StaleBatchError):
                call()

        assert str(caught.value) == (
            "batch 7 is older than stored batch 8 for key ('a',); another runner has moved on, so stop this one"
        )
        assert list(backing.scan()) == before

    def test_a_row_keeps_its_version_before_the_batch(self, counts, backing):
        self.run(counts, 1, ("a", 1))
        self.run(counts, 5, ("a", 1), ("a", 1))

        assert backing.multi_get([("a",)]) == [Versioned(3, 5, 1, 1)]


class TransactionalMapContract(MapStateContract):
    kind = "transactional"
    map_class = TransactionalMap

    def test_a_replay_is_skipped_and_returns_what_is_stored(self, counts, backing):
        self.run(counts, 1, ("a", 10))
        self.run(counts, 2, ("a", 5))
        before = list(backing.scan())

        assert self.run(counts, 2, ("a", 5)) == [15]
        assert self.run(counts, 2, ("a", 5), ("a", 5)) == [15, 15]
        assert list(backing.scan()) == before

    def test_a_replay_completes_what_a_failed_attempt_left_out(self, counts):
        self.run(counts, 1, ("a", 1), ("b", 1))
        self.run(counts, 2, ("a", 1))

        assert self.run(counts, 2, ("a", 1), ("b", 1)) == [2, 2]

    def test_an_older_batch_is_refused_and_changes_nothing(self, counts, backing):
        self.run(counts, 8, ("a", 1))
        before = list(backing.scan())
        counts.begin_commit(7)

        with pytest.raises(StaleBatchError) as caught:
            counts.multi_update([("b",), ("a",)], [add(1), add(1)])

        assert str(caught.value) == (
            "batch 7 is older than stored batch 8 for key ('a',); another runner has moved on, so stop this one"
        )
        assert list(backing.scan()) == before

    def test_rollback_can_undo_nothing(self, counts):
        self.run(counts, 1, ("a", 1))

        assert counts.rollback(1) == 0
        assert counts.multi_get([("a",)]) == [1]

    def test_a_second_call_for_a_key_is_refused_and_changes_nothing(self, backing):
        counts = TransactionalMap(backing)
        counts.begin_commit(1)
        counts.multi_update([("a",)], [add(1)])
        before = list(backing.scan())

        with pytest.raises(RepeatedUpdateError) as caught:
            counts.multi_update([("b",), ("a",)], [add(1), add(2)])
        for call in (lambda: counts.multi_put([("a",)], [5]), lambda: counts.multi_remove([("a",)])):
            with pytest.raises(RepeatedUpdateError):
                call()

        assert str(caught.value) == (
            f"state {backing.spec.name!r}: batch 1 updates key ('a',) in a second call, which a replay would skip; "
            "update it in one call, in which a key may repeat, or give the map atomic=True if all writes of a batch "
            "are stored in one transaction"
        )
        assert list(backing.scan()) == before

    def test_a_second_call_is_refused_in_a_replay_that_skipped_the_first(self, backing):
        counts = TransactionalMap(backing)
        counts.begin_commit(1)
        counts.multi_update([("a",)], [add(1)])  # and fails before its second call

        counts.begin_commit(1)
        assert counts.multi_update([("a",)], [add(1)]) == [1]

        with pytest.raises(RepeatedUpdateError):
            counts.multi_update([("a",)], [add(2)])

    def test_a_call_that_failed_may_be_made_again(self, backing):
        counts = TransactionalMap(backing)
        counts.begin_commit(1)
        with pytest.raises(ZeroDivisionError):
            counts.multi_update([("a",)], [Refusing()])

        assert counts.multi_update([("a",)], [add(1)]) == [1]


class NonTransactionalMapContract(MapStateContract):
    kind = "non_transactional"
    map_class = NonTransactionalMap

    def test_a_replay_counts_twice(self, counts):
        self.run(counts, 1, ("a", 10))

        assert self.run(counts, 1, ("a", 10)) == [20]

    def test_no_batch_is_too_old(self, counts):
        self.run(counts, 8, ("a", 1))

        assert self.run(counts, 7, ("a", 1)) == [2]
