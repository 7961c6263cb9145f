"""Connections of the web application: what its answers and its maintenance rely on is set, whatever the role has."""

import pytest
from django.db import connection

from tidegauge.state_backends.session import SETTINGS
from tidegauge.webapp.catalog import readers

HOSTILE = {
    "extra_float_digits": "-3",
    "IntervalStyle": "iso_8601",
    "DateStyle": "SQL, DMY",
    "synchronous_commit": "off",
}


@pytest.fixture
def hostile(transactional_db):
    """Settings of the role; every connection that is opened gets them."""
    with connection.cursor() as cursor:
        for name, value in HOSTILE.items():
            cursor.execute(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
    connection.close()
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER RESET ALL")


def settings_of(conn):
    rows = conn.execute("SELECT lower(name), current_setting(name) FROM pg_settings WHERE name IS NOT NULL").fetchall()
    shown = dict(rows)
    return {name: shown[name.lower()] for name in [*HOSTILE, "default_transaction_isolation"]}


EXPECTED = {name: SETTINGS.get(name, "on") for name in [*HOSTILE, "default_transaction_isolation"]}


def test_those_of_requests_and_tasks_are_ours(hostile):
    assert settings_of(readers.connection()) == EXPECTED


def test_those_of_maintenance_and_exports_are_ours(hostile):
    with readers.own_connection() as conn:
        assert settings_of(conn) == EXPECTED


def test_the_server_notices_within_30_seconds_that_their_host_has_vanished(transactional_db):
    with readers.own_connection() as conn:
        idle, interval, count, unconfirmed = (
            int(conn.execute("SELECT setting FROM pg_settings WHERE name = %s", [name]).fetchone()[0])
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        )

    assert 0 < idle + interval * count < 30
    assert 0 < unconfirmed < 30_000
