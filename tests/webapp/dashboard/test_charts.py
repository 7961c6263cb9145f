from datetime import UTC, datetime, timedelta

from webapp.dashboard.charts import HEIGHT, MARGIN, WIDTH, bar_chart, step_chart

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class TestBarChart:
    def test_the_longest_bar_reaches_the_top_and_all_fit_beside_each_other(self):
        chart = bar_chart([(7, 1.0, ""), (8, 4.0, "watch")])

        low, high = chart.bars
        assert (low.height * 4, high.height) == (HEIGHT - MARGIN, HEIGHT - MARGIN)
        assert low.x + low.width < high.x
        assert high.x + high.width < WIDTH
        assert (chart.first_txid, chart.last_txid, high.tone) == (7, 8, "watch")

    def test_a_batch_that_took_no_time_is_still_seen(self):
        assert all(bar.height >= 1 for bar in bar_chart([(1, 0.0, ""), (2, 0.0, "")]).bars)

    def test_one_bar_makes_no_chart(self):
        assert bar_chart([(1, 5.0, "")]) is None


class TestStepChart:
    def test_a_value_holds_until_its_next_version(self):
        chart = step_chart([(at(0), 1.0), (at(5), 3.0), (at(10), 2.0)])

        assert chart.lines == ["M0.0 97.0H500.0V3.0H1000.0V50.0"]
        assert chart.dots == "M0.0 97.0h0 M500.0 3.0h0 M1000.0 50.0h0"

    def test_a_removed_version_is_a_gap(self):
        chart = step_chart([(at(0), 1.0), (at(2), None), (at(4), 1.0), (at(8), 2.0), (at(10), 2.0)])

        assert chart.lines == ["M0.0 97.0H200.0", "M400.0 97.0H800.0V3.0H1000.0V3.0"]

    def test_a_value_that_never_changes_runs_through_the_middle(self):
        assert step_chart([(at(0), 5), (at(1), 5)]).lines == [f"M0.0 {HEIGHT / 2}H{WIDTH}.0V{HEIGHT / 2}"]

    def test_versions_at_the_same_time_do_not_divide_by_zero(self):
        assert step_chart([(at(0), 1), (at(0), 2)]).points == 2

    def test_one_number_makes_no_line(self):
        assert step_chart([(at(0), 1), (at(1), None)]) is None
