"""What can go wrong between clients and the log, and how it ends: Pravega's table of limits and faults."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.state_backends.synchronizer.updates import apply, increment
from tests.state_backends.synchronizer.vector_tables import assert_each_row_is_answered
from tidegauge.state_backends.errors import (
    CorruptedStateError,
    InvalidLogError,
    NoInitialStateError,
    RecordTooLargeError,
)
from tidegauge.state_backends.synchronizer import revisioned_stream
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream
from tidegauge.state_backends.synchronizer.synchronizer import StateSynchronizer

SOON = 10  # seconds in which anything that is not stuck has happened


def test_a_record_over_the_limit_is_refused_and_changes_nothing(new_client, name):
    client = new_client(max_record_bytes=100)
    client.initialize([])

    with pytest.raises(RecordTooLargeError) as caught:
        client.update_state(lambda state: [{"add": "é" * 50}])
    with pytest.raises(RecordTooLargeError):
        client.update_state_unconditionally([{"add": "é" * 50}])

    assert (client.state, client.log.head().revision) == ([], 1)
    assert str(caught.value) == f"log {name!r}: a record of 124 bytes is over the limit of 100; write less at once"


def test_an_update_that_would_take_the_state_over_its_limit_is_refused(new_client, name):
    client = new_client(max_state_bytes=20)
    client.initialize([])
    client.update_state(lambda state: [{"add": "0123456789"}])

    with pytest.raises(RecordTooLargeError) as caught:
        client.update_state(lambda state: [{"add": "abcdefghij"}])
    with pytest.raises(RecordTooLargeError):
        client.update_state_unconditionally([{"add": "abcdefghij"}])
    with pytest.raises(RecordTooLargeError):
        new_client(max_state_bytes=20).initialize(["0123456789", "abcdefghij"])

    assert (client.state, client.log.head().revision) == (["0123456789"], 2)
    assert str(caught.value) == (
        f"synchronizer {name!r}: its state would take 27 bytes, over the limit of 20; remove something first, or split "
        "it over several synchronizers"
    )


def test_a_state_that_outgrew_its_limit_can_be_compacted_and_shrinks_step_by_step(new_client):
    client, blind = new_client(max_state_bytes=20, max_record_bytes=40), new_client(max_state_bytes=20)
    client.initialize([])
    for letter in "abcdefgh":
        blind.update_state_unconditionally([{"add": letter * 5}])  # it has no copy whose size it could know

    client.compact()
    client.compact()
    client.update_state(lambda state: [{"remove": "a" * 5}])

    newcomer = new_client()
    newcomer.fetch_updates()
    assert newcomer.state == client.state == [letter * 5 for letter in "bcdefgh"]
    assert client.oldest == 9


class GhostWriter:
    """Breaks a client's connection while its append waits on the server, where it goes on without its client."""

    def __init__(self, connect, name):
        self._connect = connect
        self._name = name
        self.admin, self._holder, self._conn = connect(), connect(), connect()
        self.client = StateSynchronizer(self._conn, name, apply, reconnect=self._on_broken)
        self.client.initialize(0)
        self._after = lambda: None

    def write(self, act, after):
        """Run `act` with the reply to its append cut off; `after` runs before the client is connected again."""
        self._after = after
        self._holder.execute("BEGIN")
        self._holder.execute("SELECT FROM tidegauge.synchronizer WHERE name = %s FOR UPDATE", [self._name])
        with ThreadPoolExecutor() as threads:
            acting = threads.submit(act)
            self._wait_for(waiting=1)
            socket.socket(fileno=os.dup(self._conn.fileno())).shutdown(socket.SHUT_RDWR)
            return acting.result(SOON)

    def land(self):
        """Let the append come through before the client is back."""
        self._holder.execute("COMMIT")
        self._wait_for(waiting=0)

    def land_later(self):
        """Let the append come through once the client has sent it again: two wait, the first one goes first."""

        def land():
            self._wait_for(waiting=2)
            self._holder.execute("COMMIT")

        threading.Thread(target=land).start()

    def _on_broken(self):
        self._after()
        return self._connect()

    def _wait_for(self, waiting):
        wait_for_appends(self.admin, waiting)


