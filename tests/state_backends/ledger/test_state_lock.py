import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import psycopg
import pytest

from tests.recovery_page import message_of
from tests.state_backends.waiting import wait_until_gone
from tidegauge.state_backends.errors import StateBusyError
from tidegauge.state_backends.ledger.state_lock import WORKS, check_owner, state_lock

# Of the table in the docstring of state_lock.py: these lock the shadow only, or the live tables only.
BESIDE = {("reprocess", work) for work in WORKS if work not in ("migration", "reprocess", "retirement")}


def abandon(conn, session, state, work):
    """Return the token of a work whose session has ended while it held its locks."""
    pid = session.info.backend_pid
    with state_lock(session, state, work) as taken:
        session.close()
    # The server releases the locks of a closed session some milliseconds later.
    wait_until_gone(conn, pid)
    return taken.token


@pytest.mark.parametrize("first", WORKS)
def test_two_works_exclude_each_other_unless_one_has_the_shadow_and_one_the_live_tables(connect, first):
    other, beside = connect(), set()

    with state_lock(connect(), "views", first):
        for second in WORKS:
            with suppress(StateBusyError), state_lock(other, "views", second):
                beside.add(second)

    assert beside == {work for work in WORKS if (first, work) in BESIDE or (work, first) in BESIDE}


def test_works_on_two_states_do_not_meet(connect):
    with state_lock(connect(), "views", "migration") as one, state_lock(connect(), "clicks", "migration") as other:
        assert {one.state, other.state} == {"views", "clicks"}


# PostgreSQL's hashtext gives both names the same 32 bits.
SAME_HASH = ["orders_3299", "orders_19313"]


def test_two_states_whose_names_share_a_hash_do_not_meet(conn, connect):
    one, other = SAME_HASH
    assert conn.execute("SELECT hashtext(%s) = hashtext(%s)", SAME_HASH).fetchone() == (True,)

    with state_lock(connect(), one, "migration") as work, state_lock(connect(), other, "migration"):
        assert not work.is_awaited()


def test_a_refused_work_says_which_other_one_is_under_way_where_and_since_when(connect):
    first, second = state_lock(connect(), "views", "migration"), state_lock(connect(), "views", "expiry")

    with first, pytest.raises(StateBusyError) as refused, second:
        pass

    message, since = str(refused.value).split(", since ")
    assert message == (
        f"state 'views': expiry cannot begin, its live tables are held by migration on host {socket.gethostname()!r}, "
        f"pid {os.getpid()}"
    )
    assert since.endswith("; try again when that has ended")
    assert refused.value.work == "migration"
    assert refused.value.retryable


def test_two_works_of_one_session_exclude_each_other(conn):
    first, second = state_lock(conn, "views", "migration"), state_lock(conn, "views", "compaction")

    with first, pytest.raises(StateBusyError), second:
        pass


def test_a_work_that_ended_leaves_nothing(conn, connect):
    with state_lock(conn, "views", "migration"):
        pass

    with state_lock(connect(), "views", "migration"):
        pass
    assert conn.execute("SELECT FROM tidegauge.state_work WHERE state = 'views'").fetchall() == []


def test_a_refused_work_holds_no_part_of_its_locks(connect):
    with state_lock(connect(), "views", "expiry"):
        with pytest.raises(StateBusyError), state_lock(connect(), "views", "migration"):
            pass

        with state_lock(connect(), "views", "reprocess"):
            pass


def test_a_work_waits_for_as_long_as_it_is_told(connect):
    waiting, first = connect(), state_lock(connect(), "views", "expiry")
    work = first.__enter__()
    with pytest.raises(StateBusyError), state_lock(waiting, "views", "migration", patience_ms=100):
        pass

    assert not work.is_awaited()
    first.__exit__(None, None, None)
    with state_lock(waiting, "views", "migration", patience_ms=100):
        pass


def test_a_work_leaves_the_lock_time_out_of_its_session_as_it_was(conn):
    before = conn.execute("SHOW lock_timeout").fetchone()

    with state_lock(conn, "views", "migration"):
        assert conn.execute("SHOW lock_timeout").fetchone() == before


def test_a_killed_holder_frees_the_state(conn, installed_url):
    command = [sys.executable, "-m", "tests.state_backends.lock_holder", installed_url, "views", "migration"]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StateBusyError, match=f"pid {holder.pid}, "), state_lock(conn, "views", "migration"):
        pass

    [session] = conn.execute("SELECT DISTINCT backend_pid FROM tidegauge.state_work WHERE pid = %s", [holder.pid])
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    # A shadow that is in use is not waited for, and the server ends a killed client's session some milliseconds later.
    wait_until_gone(conn, *session)

    with state_lock(conn, "views", "migration") as taken:
        assert taken.token


class TestOwner:
    def test_the_owner_of_a_shadow_passes(self, conn):
        with state_lock(conn, "views", "migration") as work, conn.transaction():
            check_owner(conn, "views", work.token)

    def test_an_owner_whose_session_ended_passes_while_nobody_else_has_taken_the_shadow(self, conn, connect):
        token = abandon(conn, connect(), "views", "reprocess")

        check_owner(conn, "views", token)

    @pytest.mark.parametrize("still_held", [True, False], ids=["held", "released"])
    def test_a_token_is_refused_once_another_work_has_had_the_shadow(self, conn, connect, still_held):
        former = abandon(conn, connect(), "views", "migration")

        with state_lock(connect(), "views", "reprocess"):
            if still_held:
                with pytest.raises(StateBusyError, match=message_of("A state is busy", 2) + "reprocess on host"):
                    check_owner(conn, "views", former)
        if not still_held:
            with pytest.raises(StateBusyError, match="shadow tables were taken over by a work that has just ended"):
                check_owner(conn, "views", former)

    def test_nobody_takes_the_shadow_before_the_swap_of_its_owner_has_ended(self, conn, connect):
        other = connect()
        other.execute("SET lock_timeout = '100ms'")
        token = abandon(conn, connect(), "views", "migration")

        with conn.transaction():
            check_owner(conn, "views", token)
            with pytest.raises(psycopg.errors.LockNotAvailable), state_lock(other, "views", "migration"):
                pass
