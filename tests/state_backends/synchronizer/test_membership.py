"""Membership: Pravega's tables of its membership and leader election samples, and the behaviour that Tidegauge adds.

The leader of a pipeline is the driver that holds its lock in the ledger; the members' list only displays it.
"""

import os
import socket
from itertools import count

import pytest

from tests.state_backends.synchronizer import updates
from tests.state_backends.synchronizer.vector_tables import assert_each_row_is_answered, rows_of
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.errors import FencedError, PipelineHeldError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.synchronizer import membership
from tidegauge.state_backends.synchronizer.membership import (
    HEARTBEAT_SECONDS,
    NO_MEMBERS,
    Membership,
    apply,
    compact_logs,
    dead,
    healthy,
    members,
    read_current,
)
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream


@pytest.fixture
def new_member(conn, connect):
    """Members whose next heartbeat is always due. The list begins empty."""
    conn.execute("DELETE FROM tidegauge.synchronizer WHERE name = %s", [membership.NAME])

    def new_member(role="worker", pipeline=None):
        member = Membership(connect(), role, pipeline, clock=count(0, 10 * HEARTBEAT_SECONDS).__next__)
        member.join()
        return member

    return new_member


@pytest.fixture
def pipeline(conn, name):
    Catalog(conn).register_pipeline(name, spout="opaque")
    return name


def healths(conn):
    return {member.name: member.healthy for member in members(conn)}


def at(times, vector_time):
    return NO_MEMBERS | {"members": {name: {"time": time} for name, time in times.items()}, "vector_time": vector_time}


class TestTheTables:
    def test_a_member_is_healthy_within_unhealthy_after_heartbeats(self):
        row = rows_of("sync.membership")[0]
        state = at(row["members"], row["vector_time"])

        assert {name: healthy(state, name) for name in row["healthy"]} == row["healthy"]

    @pytest.mark.parametrize("row", rows_of("sync.membership")[1:3])
    def test_a_member_is_dead_after_dead_after_heartbeats(self, row):
        assert dead(at(row["members"], row["declared_dead_at"])) == row["dead"]

    def test_a_heartbeat_advances_logical_time(self):
        state = apply(at({"a": 7, "b": 9}, 9), {"heartbeat": "a", "facts": {}})

        assert state["members"] == {"a": {"time": 10}, "b": {"time": 9}}
        assert state["vector_time"] == 10

    def test_a_member_never_declares_itself_dead(self, new_member, conn):
        one, other = new_member(), new_member()
        for _ in range(30):
            other._members.update_state_unconditionally([other._beat()])
        one._members.fetch_updates()

        one._remove_dead()

        assert dead(one._members.state) == [one.name]
        assert one.name in healths(conn)

    def test_no_row_is_left_out(self):
        assert_each_row_is_answered(
            "sync.membership",
            [
                self.test_a_member_is_healthy_within_unhealthy_after_heartbeats,
                self.test_a_member_is_dead_after_dead_after_heartbeats,
                self.test_a_member_is_dead_after_dead_after_heartbeats,
                self.test_a_heartbeat_advances_logical_time,
                self.test_a_member_never_declares_itself_dead,
            ],
        )
        leads = TestWhoLeads()
        assert_each_row_is_answered(
            "sync.leader_election",
            [
                "who takes the lock first leads, whatever the heartbeats count",
                leads.test_followers_that_come_and_go_change_nothing,
                leads.test_a_leader_that_returns_finds_the_new_one_in_place,
                leads.test_without_drivers_there_is_no_leader,
                leads.test_the_successor_is_alive_and_one_that_was_declared_dead_is_refused,
                leads.test_a_leader_that_was_replaced_can_write_no_more_even_before_it_is_declared_dead,
            ],
        )