def wait_for_appends(admin, waiting):
    """Wait until so many appends wait for a lock."""
    for _ in range(SOON * 100):
        (now,) = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        if now == waiting:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{now} appends wait, not {waiting}")


@pytest.mark.parametrize("when", ["land", "land_later"])
def test_an_append_whose_reply_was_lost_is_stored_once_and_reported_once(connect, name, when):
    ghost = GhostWriter(connect, name)
    calls = []

    def counted(state):
        calls.append(state)
        yield {"incr": 1}
        return "counted"

    returned = ghost.write(lambda: ghost.client.update_state(counted), after=getattr(ghost, when))

    assert (returned, calls) == ("counted", [0])
    assert (ghost.client.state, ghost.client.revision, ghost.client.log.head().revision) == (1, 2, 2)


@pytest.mark.parametrize("when", ["land", "land_later"])
def test_an_unconditional_append_whose_reply_was_lost_is_stored_once(connect, name, when):
    ghost = GhostWriter(connect, name)

    ghost.write(lambda: ghost.client.update_state_unconditionally([{"incr": 1}]), after=getattr(ghost, when))

    ghost.client.fetch_updates()
    assert (ghost.client.state, ghost.client.log.head().revision) == (1, 2)


def test_a_broken_connection_that_cannot_be_replaced_raises(new_client, connect):
    client = new_client()
    client.initialize(0)
    admin = connect()
    admin.execute("SELECT pg_terminate_backend(%s)", [client.log._conn.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        client.update_state(increment)

    assert (client.state, client.revision) == (0, 1)


def test_threads_that_find_the_connection_broken_open_one_new_one(connect, name):
    opened = []

    def reconnect():
        opened.append(connect())
        return opened[-1]

    first, admin = connect(), connect()
    stream = RevisionedStream(first, name, reconnect=reconnect)
    admin.execute("SELECT pg_terminate_backend(%s)", [first.info.backend_pid])
    at_once = threading.Barrier(4)

    def write(number):
        at_once.wait(SOON)
        return stream.write(number)

    with ThreadPoolExecutor(4) as threads:
        revisions = list(threads.map(write, range(4)))

    assert sorted(revisions) == [1, 2, 3, 4]
    assert len(opened) == 1


def test_a_server_that_closes_every_connection_raises(connect, name):
    opened = []

    def reconnect():
        opened.append(connect())
        opened[-1].close()
        return opened[-1]

    first = connect()
    stream = RevisionedStream(first, name, reconnect=reconnect)
    first.close()

    with pytest.raises(psycopg.OperationalError):
        stream.write("lost")

    assert len(opened) == revisioned_stream.RECONNECTS


def test_a_fetch_that_is_overtaken_by_truncations_starts_again_from_the_mark(new_client, monkeypatch):
    monkeypatch.setattr(revisioned_stream, "PAGE_RECORDS", 1)
    writer = new_client()
    overtaken_at = []

    def grow():
        writer.update_state(increment)

    def slowly(state, update):
        # Two compactions truncate what the late client is about to read, and leave it two more updates to read.
        if len(overtaken_at) < 4:
            for change in (writer.compact, grow, writer.compact, grow, grow):
                change()
            overtaken_at.append(writer.oldest)
        return apply(state, update)

    late = new_client(apply=slowly)
    writer.initialize(0)
    late.fetch_updates()
    grow()
    grow()

    late.fetch_updates()
    overtaken_in_one_fetch = len({*overtaken_at})
    while late.revision < writer.log.head().revision:
        late.fetch_updates()

    assert overtaken_in_one_fetch >= 2
    assert (late.state, late.revision) == (writer.state, writer.revision)


def test_threads_of_one_client_that_fetch_after_a_truncation_all_succeed(new_client):
    client, writer = new_client(), new_client()
    writer.initialize(0)
    client.fetch_updates()
    for _ in range(3):
        writer.update_state(increment)
        writer.compact()
    at_once = threading.Barrier(4)

    def fetch(_):
        at_once.wait(SOON)
        client.fetch_updates()
        return client.state

    with ThreadPoolExecutor(4) as threads:
        states = list(threads.map(fetch, range(4)))

    assert client.oldest > 1
    assert states == [3] * 4


def test_a_log_without_an_initial_record_says_so(stream, new_client, name):
    stream.write({"init": 0})
    stream.write({"updates": [{"incr": 1}]})
    stream.truncate(1)

    for act in (lambda c: c.fetch_updates(), lambda c: c.initialize(0), lambda c: c.update_state(increment)):
        with pytest.raises(NoInitialStateError) as caught:
            act(new_client())

    assert str(caught.value) == f"synchronizer {name!r} has no initial value; call initialize first"


def test_a_log_that_was_dropped_says_so(new_client, conn, name):
    client = new_client()
    client.initialize(0)
    conn.execute("DELETE FROM tidegauge.synchronizer WHERE name = %s", [name])

    for act in (client.fetch_updates, client.compact, lambda: client.update_state(increment)):
        with pytest.raises(InvalidLogError) as caught:
            act()
    with pytest.raises(InvalidLogError):
        client.update_state_unconditionally([{"incr": 1}])

    assert str(caught.value) == f"log {name!r} has been dropped; open it again"


def test_clients_at_one_revision_have_equal_states(new_client):
    first, second = new_client(), new_client()
    first.initialize({})

    # Neither a tuple nor a number as a key is JSON: the writer sees what everybody else will.
    first.update_state(lambda state: [{"put": ("a", {1: (2, 3)})}])
    second.fetch_updates()

    assert first.revision == second.revision
    assert first.state == second.state == {"a": {"1": [2, 3]}}


@pytest.mark.parametrize("record", [{"init": None}, {"updates": "x"}, {"delta": 1}, 7])
def test_a_record_of_an_unknown_kind_is_an_error_and_leaves_the_copy_as_it_was(new_client, stream, record, name):
    client = new_client()
    client.initialize(0)
    stream.write(record)

    with pytest.raises(CorruptedStateError) as caught:
        client.fetch_updates()

    assert (client.state, client.revision) == (0, 1)
    assert str(caught.value) == (
        f"synchronizer {name!r}: the record before revision 2 is neither an initial value nor a list of updates; "
        "something else writes to this log"
    )


PLAIN_NUMBER = "a revision is a number that its own log counts: it has no text to parse and JSON carries it as it is"


def test_no_row_of_the_table_is_left_out():
    assert_each_row_is_answered(
        "sync.limits_and_faults",
        [
            test_a_record_over_the_limit_is_refused_and_changes_nothing,
            test_a_state_that_outgrew_its_limit_can_be_compacted_and_shrinks_step_by_step,
            test_an_append_whose_reply_was_lost_is_stored_once_and_reported_once,
            test_a_fetch_that_is_overtaken_by_truncations_starts_again_from_the_mark,
            test_threads_of_one_client_that_fetch_after_a_truncation_all_succeed,
            test_a_log_without_an_initial_record_says_so,
            PLAIN_NUMBER,
            PLAIN_NUMBER,
            "a number does not say of which log it is; revisions of two logs have nothing to say to each other",
            test_a_log_that_was_dropped_says_so,
            test_clients_at_one_revision_have_equal_states,
            test_a_record_of_an_unknown_kind_is_an_error_and_leaves_the_copy_as_it_was,
        ],
    )


def test_conditional_appends_work_at_another_isolation_level(connect, name):
    strict = connect()
    strict.execute("SET default_transaction_isolation = 'serializable'")
    holder, admin, stream = connect(), connect(), RevisionedStream(strict, name)

    def while_waiting(append, record):
        """Append from under the other's feet: `append` has begun before `record` is committed."""
        with ThreadPoolExecutor() as threads, holder.transaction():
            RevisionedStream(holder, name).write(record)
            appending = threads.submit(append)
            wait_for_appends(admin, waiting=1)
        return appending.result(SOON)

    assert while_waiting(lambda: stream.write_conditionally(0, "mine"), "first") is None
    assert while_waiting(lambda: stream.write("third"), "second") == 3
    assert [entry.record for entry in stream.read_from(0)] == ["first", "second", "third"]


def test_a_serialization_failure_inside_a_transaction_passes_through(connect, name):
    strict, other = connect(), connect()
    stream, quicker = RevisionedStream(strict, name), RevisionedStream(other, name)

    strict.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with strict.transaction(force_rollback=True):
        stream.head()
        quicker.write("first")
        with pytest.raises(psycopg.errors.SerializationFailure):
            stream.write("second")

    assert quicker.head().revision == 1
