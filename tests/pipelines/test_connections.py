"""Connections of pipelines, over a real server and a real network that loses every packet."""

import ctypes
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines import connections
from tidegauge.pipelines.connections import connect, lent
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends.errors import PipelineHeldError
from tidegauge.state_backends.session import SETTINGS, VANISHED_SECONDS

HELD = "SELECT pg_advisory_lock(%s)"
RUNNING = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%pg_sleep%%' AND state = 'active'"
SO_ATTACH_FILTER = 26  # Linux; Python's socket module has no name for it


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + VANISHED_SECONDS
    while not condition():
        assert time.monotonic() < deadline


def socket_of(conn: psycopg.Connection) -> socket.socket:
    return socket.fromfd(conn.fileno(), socket.AF_INET, socket.SOCK_STREAM)


def drop_packets(conn: psycopg.Connection) -> None:
    """Drop every packet to the connection's socket, unanswered."""
    with socket_of(conn) as sock:
        # A socket filter of one instruction: return 0 bytes of each packet.
        drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(drop)))


def vanish(conn: psycopg.Connection) -> None:
    """Let the connection's host lose its power: it answers nothing, and does not give up the connection either."""
    drop_packets(conn)
    with socket_of(conn) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)


def seconds_until_free(conn: psycopg.Connection, lock: int) -> float:
    began = time.monotonic()
    conn.execute("SET lock_timeout = '60s'")
    conn.execute(HELD, [lock])
    return time.monotonic() - began


@pytest.fixture
def opened(database_url):
    """Opens connections as pipelines do; those that have vanished are left to the server."""
    kept = []

    def open_one():
        kept.append(connect(database_url, "test"))
        return kept[-1]

    return open_one


class HostsThatVanish:
    """What a server and a client do about each of them takes 20 s of waiting, so all of them vanish at once."""

    def __init__(self, open_one: Callable[[], psycopg.Connection], dsn: str, folder: Path) -> None:
        self._open = open_one
        self._dsn = dsn
        self._folder = folder

    def an_idle_session_gives_up_its_lock(self) -> None:
        driver = self._open()
        driver.execute(HELD, [1])
        vanish(driver)

        assert seconds_until_free(self._open(), 1) < VANISHED_SECONDS

    def a_session_gives_it_up_in_the_middle_of_a_statement(self) -> None:
        driver, other = self._open(), self._open()
        driver.execute(HELD, [2])

        def run() -> None:
            with pytest.raises(psycopg.OperationalError):
                driver.execute("SELECT pg_sleep(90)")

        statement = threading.Thread(target=run)
        statement.start()
        # Until then its packets are under way, and the server hears of it once more when they are sent again.
        wait_until(lambda: other.execute(RUNNING, [driver.info.backend_pid]).fetchone())
        vanish(driver)

        assert seconds_until_free(other, 2) < VANISHED_SECONDS
        with suppress(psycopg.OperationalError), socket_of(driver) as sock:
            sock.shutdown(socket.SHUT_RDWR)
        statement.join(VANISHED_SECONDS)

    def a_client_whose_server_vanishes_gets_an_error(self) -> None:
        driver = self._open()
        drop_packets(driver)
        began = time.monotonic()

        with pytest.raises(psycopg.OperationalError):
            driver.execute("SELECT 1")

        assert time.monotonic() - began < VANISHED_SECONDS

    def the_next_driver_waits_for_the_server_to_notice_and_takes_over(self) -> None:
        pipeline = word_count(self._folder)
        dead = DriverSession(pipeline, self._dsn)
        dead.__enter__()
        vanish(dead.conn)
        began = time.monotonic()

        with DriverSession(pipeline, self._dsn) as session:
            assert session.ledger.fence == 2

        assert time.monotonic() - began < VANISHED_SECONDS + 5
        dead._reports.close()


