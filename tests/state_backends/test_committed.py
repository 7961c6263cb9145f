from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tidegauge.state_backends.committed import is_live

NOON = datetime(2013, 3, 10, 12, tzinfo=UTC)
TIMES = st.datetimes(datetime(2013, 3, 1), datetime(2013, 3, 20), timezones=st.just(UTC))
TTLS = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=30))


def test_a_version_is_live_until_its_ttl_has_passed_to_the_microsecond():
    ttl = timedelta(hours=1)

    assert is_live(False, NOON, ttl, NOON + ttl - timedelta(microseconds=1))
    assert not is_live(False, NOON, ttl, NOON + ttl)


def test_a_version_without_a_ttl_is_live_unless_it_is_removed():
    assert is_live(False, NOON, None, NOON + timedelta(days=100_000))
    assert not is_live(True, NOON, None, NOON)


def test_the_longest_ttl_does_not_overflow(conn):
    assert is_live(False, NOON, timedelta.max, NOON)
    assert ask(conn, False, NOON, timedelta(days=100_000_000), NOON)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@examples(60)
@given(removed=st.booleans(), updated_at=TIMES, ttl=TTLS, clock=TIMES)
# New York put its clocks forward on 10 March 2013, so that day had 23 hours there.
@example(False, datetime(2013, 3, 9, 12, tzinfo=UTC), timedelta(days=1), datetime(2013, 3, 10, 11, 30, tzinfo=UTC))
@example(False, NOON, timedelta(hours=24), NOON + timedelta(days=1))
def test_sql_and_python_agree_in_every_time_zone(conn, zone, removed, updated_at, ttl, clock):
    conn.execute(f"SET TIME ZONE '{zone}'")

    assert ask(conn, removed, updated_at, ttl, clock) is is_live(removed, updated_at, ttl, clock)


def ask(conn, *arguments):
    return conn.execute("SELECT tidegauge.is_live(%s, %s, %s::interval, %s)", arguments).fetchone()[0]
