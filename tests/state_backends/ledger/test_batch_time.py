"""The clock of batches, where the database's, the driver's or both are wrong."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.recovery_page import message_of
from tests.state_backends.feed import views
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import ClockError
from tidegauge.state_backends.ledger.batch_time import MAX_SKEW, BatchClock, max_skew, uptime_seconds
from tidegauge.state_backends.maintenance import compact, expire

MONTH = timedelta(days=31)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=timedelta(days=30))


class Host:
    """The clock of the driver's host, and its uptime."""

    def __init__(self):
        self.ahead = self.passed = timedelta()

    def now(self):
        return datetime.now(UTC) + self.ahead

    def uptime(self):
        return uptime_seconds() + self.passed.total_seconds()

    def clock(self):
        return BatchClock(now=self.now, uptime=self.uptime)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def feed(new_feed, fresh, host):
    feed = new_feed(fresh(VIEWS))
    feed.ledger.clock = host.clock()
    return feed


@pytest.fixture
def step(conn):
    """Steps the database's clock, as batches see it."""

    def step(ahead):
        conn.execute(
            "CREATE OR REPLACE FUNCTION tidegauge.clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
            f"RETURN clock_timestamp() + interval '{ahead.total_seconds()} s'"
        )

    yield step
    step(timedelta())


class TestTheDatabaseAhead:
    @pytest.mark.parametrize("stepped", [MONTH, -MONTH, MAX_SKEW + timedelta(seconds=9)])
    def test_no_batch_begins_while_its_clock_and_the_drivers_are_apart(self, feed, step, stepped):
        feed.run(views(("/home", 49)))
        step(stepped)

        with pytest.raises(ClockError, match=r"^pipeline 'pipeline_\d+': the database's clock says .* apart"):
            feed.run(views(("/home", 3)))
        step(timedelta())
        feed.run(views(("/home", 3)))

        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 52}]

    def test_the_whole_message_names_both_clocks_and_what_to_do(self, feed, step):
        step(MONTH)

        with pytest.raises(ClockError) as caught:
            feed.begin(0)

        message = str(caught.value)
        assert re.search(message_of("The clocks of database and driver differ", 1), message)
        assert f"says {datetime.now(UTC) + MONTH:%Y-%m-%d}" in message
        assert f" {datetime.now(UTC):%Y-%m-%d}" in message
        assert message.endswith(
            "more than 0:05:00 apart: under a wrong clock keys with a ttl would expire too early or too late; correct "
            "the wrong one"
        )

    def test_it_is_tried_again_as_a_clock_may_be_set_right(self):
        assert ClockError.retryable

    @pytest.mark.parametrize("apart", [MAX_SKEW, -MAX_SKEW])
    def test_a_small_difference_is_none(self, feed, host, apart):
        host.ahead = apart * 0.9

        assert feed.run(views(("/home", 1))).txid == 1

    def test_neither_expiry_nor_compaction_goes_by_it(self, feed, step):
        feed.run(views(("/home", 49)))
        step(MONTH)
        (spec,) = feed.specs

        with pytest.raises(ClockError, match=f"^state '{spec.name}': the database's clock says"):
            list(expire(feed.conn, spec))
        with pytest.raises(ClockError):
            list(compact(feed.conn, spec, keep=timedelta()))

        assert feed.read(spec, ("/home",)) == [{"n": 49}]


class TestBothOnOneHost:
    @pytest.mark.parametrize("stepped", [MONTH, -MONTH])
    def test_a_step_of_their_clock_between_two_batches_is_refused(self, feed, host, step, stepped):
        feed.run(views(("/home", 49)))
        host.ahead = stepped
        step(stepped)

        with pytest.raises(ClockError, match=message_of("The clocks of database and driver differ", 2)):
            feed.run(views(("/home", 3)))

        step(timedelta())
        host.ahead = timedelta()
        feed.run(views(("/home", 3)))
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 52}]

    def test_time_that_has_passed_is_no_step(self, feed, host, step):
        feed.run(views(("/home", 49)))
        host.ahead = host.passed = MONTH
        step(MONTH)

        assert feed.run(views(("/home", 3))).batch_time > datetime.now(UTC) + timedelta(days=30)

    def test_a_driver_that_starts_again_takes_the_new_time(self, feed, host, step):
        feed.run(views(("/home", 49)))
        host.ahead = MONTH
        step(MONTH)
        feed.ledger.clock = host.clock()

        assert feed.run(views(("/home", 3))).txid == 2


class TestAfterAWrongClock:
    @pytest.fixture
    def ahead(self, feed, host, step):
        """A batch was committed under a clock that was a month ahead; it is right again, and the driver another."""
        host.ahead = MONTH
        step(MONTH)
        feed.run(views(("/home", 1)))
        host.ahead = timedelta()
        step(timedelta())
        feed.ledger.clock = host.clock()
        return feed

    def test_batch_times_come_back_to_the_clock_within_the_bound(self, ahead, caplog):
        times = [ahead.run(views(("/home", 1))).batch_time for _ in range(3)]

        bound = datetime.now(UTC) + MAX_SKEW
        assert all(time <= bound for time in times)
        assert times == sorted(times)
        assert "batch time goes back from" in caplog.text

    def test_an_open_batch_does_not_keep_the_wrong_time(self, feed, host, step):
        host.ahead = MONTH
        step(MONTH)
        feed.begin(0)
        host.ahead = timedelta()
        step(timedelta())
        feed.ledger.clock = host.clock()

        again = feed.begin(0)

        assert (again.attempt, again.batch_time <= datetime.now(UTC) + MAX_SKEW) == (2, True)

    def test_a_key_written_under_it_goes_on(self, ahead):
        ahead.run(views(("/home", 2)))

        assert ahead.read(ahead.specs[0], ("/home",)) == [{"n": 3}]


class TestSetting:
    def test_it_is_a_number_of_seconds(self):
        assert max_skew({"TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS": "20"}) == timedelta(seconds=20)
        assert max_skew({}) == MAX_SKEW

    @pytest.mark.parametrize("text", ["0", "-1", "five", "1.5"])
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ClockError, match=f"TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS: '{text}' is not a number of seconds"):
            max_skew({"TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS": text})