@pytest.mark.long
class TestAHostThatVanishes:
    def test_is_noticed_by_whoever_waits_for_it(self, opened, database_url, tmp_path, caplog):
        hosts = HostsThatVanish(opened, database_url, tmp_path)
        with ThreadPoolExecutor() as pool:
            seen = [
                pool.submit(hosts.an_idle_session_gives_up_its_lock),
                pool.submit(hosts.a_session_gives_it_up_in_the_middle_of_a_statement),
                pool.submit(hosts.a_client_whose_server_vanishes_gets_an_error),
                pool.submit(hosts.the_next_driver_waits_for_the_server_to_notice_and_takes_over),
            ]

        for each in seen:
            each.result()
        assert re.search(message_of("The driver's host vanished", 2), caplog.text)

    def test_a_driver_that_reports_is_not_waited_for(self, database_url, tmp_path):
        pipeline = word_count(tmp_path)
        ended = threading.Event()

        def report():
            while not ended.wait(0.5):
                alive.report("running")

        with DriverSession(pipeline, database_url) as alive:
            reports = threading.Thread(target=report)
            reports.start()
            began = time.monotonic()
            with pytest.raises(PipelineHeldError), DriverSession(pipeline, database_url):
                pass
            waited = time.monotonic() - began
            ended.set()
            reports.join()

        assert waited < 15


class TestSettings:
    @pytest.mark.parametrize("name", [*SETTINGS, "work_mem", "statement_timeout"])
    def test_those_of_the_role_do_not_reach_a_session(self, opened, conn, name, database_url):
        session = opened()

        row = session.execute(
            "SELECT setting, source FROM pg_settings WHERE lower(name) = lower(%s)", [name]
        ).fetchone()

        assert row is not None
        assert row[1] in ("client", "session"), row

    def test_a_stronger_commit_than_on_is_kept_and_off_is_not(self, opened, conn):
        for given, kept in [("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")]:
            conn.execute(f"ALTER ROLE CURRENT_USER SET synchronous_commit = {given}")
            try:
                assert opened().execute("SHOW synchronous_commit").fetchone() == (kept,)
            finally:
                conn.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")

    def test_the_options_of_the_address_are_kept(self, database_url):
        with connect(f"{database_url}?options=-c%20search_path%3Dtidegauge", "test") as conn:
            assert conn.execute("SHOW search_path").fetchone() == ("tidegauge",)
            assert conn.execute("SHOW IntervalStyle").fetchone() == ("postgres",)


def test_what_the_server_would_lose_in_a_crash_is_said_at_the_start(database_url, tmp_path, caplog):
    with DriverSession(word_count(tmp_path), database_url):
        pass

    # The tests' server is not durable.
    assert re.search(message_of("The database may lose what it has committed"), caplog.text)


@pytest.fixture
def lend(database_url, monkeypatch):
    """Lends connections as to the tasks of a new worker; returns the server process of one."""
    monkeypatch.setattr(connections, "_kept", {})

    def lend(name="task"):
        with lent(database_url, name) as conn:
            return conn.execute("SELECT pg_backend_pid(), current_setting('application_name')").fetchone()

    yield lend
    for conn in connections._kept.values():
        conn.close()


class TestAConnectionThatAWorkerKeeps:
    def test_the_next_task_gets_it_under_its_own_name(self, lend):
        (first, _), (second, name) = lend("p words 1"), lend("p words 2")

        assert (first == second, name) == (True, "tidegauge p words 2")

    def test_a_task_that_fails_closes_it(self, lend, database_url):
        before, _ = lend()

        with pytest.raises(RuntimeError, match="failed"), lent(database_url, "task") as conn:
            raise RuntimeError("the task failed")

        assert conn.closed
        assert lend()[0] != before

    def test_one_that_the_server_has_ended_is_replaced(self, lend, conn):
        before, _ = lend()
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [before])

        assert lend()[0] != before

    def test_two_tasks_at_once_do_not_share_one(self, lend, database_url):
        lend()

        with lent(database_url, "a") as one, lent(database_url, "b") as other:
            assert one.info.backend_pid != other.info.backend_pid
        assert [each.closed for each in (one, other)].count(True) == 1
