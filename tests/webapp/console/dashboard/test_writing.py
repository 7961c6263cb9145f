from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from django.http import QueryDict

from tests.webapp.flights import BY_CARRIER
from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.console.dashboard.charts import SPARKLINE_HEIGHT, SPARKLINE_WIDTH, sparkline
from tidegauge.webapp.console.dashboard.entries import EntriesQuery
from tidegauge.webapp.console.dashboard.templatetags import dashboard


@pytest.mark.parametrize(
    ("figure", "written"),
    [
        (None, "—"),
        (0, "0"),
        (12345, "12,345"),
        (12.3456, "12.35"),
        (-3.5, "-3.50"),
        (7.0, "7"),
        (1234567.8, "1,234,568"),
    ],
)
def test_numbers_have_separators_and_at_most_two_decimals(figure, written):
    assert dashboard.number(figure) == written


@pytest.mark.parametrize(
    ("count", "written"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (64_000, "64 kB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes_are_in_the_unit_that_fits(count, written):
    assert dashboard.size(count) == written


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (None, "—"),
        (0, "0 s"),
        (0.421, "421 ms"),
        (0.9996, "1.00 s"),
        (6.034, "6.03 s"),
        (3, "3 s"),
        (119, "119 s"),
        (150, "2 min"),
        (7200, "2 h"),
        (timedelta(days=400), "400 days"),
    ],
)
def test_durations_are_in_the_unit_that_fits(length, written):
    assert dashboard.duration(length) == written


def test_what_a_message_has_between_backticks_is_code_and_nothing_of_it_is_markup():
    assert dashboard.commands("<b> run `a <b>`, or `c`") == "&lt;b&gt; run <code>a &lt;b&gt;</code>, or <code>c</code>"


@pytest.mark.parametrize(("part", "written"), [("JFK", "JFK"), (True, "true"), (7, "7"), ("", "empty")])
def test_parts_of_a_key_are_visible(part, written):
    assert written in dashboard.part(part, "text")


def test_a_long_json_value_is_cut():
    assert dashboard.cell({"words": ["x" * 500]}).endswith("x…")


def parsed(asked):
    return EntriesQuery.parse(QueryDict(urlencode(asked)), BY_CARRIER)


class TestEntriesQuery:
    def test_an_address_keeps_the_rest_of_the_query(self):
        asked = {
            "q": "J K",
            "prefix": "JFK",
            "order": "-flights",
            "after": '[5, ["JFK", "AA"]]',
            "n": "25",
            "as_of": "0",
        }
        query = parsed(asked | {"by": "max_delay"})

        assert query.first_page == "?q=J+K&prefix=JFK&order=-flights&by=max_delay&as_of=0"
        assert query.address(by="flights").startswith("?q=J+K&prefix=JFK&order=-flights&by=flights&after=%5B5%2C")
        assert query.now == "?q=J+K&prefix=JFK&order=-flights&by=max_delay"

    def test_a_second_click_reverses_the_order_and_returns_to_the_first_page(self):
        query = parsed({"order": "-flights", "after": '[5, ["JFK", "AA"]]', "n": "25"})

        assert query.sorted_by("max_delay") == "?order=-max_delay"
        assert query.sorted_by("flights") == "?order=flights"

    def test_a_position_that_is_not_a_list_is_the_first_page(self):
        query = parsed({"after": '{"a": 1}', "n": "25"})

        assert (query.position, query.n) == (None, 0)

    def test_a_download_has_the_range_and_the_batch_but_no_page(self):
        query = parsed({"q": "A", "prefix": "JFK", "as_of": "3", "after": '["JFK", "AA"]'})

        assert query.export(("JFK",))[0] == ("CSV", "export?format=csv&prefix=%5B%22JFK%22%5D&at_txid=3")


class TestSparkline:
    def test_the_oldest_batch_is_on_the_left_and_the_fastest_on_top(self):
        newest, middle, oldest = batch(3, rows=100), batch(2, rows=50), batch(1, rows=0)

        outline = sparkline([newest, middle, oldest]).outline

        line = f"0,{SPARKLINE_HEIGHT - 2} {SPARKLINE_WIDTH / 2:g},{SPARKLINE_HEIGHT / 2:g} {SPARKLINE_WIDTH},2"
        assert outline == f"-9,49 -9,38 {line} 249,2 249,49"

    def test_the_open_batch_has_no_rate_yet(self):
        assert sparkline([batch(3, rows=0, status="open"), batch(2, rows=5), batch(1, rows=5)]).batches == 2

    def test_one_batch_makes_no_line(self):
        assert sparkline([batch(1, rows=5)]) is None


def batch(txid: int, rows: int, status: str = "committed") -> BatchSummary:
    committed_at = datetime(2013, 1, 1, 10, 0, txid, tzinfo=UTC) if status == "committed" else None
    return BatchSummary("flights", txid, 1, status, None, committed_at, 1.0, rows, {}, 0)


def test_a_measure_of_several_values_is_a_list_of_names_and_values():
    pair = "<div><dt>{}</dt><dd>{}</dd></div>"

    assert dashboard.measured({"0.5": 13.8465, "0.9": None}) == (
        f'<dl class="pairs">{pair.format("0.5", "13.85")}{pair.format("0.9", "—")}</dl>'
    )
    assert dashboard.measured([{"item": "<b>", "count": 1024, "at_least": 1000}]) == (
        f'<dl class="pairs">{pair.format("&lt;b&gt;", "1,024")}</dl>'
    )
    assert (dashboard.measured(1234), dashboard.measured([]), dashboard.measured([[1, 2]])) == (
        "1,234",
        "[]",
        "[[1, 2]]",
    )
