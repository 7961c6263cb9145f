import json
from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.state_backends.ledger.batch import Batch, record_metrics
from tidegauge.webapp.catalog import series
from tidegauge.webapp.catalog.series import STEPS, TimeRange, pipeline_series, with_gaps

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def hour(points: int = 300) -> TimeRange:
    return TimeRange(NOON, NOON + timedelta(hours=1), points)


def commit(flights, at: datetime, seconds: float = 2.0, rows: int = 10, **figures) -> Batch:
    """Commit a batch and date it back: begun `seconds` before `at`, committed then."""
    batch = flights.commit({("JFK", "C00"): rows}, **figures)
    durations = {"addBatch": 1000 * seconds / 2, "queryPlanning": 100}
    record_metrics(flights.conn, batch, {"duration_ms": durations})
    flights.conn.execute(
        "UPDATE tidegauge.batch SET started_at = %(begun)s, batch_time = %(begun)s, committed_at = %(at)s "
        "WHERE txid = %(txid)s",
        {"begun": at - timedelta(seconds=seconds), "at": at, "txid": batch.txid},
    )
    return batch


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class TestStep:
    @pytest.mark.parametrize(
        ("seconds", "points", "step"),
        [(900, 300, 5), (3_600, 300, 30), (86_400, 300, 300), (7 * 86_400, 300, 3_600), (5, 300, 1)],
    )
    def test_it_is_the_shortest_round_one_that_gives_no_more_points(self, seconds, points, step):
        asked = TimeRange(NOON, NOON + timedelta(seconds=seconds), points)

        assert asked.step_seconds == step
        assert seconds / step <= points

    def test_a_range_of_centuries_has_steps_of_whole_days(self):
        asked = TimeRange(datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC), 10)

        assert asked.step_seconds % STEPS[-1] == 0
        assert (asked.until - asked.since).total_seconds() / asked.step_seconds <= 10


class TestPipelineSeries:
    def test_the_batches_of_a_step_are_one_point_at_the_last_commit(self, flights):
        commit(flights, after(60), seconds=2, rows=10)
        commit(flights, after(65), seconds=3, rows=20, late=4, dropped=1)
        commit(flights, after(95), seconds=1, rows=5)

        found = pipeline_series("flights", hour())

        assert found.times == [after(65).timestamp(), after(95).timestamp()]
        assert found.series == {
            "batches": [2, 1],
            "rows": [30, 5],
            # Since the batch before was committed: by 2 + 5 s, and by 30 s.
            "rows_per_second": [pytest.approx(30 / 7), pytest.approx(5 / 30)],
            "arrived_per_second": [None, None],
            "seconds": [2.5, 1.0],
            "longest_seconds": [3.0, 1.0],
            "freshness_seconds": [7.0, 33.0],
            "lag_seconds": [None, None],
            "pending": [None, None],
            "event_age_seconds": [None, None],
            "dead_letters": [0, 0],
            "late": [4, 0],
            "dropped": [1, 0],
            "replays": [0, 0],
        }
        assert (found.phases["addBatch"], found.phases["queryPlanning"]) == ([1.25, 0.5], [0.1, 0.1])
        assert found.phases["walCommit"] == [None, None]

    def test_a_batch_outside_the_range_only_dates_the_values_before_the_first_one_inside(self, flights):
        commit(flights, after(-100), seconds=0)
        commit(flights, after(0), seconds=1)
        commit(flights, after(3_600), seconds=1)

        found = pipeline_series("flights", hour())

        assert found.times == [NOON.timestamp()]
        assert found.series["freshness_seconds"] == [100.0]

    def test_an_open_batch_and_an_empty_range_give_no_point(self, flights):
        flights.open({("JFK", "C00"): 1})

        found = pipeline_series("flights", TimeRange(NOON, datetime.now(UTC) + timedelta(hours=1), 300))

        assert (found.times, found.series["rows"]) == ([], [])

    def test_an_unknown_pipeline_is_an_error(self, flights):
        with pytest.raises(UnknownPipelineError):
            pipeline_series("nothing", hour())

    def test_lag_is_the_highest_of_a_step_and_unknown_where_no_driver_recorded_it(self, flights):
        commit(flights, after(60))
        for at, lag, pending in ((90, 4.5, 7), (95, 2, 9), (100, None, 3)):
            batch = commit(flights, after(at))
            measured = {"pending": {"count": pending, "unit": "files"}, "event_age_seconds": 10 * pending}
            record_metrics(flights.conn, batch, measured | ({} if lag is None else {"lag_seconds": lag}))

        found = pipeline_series("flights", hour())

        assert found.series["lag_seconds"] == [None, 4.5]
        assert found.series["pending"] == [None, 9]
        assert found.series["event_age_seconds"] == [None, 90]
        assert found.phases["addBatch"] == [1.0, None]

    def test_of_very_many_batches_some_are_read_and_the_sums_are_those_of_all(self, flights, monkeypatch):
        for second in range(61):
            commit(flights, after(second), rows=10 + second, late=second)
        monkeypatch.setattr(series, "MOST_BATCHES", 16)

        found = pipeline_series("flights", TimeRange(after(1), after(100), 10))

        # Every fourth batch is read, from the fourth to the 60th: what came between two of them is counted by totals.
        assert found.times == [after(second).timestamp() for second in (7, 19, 27, 39, 47, 59)]
        assert sum(found.series["batches"]) == 56
        assert sum(found.series["rows"]) == sum(10 + second for second in range(4, 60))
        assert sum(found.series["late"]) == sum(range(4, 60))
        rates = zip(found.series["rows"], found.series["batches"], found.series["rows_per_second"], strict=True)
        assert all(rate == pytest.approx(rows / batches) for rows, batches, rate in rates)
        assert found.series["freshness_seconds"] == [3.0] * 6

    @pytest.mark.parametrize(
        ("since", "until", "batches"), [(10, 20, 10), (0, 9, 2), (25, 35, 7), (59, 90, 1), (60, 90, 0)]
    )
    def test_the_ends_of_a_range_are_found_among_batches_of_which_some_were_compacted(
        self, flights, since, until, batches
    ):
        for second in range(60):
            commit(flights, after(second))
        flights.conn.execute("DELETE FROM tidegauge.batch WHERE txid < 8")
        flights.conn.execute("DELETE FROM tidegauge.batch WHERE txid IN (30, 31, 32)")

        found = pipeline_series("flights", TimeRange(after(since), after(until), 10))

        assert sum(found.series["batches"]) == batches

    def test_points_are_bounded_however_many_batches_there_are(self, flights):
        for second in range(60):
            commit(flights, after(second))

        found = pipeline_series("flights", TimeRange(NOON, after(60), 10))

        assert found.series["batches"] == [10] * 6


