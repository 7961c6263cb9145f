from tidegauge.webapp.console.dashboard.charts import HEIGHT, MARGIN, WIDTH, bar_chart


class TestBarChart:
    def test_the_longest_bar_reaches_the_top_and_all_fit_beside_each_other(self):
        low, high = bar_chart([1.0, 4.0]).bars

        assert (low.height * 4, high.height) == (HEIGHT - MARGIN, HEIGHT - MARGIN)
        assert low.x + low.width < high.x
        assert high.x + high.width < WIDTH

    def test_a_number_of_0_is_still_seen(self):
        assert all(bar.height >= 1 for bar in bar_chart([0.0, 0.0]).bars)

    def test_one_bar_makes_no_chart(self):
        assert bar_chart([5.0]) is None
