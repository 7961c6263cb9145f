import threading

import pytest

from tests.state_backends.synchronizer.updates import GENERATORS, apply, increment
from tidegauge.state_backends.errors import ContentionError, NoInitialStateError
from tidegauge.state_backends.synchronizer.synchronizer import compact_log


@pytest.fixture
def counters(new_client):
    """Two clients of a counter, both up to date."""
    first, second = new_client(), new_client()
    first.initialize(0)
    second.fetch_updates()
    return first, second


class TestUpdates:
    def test_the_value_of_the_run_that_was_written_is_returned(self, counters):
        first, second = counters
        second.update_state(increment)
        runs = []

        def take_a_number(state):
            runs.append(state)
            yield {"incr": 1}
            return f"number {state}"

        assert first.update_state(take_a_number) == "number 1"
        assert runs == [0, 1]

    def test_a_generator_with_nothing_to_write_returns_its_value_and_writes_nothing(self, counters):
        first, _ = counters

        def look(state):
            yield from ()
            return state

        assert first.update_state(look) == 0
        assert first.log.head().revision == 1

    def test_nothing_to_do_is_never_decided_on_an_outdated_copy(self, counters):
        first, second = counters
        second.update_state(increment)

        def look(state):
            yield from ()
            return state

        assert first.update_state(look) == 1

    def test_the_updates_of_one_run_are_one_record(self, counters):
        first, second = counters

        first.update_state(lambda state: [{"incr": 1}, {"incr": 2}, {"incr": 3}])
        second.fetch_updates()

        assert second.state == 6
        assert [entry.record for entry in second.log.read_from(1)] == [
            {"updates": [{"incr": 1}, {"incr": 2}, {"incr": 3}]}
        ]

    def test_an_update_that_cannot_be_applied_is_not_written(self, counters):
        first, second = counters

        with pytest.raises(KeyError):
            first.update_state(lambda state: [{"incr": 1}, {"nonsense": 1}])
        with pytest.raises(KeyError):
            first.update_state_unconditionally([{"nonsense": 1}])

        second.fetch_updates()
        assert (first.state, second.state, second.revision) == (0, 0, 1)

    def test_a_value_that_is_not_json_is_refused(self, counters):
        first, _ = counters

        with pytest.raises(TypeError):
            first.update_state(lambda state: [{"set": {1, 2}}])
        with pytest.raises(ValueError, match="not JSON compliant"):
            first.update_state(lambda state: [{"set": float("nan")}])

        assert (first.state, first.log.head().revision) == (0, 1)

    @pytest.mark.parametrize("limits", [{"max_attempts": 3}, {"timeout_seconds": 0.05}])
    def test_an_update_that_loses_every_race_gives_up_and_says_so(self, new_client, limits, name):
        loser, winner = new_client(**limits), new_client()
        loser.initialize(0)
        runs = []

        def overtaken(state):
            runs.append(state)
            winner.update_state(increment)
            return increment(state)

        with pytest.raises(ContentionError) as caught:
            loser.update_state(overtaken)
        assert runs == list(range(len(runs)))
        assert len(runs) == limits.get("max_attempts", len(runs))
        with pytest.raises(ContentionError):
            loser.compact(lambda state: winner.update_state(increment) or state)

        attempts, seconds = limits.get("max_attempts", 1000), limits.get("timeout_seconds", 30)
        assert str(caught.value) == (
            f"synchronizer {name!r}: other clients wrote first in all of up to {attempts} attempts in {seconds:g} s; "
            "retry later, or write without a condition"
        )

    def test_before_the_initial_value_nothing_can_be_written(self, new_client):
        client = new_client()

        for act in (
            lambda: client.update_state(increment),
            lambda: client.update_state_unconditionally([{"incr": 1}]),
            lambda: client.initialize(None),
            client.compact,
        ):
            with pytest.raises(NoInitialStateError):
                act()
        client.fetch_updates()

        assert (client.state, client.revision, client.log.head().revision) == (None, None, 0)

    def test_an_empty_list_of_updates_writes_no_record(self, counters):
        first, _ = counters

        first.update_state_unconditionally([])

        assert first.log.head().revision == 1


