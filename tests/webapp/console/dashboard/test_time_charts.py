import json
import re
from datetime import timedelta
from html import unescape

import pytest

from tidegauge.webapp.catalog.series import FIGURES, PHASES
from tidegauge.webapp.console.dashboard.time_charts import PIPELINE_CHARTS, ShownRange

PAGE = "/pipelines/flights/"
STATE, KEY = "/states/flights_by_carrier", 'key=["EWR","C00"]'


def figures(response) -> list[dict[str, str]]:
    tags = re.findall(r"<figure[^>]* data-series-url[^>]*>", response.content.decode())
    return [{name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)} for tag in tags]


class TestShownRange:
    def test_an_address_without_one_has_the_default_and_no_parameters(self):
        assert (ShownRange.parse({}).seconds, ShownRange.parse({}).query) == (3_600, {})

    @pytest.mark.parametrize("asked", [{"range": "15m"}, {"range": "7d"}])
    def test_a_named_range_is_kept_in_the_address(self, asked):
        assert ShownRange.parse(asked).query == asked

    def test_times_without_an_offset_are_in_utc(self):
        shown = ShownRange.parse({"from": "2013-01-01T10:00", "to": "2013-01-01T12:00:00+01:00"})

        assert shown.query == {"from": "2013-01-01T10:00:00+00:00", "to": "2013-01-01T12:00:00+01:00"}
        assert shown.seconds == 0

    @pytest.mark.parametrize(
        "asked",
        [
            {"range": "2h"},
            {"from": "2013-01-01"},
            {"from": "2013-01-02", "to": "2013-01-01"},
            {"from": "\0", "to": "x"},
            {"from": "0001-01-01", "to": "2013-01-01"},
        ],
    )
    def test_any_other_address_has_the_default(self, asked):
        assert ShownRange.parse(asked) == ShownRange.parse({})


class TestUsualRange:
    @pytest.mark.parametrize(
        ("first", "last", "shown"),
        [
            (timedelta(minutes=10), timedelta(), "15m"),
            (timedelta(minutes=16), timedelta(), "1h"),
            (timedelta(days=30), timedelta(minutes=1), "1h"),
            (timedelta(minutes=80), timedelta(minutes=70), "24h"),
            (timedelta(days=30), timedelta(hours=3), "24h"),
            (timedelta(days=30), timedelta(days=2), "7d"),
            (timedelta(days=30), timedelta(days=29), "7d"),
        ],
    )
    def test_it_follows_the_first_and_the_last_commit(self, filled, reader, first, last, shown):
        for txid, ago in ((1, first), (2, last)):
            filled.conn.execute("UPDATE tidegauge.batch SET committed_at = now() - %s WHERE txid = %s", (ago, txid))

        for page in (PAGE, f"{STATE}/key?{KEY}", f"{STATE}/compare?{KEY}"):
            assert re.search(rf'id="range-{shown}"[^>]* aria-current="true"', reader.get(page).content.decode())

    def test_a_range_that_was_chosen_stays(self, filled, reader):
        assert {figure["data-last"] for figure in figures(reader.get(f"{PAGE}?range=7d"))} == {"604800"}

    def test_a_pipeline_without_batches_opens_at_an_hour(self, reader, flights):
        assert {figure["data-last"] for figure in figures(reader.get(PAGE))} == {"3600"}


class TestChartsOfAPipeline:
    def test_each_names_a_series_that_the_api_answers(self, filled, reader):
        for figure in figures(reader.get(PAGE)):
            found = reader.get(figure["data-series-url"]).json()
            assert {name for name, _ in json.loads(figure["data-lines"])} <= {*found["series"], *found["phases"]}

    def test_every_line_is_a_figure_of_the_series(self):
        lines = {name for chart in PIPELINE_CHARTS for name, _ in chart.lines}

        assert lines <= {*FIGURES, *PHASES}

    def test_the_range_of_the_address_is_that_of_the_charts_and_of_each_refresh(self, filled, reader):
        response = reader.get(f"{PAGE}?range=24h")

        assert {figure["data-last"] for figure in figures(response)} == {"86400"}
        assert re.search(r'id="range-24h"[^>]* aria-current="true"', response.content.decode())
        assert "&quot;range&quot;:&quot;24h&quot;" in response.content.decode()

    def test_a_range_of_its_own_fills_the_fields(self, filled, reader):
        page = reader.get(f"{PAGE}?from=2013-01-01T10:00:00Z&to=2013-01-01T11:00:00Z")

        assert {figure["data-from"] for figure in figures(page)} == {"2013-01-01T10:00:00+00:00"}
        assert 'value="2013-01-01T10:00:00"' in page.content.decode()

    def test_without_javascript_a_chart_links_to_its_figures(self, filled, reader):
        assert 'href="/api/v1/pipelines/flights/series">series as JSON' in reader.get(PAGE).content.decode()


class TestChartOfAKey:
    ADDRESS = "/states/flights_by_carrier/key"

    def test_it_reads_the_series_of_the_key_and_the_chosen_measure(self, filled, reader):
        (figure,) = figures(reader.get(self.ADDRESS, {"key": '["EWR","C00"]', "by": "max_delay", "range": "24h"}))

        assert (figure["data-form"], figure["data-last"]) == ("steps", "86400")
        assert reader.get(figure["data-series-url"]).json()["series"].keys() == {"max_delay"}

    def test_other_measures_and_ranges_keep_the_key_and_each_other(self, filled, reader):
        asked = {"key": '["EWR","C00"]', "by": "max_delay", "range": "24h"}

        page = unescape(reader.get(self.ADDRESS, asked).content.decode())

        assert "key=%5B%22EWR%22%2C+%22C00%22%5D&by=flights&range=24h" in page
        assert "key=%5B%22EWR%22%2C%22C00%22%5D&by=max_delay&range=7d" in page
        assert '<input type="hidden" name="by" value="max_delay">' in page

    def test_a_key_that_never_existed_has_no_chart(self, filled, reader):
        assert figures(reader.get(self.ADDRESS, {"key": '["EWR","nothing"]'})) == []
