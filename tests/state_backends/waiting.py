"""Waits until a session waits for another one, or has ended."""

import time

import psycopg

SOON = 10  # seconds; enough for anything that is not stuck


def wait_until_blocked(conn: psycopg.Connection, other: psycopg.Connection) -> None:
    """Wait until `other` waits for a lock that `conn` holds."""
    wait_until(conn, "SELECT %s = ANY(pg_blocking_pids(%s))", [conn.info.backend_pid, other.info.backend_pid])


def wait_until_gone(conn: psycopg.Connection, pid: int) -> None:
    wait_until(conn, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", [pid])


def wait_until(conn: psycopg.Connection, question: str, parameters: list[int]) -> None:
    for _ in range(SOON * 100):
        (yes,) = conn.execute(question, parameters).fetchone()
        if yes:
            return
        time.sleep(0.01)
    raise TimeoutError(question)