class TestWhoLeads:
    def test_followers_that_come_and_go_change_nothing(self, connect, pipeline):
        leader = BatchLedger(connect(), pipeline)
        fence = leader.acquire()

        for _ in range(3):
            with connect() as follower, pytest.raises(PipelineHeldError):
                BatchLedger(follower, pipeline).acquire()

        assert leader.fence == fence
        assert leader.bind("checkpoint") is None

    def test_a_leader_that_returns_finds_the_new_one_in_place(self, connect, pipeline):
        with connect() as crashed:
            BatchLedger(crashed, pipeline).acquire()
        new = BatchLedger(connect(), pipeline)
        new.acquire(patience_ms=3_000)

        with pytest.raises(PipelineHeldError):
            BatchLedger(connect(), pipeline).acquire()

        assert new.bind("checkpoint") is None

    def test_without_drivers_there_is_no_leader(self, connect, conn, pipeline):
        with connect() as crashed:
            BatchLedger(crashed, pipeline).acquire()
            (led,) = conn.execute("SELECT tidegauge.has_driver(%s)", [pipeline]).fetchone()
        # The next to come is let in: that is the proof that the lock is free.
        successor = BatchLedger(connect(), pipeline)
        successor.acquire(patience_ms=3_000)
        successor.release()

        assert led
        assert conn.execute("SELECT tidegauge.has_driver(%s)", [pipeline]).fetchone() == (False,)

    def test_the_successor_is_alive_and_one_that_was_declared_dead_is_refused(self, connect, pipeline):
        stalled_conn, new_conn = connect(), connect()
        stalled = BatchLedger(stalled_conn, pipeline)
        stalled.acquire()
        batch = stalled.begin(0)
        stalled.release()
        new = BatchLedger(new_conn, pipeline)

        new.acquire()

        with pytest.raises(FencedError), stalled_conn.transaction():
            lock_fence(stalled_conn, batch)
        assert new.begin(0).attempt == 2

    def test_a_leader_that_was_replaced_can_write_no_more_even_before_it_is_declared_dead(
        self, connect, conn, pipeline, new_member
    ):
        stalled_conn = connect()
        stalled, member = BatchLedger(stalled_conn, pipeline), new_member("driver", pipeline)
        stalled.acquire()
        stalled.release()
        BatchLedger(connect(), pipeline).acquire()

        with pytest.raises(FencedError):
            stalled.begin(0)
        assert healths(conn) == {member.name: True}