class TestArrivals:
    """Rows arrive at the rate at which they are counted, and those that wait become more or fewer."""

    @staticmethod
    def waits(flights, batch: Batch, count: int, unit: str = "messages") -> None:
        record_metrics(flights.conn, batch, {"pending": {"count": count, "unit": unit}})

    @staticmethod
    def rates(points: int = 3_600) -> list[float | None]:
        return pipeline_series("flights", hour(points)).series["arrived_per_second"]

    def test_rows_that_wait_have_arrived_and_those_that_waited_before_have_not(self, flights):
        for second, rows, waiting in ((0, 10, 0), (10, 20, 80), (20, 50, 40), (30, 30, 0)):
            self.waits(flights, commit(flights, after(second), rows=rows), waiting)

        # 20 + 80, 50 - 40, and 30 - 40, which more or less is nothing.
        assert self.rates() == [None, 10, 1, 0]

    def test_a_step_has_the_average_of_its_batches_whose_input_was_looked_at(self, flights):
        for second, waiting in ((1, 0), (11, 60), (12, None), (13, 90), (14, 70)):
            batch = commit(flights, after(second), rows=10)
            if waiting is not None:
                self.waits(flights, batch, waiting)

        # 10 + 60 in 10 s, and of the last batch 10 - 20 in 1 s.
        assert self.rates(points=1) == [pytest.approx(60 / 11)]

    def test_a_file_that_waits_has_as_many_rows_as_one_of_the_batch(self, flights):
        for second, files in ((0, 0), (10, 3)):
            self.waits(flights, commit(flights, after(second), rows=40), files, "files")
        held = json.dumps([{"unit": "files", "count": 2}])
        flights.conn.execute("UPDATE tidegauge.batch SET input = %s", [held])

        assert self.rates() == [None, (40 + 3 * 20) / 10]

    def test_what_is_no_number_of_rows_is_unknown_unless_nothing_waits(self, flights):
        for second, waiting in ((0, 0), (10, 0), (20, 7)):
            self.waits(flights, commit(flights, after(second), rows=40), waiting, "bytes of log")

        assert self.rates() == [None, 4, None]

    def test_rows_that_a_rewind_gives_back_have_not_arrived_again(self, flights):
        for second, epoch, waiting in ((0, "a", 0), (10, "b", 500), (20, "b", 400)):
            batch = commit(flights, after(second), rows=100)
            self.waits(flights, batch, waiting)
            flights.conn.execute("UPDATE tidegauge.batch SET epoch = %s WHERE txid = %s", [epoch, batch.txid])

        assert self.rates() == [None, None, 0]


class TestGaps:
    def test_a_pause_is_marked_by_a_point_without_values(self):
        points = [{"at": at, "rows": 1} for at in (0, 10, 20, 30, 200, 210)]

        marked = with_gaps(points, 1)

        assert [point["at"] for point in marked] == [0, 10, 20, 30, 115, 200, 210]
        assert marked[4] == {"at": 115}

    def test_points_that_are_usually_far_apart_have_no_gap(self):
        points = [{"at": at} for at in (0, 600, 1_200, 1_900)]

        assert with_gaps(points, 1) == points

    def test_steps_that_are_next_to_each_other_have_no_gap(self):
        points = [{"at": at} for at in (0.0, 0.1, 0.2, 2.9)]

        assert with_gaps(points, 1) == points
