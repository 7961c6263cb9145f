from webapp.dashboard.charts import HEIGHT, MARGIN, WIDTH, bar_chart


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
