"""The explorer compares now with then: an earlier batch, or an earlier stretch of event time."""

import re

import pytest

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.console.dashboard.test_wide_states import BY_HOUR, BY_PAGE, NOW, visits
from tests.webapp.wide_states import MEASURES, hours

__all__ = ["visits"]


def rows(response) -> list[str]:
    """What a reader sees of each row of the table."""
    table = response.content.decode().partition('class="explored"')[2].partition("</table>")[0].partition("<tbody>")[2]
    found = table.split("</tr>")[:-1]
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found]


def visited(page: str, country: str, visits: int) -> dict[str, object]:
    return {"page": page, "country": country, "visits": visits} | dict.fromkeys(MEASURES, 1.0)


class TestEventTime:
    ASKED = f"{BY_HOUR}explore?group=country&last=1+day&than=1+day+ago&measures=visits"

    def test_the_last_day_is_compared_with_the_day_before(self, visits, reader):
        found = rows(reader.get(f"{self.ASKED}&order=-visits"))

        # The newest hour has 5 visits so far, which is the most that is missing.
        per_hour = [row["visits"] for row in hours(NOW) if row["country"] == "DE"]
        now, then = sum(per_hour[:24]), sum(per_hour[24:])
        assert found[0] == f"DE 1 = {now:,} {then:,} −{then - now:,} −5.0 %"  # noqa: RUF001
        assert len(found) == 10

    def test_a_filter_applies_to_both(self, visits, reader):
        [found] = rows(reader.get(f"{self.ASKED}&where=country=US"))

        assert found.startswith("US 1 = 21,")

    def test_its_request_to_the_api_has_the_same_hours(self, visits, admin_client):
        page = admin_client.get(self.ASKED).content.decode()
        address = re.search(r'data-run="([^"]*)"', page)[1].replace("&amp;", "&")

        found = admin_client.get(address.removeprefix("http://testserver")).json()["groups"]
        assert found[0]["value"]["visits"] == 25_645

    def test_a_length_of_time_that_is_none_is_refused(self, visits, reader):
        assert "&#x27;soon&#x27; is not a length of time such as 7 days" in reader.get(
            f"{BY_HOUR}explore?last=soon"
        ).content.decode().replace("'", "&#x27;")

    def test_without_comparison_the_last_hours_are_shown_alone(self, visits, reader):
        page = reader.get(f"{BY_HOUR}explore?last=2+hours&measures=visits&limit=100")

        assert len(rows(page)) == 20
        assert "then" not in rows(page)[0]


class TestEarlierBatch:
    ASKED = f"{BY_PAGE}explore?than=1&measures=visits"

    def test_a_key_shows_now_then_difference_and_how_its_rank_changed(self, visits, reader):
        found = rows(reader.get(f"{self.ASKED}&order=-visits&limit=100"))

        # Of the page, NL was sixth of 40 in the first batch.
        assert found[0].endswith("· NL 1 ▲ 5 62 45 +17 +37.8 %")
        assert len(found) == 40

    def test_a_key_that_is_new_has_no_rank_then(self, visits, reader):
        visits.commit([visited("/new", "DE", 900)], [])

        found = rows(reader.get(f"{self.ASKED}&order=-visits"))

        assert found[0] == "/new · DE 1 new 900 — —"

    def test_movers_come_in_the_order_of_their_difference(self, visits, reader):
        visits.commit([visited("/", "US", 500), visited("/new", "DE", 50)], [])

        up = rows(reader.get(f"{self.ASKED}&order=-visits&movers=1"))
        down = rows(reader.get(f"{self.ASKED}&order=visits&movers=1"))

        assert up[0].startswith("/ · US 1 ▲ 39 515 11 +504")
        assert up[1].startswith("/new · DE ")
        assert [row.split()[-1] for row in down[:5]] == ["0"] * 5

    def test_bars_mark_the_value_then(self, visits, reader):
        page = reader.get(f"{self.ASKED}&order=-visits").content.decode()

        assert page.count("<line ") == 10
        assert "A line marks the value then" in page

    def test_a_time_ago_is_a_batch(self, visits, reader):
        visits.conn.execute("UPDATE tidegauge.batch SET batch_time = batch_time - interval '8 days' WHERE txid = 1")

        assert "then: batch 1," in text(reader.get(f"{BY_PAGE}explore?than=7+days+ago&measures=visits"))
        assert "o batch at" in text(reader.get(f"{BY_PAGE}explore?than=5+weeks+ago"))


def test_where_history_is_off_the_page_says_what_it_costs_and_where_to_switch_it_on(visits, reader, admin_client):
    for _ in range(2):
        visits.commit([], [])
    asked = "/states/visits_by_country/explore?than=1"

    offer = text(admin_client.get(asked)).partition("This state keeps no history.")[2]

    assert re.search(
        r"At the present pace a changelog gets [\d,]+ rows a day, and takes about [\d,.]+ .B for the 7 days", offer
    )
    assert "/admin/states/state/visits_by_country/change/" in admin_client.get(asked).content.decode()
    assert "/admin/" not in reader.get(asked).content.decode()
    assert "This state keeps no history" not in text(reader.get(f"{BY_PAGE}explore?than=99"))


def test_a_chart_is_split_by_the_largest_values_and_the_rest(visits, reader):
    page = reader.get(f"{BY_HOUR}explore?split=country&measures=visits").content.decode()
    address = re.search(r'data-series-url="([^"]*)"', page)[1].replace("&amp;", "&")
    lines = re.findall(r'aria-hidden="true"></span>([^<]*)</li>', page)
    split = reader.get(address).json()
    whole = reader.get(f"{BY_HOUR}explore/series?measures=visits").json()

    assert lines == ["DE", "FR", "GB", "IT", "JP", "NL", "other"]
    sums = [sum(values) for values in zip(*split["series"].values(), strict=True)]
    assert sums == whole["series"]["visits"]
    assert split["times"] == whole["times"]


@pytest.mark.parametrize("asked", ["order=-visits", "group=country&order=-visits"])
def test_what_a_measure_orders_has_bars(visits, reader, asked):
    page = reader.get(f"{BY_PAGE}explore?{asked}")

    assert page.content.decode().count('<li id="top-') == 10
    assert "<line " not in page.content.decode()