class TestMembers:
    def test_a_member_reports_its_process_pipeline_and_batch(self, new_member, conn, pipeline):
        driver = new_member("driver", pipeline)
        ledger = BatchLedger(conn, pipeline)
        ledger.acquire()
        ledger.commit(ledger.begin(0))
        before = members(conn)

        driver.heartbeat()
        worker = new_member()

        [shown, other] = members(conn)
        assert (before[0].txid, shown.txid, other.txid) == (0, 1, None)
        assert (shown.name, shown.role, shown.pipeline, shown.healthy) == (driver.name, "driver", pipeline, True)
        assert (shown.host, shown.pid) == (socket.gethostname(), os.getpid())
        assert shown.since == before[0].since < other.since
        assert (other.name, other.role, other.pipeline) == (worker.name, "worker", None)

    def test_before_the_first_member_there_is_none(self, conn):
        conn.execute("DELETE FROM tidegauge.synchronizer WHERE name = %s", [membership.NAME])

        assert members(conn) == []

    def test_a_member_that_leaves_is_removed_at_once(self, new_member, conn):
        one, other = new_member(), new_member()

        one.leave()

        assert [*healths(conn)] == [other.name]

    def test_a_silent_member_becomes_unhealthy_and_is_then_removed(self, new_member, conn):
        silent, talking = new_member(), new_member()
        seen = []

        for _ in range(22):
            talking.heartbeat()
            seen.append(healths(conn).get(silent.name, "gone"))

        assert seen == [True] * 9 + [False] * 10 + ["gone"] * 3
        assert healths(conn)[talking.name]

    def test_a_member_declared_dead_that_sends_a_heartbeat_is_a_member_again(self, new_member, conn):
        slow, talking = new_member(), new_member()
        for _ in range(22):
            talking.heartbeat()

        slow.heartbeat()

        assert healths(conn)[slow.name]

    def test_a_member_that_sent_a_heartbeat_meanwhile_is_not_declared_dead(self):
        state = at({"a": 69, "b": 100, "c": 100}, 100)

        state = apply(apply(state, {"heartbeat": "a", "facts": {}}), {"dead": ["a"]})

        assert "a" in state["members"]

    def test_if_all_are_silent_none_is_healthy(self, new_member, conn):
        new_member(), new_member()
        conn.execute("UPDATE tidegauge.synchronizer SET appended_at = appended_at - interval '11 s'")

        assert set(healths(conn).values()) == {False}

    def test_a_new_driver_of_a_pipeline_replaces_the_old_one(self, new_member, conn, pipeline):
        worker, other = new_member(), new_member("driver", "other")
        new_member("driver", pipeline)

        new = new_member("driver", pipeline)

        assert {*healths(conn)} == {worker.name, other.name, new.name}

    def test_heartbeats_do_not_make_the_log_grow(self, new_member, conn):
        one, other = new_member(), new_member()

        for _ in range(250):
            one.heartbeat()
            other.heartbeat()

        log = RevisionedStream(conn, membership.NAME)
        assert log.head().revision > 500
        assert len([*log.read_from(log.head().oldest)]) <= 2 * membership.COMPACT_AFTER_RECORDS + 4
        assert {*healths(conn).values()} == {True}

    def test_a_log_that_another_member_has_compacted_meanwhile_is_left_alone(self, new_member, monkeypatch):
        one, other = new_member(), new_member()
        one.heartbeat()
        other.heartbeat()
        one._members.fetch_updates()
        monkeypatch.setattr(membership, "COMPACT_AFTER_RECORDS", 2)

        one._compact_a_long_log()
        mark = one._members.mark
        other._compact_a_long_log()

        assert mark is not None
        assert other._members.mark == mark

    def test_a_heartbeat_that_is_not_due_writes_nothing(self, connect, conn, new_member):
        new_member()
        member = Membership(connect(), "worker", clock=lambda: 0.0)
        member.join()
        revision = RevisionedStream(conn, membership.NAME).head().revision

        member.heartbeat()

        assert RevisionedStream(conn, membership.NAME).head().revision == revision

    def test_a_heartbeat_does_not_wait_for_tasks(self, new_member, connect, conn, pipeline):
        ledger, task = BatchLedger(conn, pipeline), connect()
        ledger.acquire()
        batch = ledger.begin(0)

        with task.transaction():
            lock_fence(task, batch)
            new_member("driver", pipeline).heartbeat()

        assert [member.pipeline for member in members(conn)] == [pipeline]

    def test_an_update_of_a_later_release_changes_nothing(self):
        assert apply(NO_MEMBERS, {"promote": "a"}) == NO_MEMBERS


def test_all_logs_are_compacted_and_the_members_log_to_its_current_value(new_client, conn, name, connect):
    client = new_client()
    client.initialize(0)
    client.update_state(updates.increment)
    member = Membership(connect(), "worker")
    member.join()
    before = members(conn)

    dropped = compact_logs(conn)

    assert dropped[name] == 0
    assert dropped[membership.NAME] >= 2
    assert members(conn) == before


def test_reading_the_current_state_writes_nothing(new_client, conn, name):
    nothing = read_current(conn, name, updates.apply)
    logs = conn.execute("SELECT count(*) FROM tidegauge.synchronizer WHERE name = %s", [name]).fetchone()
    client = new_client()
    empty = read_current(conn, name, updates.apply)
    client.initialize(0)
    client.update_state(updates.increment)
    one = read_current(conn, name, updates.apply)
    client.compact()
    client.update_state(updates.increment)
    two = read_current(conn, name, updates.apply)

    assert (nothing, empty) == (None, None)
    assert [(seen.state, seen.revision) for seen in (one, two)] == [(1, 2), (2, 4)]
    assert 0 <= two.idle_seconds < 10
    assert logs == (0,)