class TestCompaction:
    def test_records_are_counted_from_the_newest_initial_one(self, counters):
        first, second = counters
        counts = [first.records_since_compaction]
        for _ in range(3):
            first.update_state(increment)
            counts.append(first.records_since_compaction)
        first.compact()
        counts.append(first.records_since_compaction)
        second.update_state(increment)
        counts.append(second.records_since_compaction)

        assert counts == [0, 1, 2, 3, 0, 1]

    def test_a_new_client_starts_at_the_mark_and_applies_nothing_older(self, counters, new_client):
        first, _ = counters
        first.update_state(increment)
        first.compact()
        first.update_state(increment)
        seen = []
        newcomer = new_client(apply=lambda state, update: seen.append(state) or apply(state, update))

        newcomer.fetch_updates()

        assert (newcomer.state, seen) == (2, [1])

    def test_a_compactor_may_shorten_the_state_and_may_decline(self, counters):
        first, second = counters
        first.update_state(increment)

        first.compact(lambda state: None)
        declined = (first.mark, first.log.head().revision)
        first.compact(lambda state: 100 + state)
        second.fetch_updates()

        assert declined == (None, 2)
        assert (first.state, second.state, first.mark) == (101, 101, 2)

    def test_a_compactor_that_changes_the_state_changes_it_for_every_client(self, counters, new_client):
        first, current = counters
        first.update_state(increment)
        current.fetch_updates()

        first.compact(lambda state: 100)
        current.fetch_updates()
        newcomer = new_client()
        newcomer.fetch_updates()

        assert [client.state for client in (first, current, newcomer)] == [100, 100, 100]

    def test_a_compaction_by_the_same_client_causes_no_conflict(self, counters):
        first, _ = counters
        runs = []
        first.compact()

        first.update_state(lambda state: runs.append(state) or increment(state))

        assert runs == [0]

    def test_a_compaction_that_fails_before_it_moves_the_mark_changes_no_state(self, counters, stream, new_client):
        first, second = counters
        first.update_state(increment)
        stream.write_conditionally(2, {"init": 1})
        second.update_state(increment)
        second.compact()

        newcomer = new_client()
        newcomer.fetch_updates()
        first.fetch_updates()

        assert [client.state for client in (first, second, newcomer)] == [2, 2, 2]
        assert second.mark == 4

    def test_a_slow_compaction_does_not_take_the_mark_back(self, counters):
        first, second = counters
        for _ in range(2):
            second.update_state(increment)
            second.compact()

        first._move_mark(1)

        assert (second.mark, second.oldest) == (4, 2)


class TestCompactLog:
    """Compaction by a process that is not a client of the log."""

    def test_a_log_is_replaced_by_its_current_value(self, new_client, conn, name):
        client = new_client()
        client.initialize(0)
        for _ in range(5):
            client.update_state(increment)

        dropped = compact_log(conn, name, apply)

        assert dropped == 6
        assert [entry.record for entry in client.log.read_from(client.oldest)] == [{"init": 5}]
        assert compact_log(conn, name, apply) == 0
        assert client.update_state(increment) is None
        assert client.state == 6

    def test_without_an_apply_function_the_log_is_truncated_to_the_compacted_value(self, new_client, conn, name):
        client = new_client()
        client.initialize(0)
        client.update_state(increment)
        before = compact_log(conn, name)
        client.compact()
        client.update_state(increment)

        assert (before, compact_log(conn, name)) == (0, 2)
        assert [entry.record for entry in client.log.read_from(2)] == [{"init": 1}, {"updates": [{"incr": 1}]}]

    def test_a_client_behind_the_compaction_can_update(self, new_client, conn, name):
        client, late = new_client(), new_client()
        client.initialize(0)
        late.fetch_updates()
        client.update_state(increment)
        compact_log(conn, name, apply)

        late.update_state(increment)

        assert late.state == 2

    def test_a_log_without_records_is_left_alone(self, stream, conn, name):
        assert compact_log(conn, name, apply) == 0
        assert stream.head().revision == 0


class TestReading:
    def test_the_state_stays_as_it_is_until_it_is_fetched(self, counters):
        first, second = counters
        first.update_state(increment)

        before = (second.state, second.revision)
        second.fetch_updates()

        assert before == (0, 1)
        assert (second.state, second.revision) == (1, 2)

    def test_a_reader_keeps_the_object_it_has_while_others_update(self, new_client):
        client = new_client()
        client.initialize([])
        held = client.state

        client.update_state(lambda state: GENERATORS["add_if_absent"](state, "x"))

        assert (held, client.state) == ([], ["x"])

    def test_an_older_fetch_does_not_take_the_copy_back(self, new_client):
        """One thread reads the end of the log, another gets further meanwhile, and then the first one goes on."""
        slow, writer = new_client(), new_client()
        writer.initialize(0)
        slow.fetch_updates()
        writer.update_state(increment)
        older = slow._replayed(slow.log.head())
        writer.update_state(increment)
        slow.fetch_updates()

        slow._adopt(older)

        assert (slow.state, slow.revision) == (2, 3)

    def test_a_fetch_that_another_thread_has_overtaken_finds_nothing_to_read(self, counters):
        slow, writer = counters
        old_head = slow.log.head()
        writer.update_state(increment)
        slow.fetch_updates()

        assert slow._replayed(old_head) == slow._copy
        assert slow.state == 1

    def test_one_client_serves_many_threads(self, new_client):
        client = new_client()
        client.initialize(0)

        def count():
            for _ in range(20):
                client.update_state(increment)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert client.state == 80
