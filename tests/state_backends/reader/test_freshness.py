"""How long an answer is valid: the batch that a read would answer now, and when the first found key expires."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tidegauge.state_backends import Count, StateSpec, state_reader
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.reader.reader import expiry

HOUR = timedelta(hours=1)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=HOUR)
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])


def rows(*pages):
    return [{"page": page, "n": 1} for page in pages]


class TestUntil:
    @BOTH
    def test_an_answer_holds_until_the_first_of_the_found_keys_expires(self, twins, place):
        feed = twins(VIEWS)
        feed.commit(*rows("old", "gone"))
        feed.wait(HOUR / 2)
        feed.commit(*rows("a"), gone=[("gone",)])
        feed.commit(*rows("b"))
        reader = feed.readers()[place]
        times = {entry["key"][0]: datetime.fromisoformat(entry["updated_at"]) for entry in reader.page().parsed()}

        def until(*pages):
            return reader.multi_get([(page,) for page in pages]).until

        assert until("b", "a", "gone", "nowhere") == times["a"] + HOUR
        assert until("b") == times["b"] + HOUR
        assert until("b", "old", "a") == times["old"] + HOUR
        assert until("gone", "nowhere") is until() is None

    @BOTH
    def test_what_is_expired_already_does_not_count(self, twins, place):
        feed = twins(VIEWS)
        feed.commit(*rows("old"))
        feed.wait(2 * HOUR)
        batch = feed.commit(*rows("a"))

        answer = feed.readers()[place].multi_get([("old",), ("a",)])

        assert [each["status"] for each in answer.parsed()] == ["expired", "found"]
        assert answer.until == batch.batch_time + HOUR

    @BOTH
    def test_folded_keys_and_pages_have_an_end_too(self, twins, place):
        feed = twins(VIEWS)
        first = feed.commit(*rows("a"))
        second = feed.commit(*rows("b", "c"))
        reader = feed.readers()[place]

        assert reader.combine([("b",), ("a",)]).until == reader.page().until == first.batch_time + HOUR
        assert reader.page(after=["a"]).until == second.batch_time + HOUR

    @BOTH
    def test_without_a_ttl_an_answer_does_not_expire(self, twins, place):
        feed = twins(VIEWS, ttl=None)
        feed.commit(*rows("a"))
        reader = feed.readers()[place]

        assert reader.multi_get([("a",)]).until is reader.page().until is reader.combine([("a",)]).until is None

    @BOTH
    def test_the_past_does_not_expire(self, twins, place):
        feed = twins(VIEWS, changelog=True)
        feed.commit(*rows("a"))

        assert feed.readers()[place].multi_get([("a",)], at_txid=1).until is None

    def test_a_version_of_an_open_batch_does_not_prolong_an_answer(self, twins):
        feed = twins(VIEWS)
        first = feed.commit(*rows("a"))
        feed.write(feed.begin(1), rows("a"))

        assert {reader.multi_get([("a",)]).until for reader in feed.readers()} == {first.batch_time + HOUR}

    def test_a_day_is_24_hours_where_clocks_change(self, twins):
        night = datetime(2024, 3, 9, 12, tzinfo=ZoneInfo("America/New_York"))

        assert expiry(night, timedelta(days=1)) == night.astimezone(UTC) + timedelta(hours=24)

    def test_a_ttl_that_ends_after_the_year_9999_never_ends(self):
        assert expiry(datetime(2024, 1, 1, tzinfo=UTC), timedelta.max) is None


class TestCommitted:
    @BOTH
    def test_it_is_the_batch_that_a_read_would_have(self, twins, place):
        feed = twins(VIEWS)
        reader = feed.readers()[place]
        assert reader.committed()[:3] == (0, 0, None)
        feed.commit(*rows("a"))
        feed.write(batch := feed.begin(1), rows("a"))
        assert reader.committed()[0] == 1

        feed.ledger.commit(batch)
        if place:
            assert reader.committed()[0] == 1
        feed.rows_in_redis.publish(2)

        page = reader.page()
        assert (
            reader.committed()
            == (page.txid, page.attempt, page.batch_time, page.epoch)
            == (2, 1, batch.batch_time, batch.epoch)
        )

    def test_a_state_that_is_not_registered_is_unknown(self, conn, client, fresh):
        for backend in ("postgres", "redis"):
            reader = state_reader(conn, replace(fresh(VIEWS), backend=backend))
            with pytest.raises(UnknownStateError):
                reader.committed()
