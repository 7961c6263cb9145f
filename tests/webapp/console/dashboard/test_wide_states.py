"""Pages of states with many measures, and of states with a time in their key."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.console.dashboard.page_text import following, keys, text
from tests.webapp.wide_states import COUNTRIES, visits_pipeline

NOW = datetime(2026, 11, 23, 10, 20, tzinfo=UTC)
BY_PAGE, BY_HOUR = "/states/visits_by_page/", "/states/visits_by_hour/"


@pytest.fixture
def visits(connection):
    with visits_pipeline(connection, NOW) as pipeline:
        yield pipeline


def headings(response) -> list[str]:
    """The headings of the measures in the table of entries."""
    table = response.content.decode().partition('class="explored entries"')[2].partition("</thead>")[0]
    return re.findall(r'<th scope="col" class="figure"[^>]*>(?:<a[^>]*>)?([^<]*)<', table)


def test_of_many_measures_the_first_seven_are_shown_until_others_are_chosen(visits, reader):
    first, chosen = reader.get(BY_PAGE), reader.get(f"{BY_PAGE}?measures=seconds_of_phase_19&measures=visits")
    every = reader.get(f"{BY_PAGE}?measures=" + "&measures=".join(["visits", *_phases(1, 20)]))

    assert headings(first) == ["visits", *_phases(1, 7), "txid", "updated"]
    assert "Columns (7 of 20)" in text(first)
    assert headings(chosen) == ["visits", "seconds_of_phase_19", "txid", "updated"]
    assert headings(every) == ["visits", *_phases(1, 20), "txid", "updated"]
    # The next page and another order keep the columns.
    assert "measures=visits%2Cseconds_of_phase_19" in following(chosen)


def _phases(first: int, end: int) -> list[str]:
    return [f"seconds_of_phase_{place}" for place in range(first, end)]


def test_the_measure_that_sorts_is_shown_though_it_is_not_chosen(visits, reader):
    page = reader.get(f"{BY_PAGE}?order=-seconds_of_phase_19&measures=visits")

    assert headings(page) == ["visits", "seconds_of_phase_19", "txid", "updated"]


def test_few_measures_need_no_chooser(filled, reader):
    assert "Columns" not in text(reader.get("/states/flights_by_carrier/"))


class TestTimeInTheKey:
    def test_the_newest_entries_come_first_and_the_heading_turns_them_round(self, visits, reader):
        newest, oldest = reader.get(BY_HOUR), reader.get(f"{BY_HOUR}?order=hour")

        assert keys(newest)[0] == f'["2026-11-23T10:00:00+00:00", "{COUNTRIES[0]}"]'
        assert keys(oldest)[0] == f'["2026-11-21T11:00:00+00:00", "{COUNTRIES[0]}"]'
        assert 'id="sort-key" href="/states/visits_by_hour/?order=hour"' in newest.content.decode()
        assert 'id="sort-key" href="/states/visits_by_hour/"' in oldest.content.decode().replace('/?"', '/"')

    def test_its_pages_have_every_key_once(self, visits, reader):
        shown, address = [], BY_HOUR
        while address:
            page = reader.get(address)
            shown += keys(page)
            address = following(page)

        assert len(shown) == len(set(shown)) == 480
        hours = [key.split('"')[1] for key in shown]
        assert hours == sorted(hours, reverse=True)

    def test_charts_take_the_place_of_the_top_keys(self, visits, reader):
        page = reader.get(BY_HOUR)

        assert "Top keys" not in text(page)
        assert page.content.decode().count("data-series-url") == 3
        assert "Top keys" in text(reader.get(BY_PAGE))

    def test_the_explorer_shows_the_newest_first_too(self, visits, reader):
        keys = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\dZ)(?: · (\w\w))?")
        entries, groups = (text(reader.get(f"{BY_HOUR}explore?{asked}")) for asked in ("", "group=hour"))

        assert keys.findall(entries)[:2] == [("2026-11-23 10:00Z", "DE"), ("2026-11-23 10:00Z", "FR")]
        assert keys.findall(groups)[:2] == [("2026-11-23 10:00Z", ""), ("2026-11-23 09:00Z", "")]

    def test_too_many_keys_to_sort_by_a_time_come_in_key_order(self, filled, reader, settings):
        settings.TIDEGAUGE_SORT_MAX_KEYS = 1

        assert keys(reader.get("/states/flights_by_hour/?where=flights>0")) == [
            '["2013-01-01T10:00:00+00:00", "EWR"]',
            '["2013-01-01T10:00:00+00:00", "JFK"]',
            '["2013-01-01T11:00:00+00:00", "EWR"]',
        ]


class TestOpenStep:
    """The newest step of the charts is open while some of its events may not have been counted."""

    def is_open(self, reader, asked=""):
        return reader.get(f"{BY_HOUR}explore/series{asked}").json()["is_open"]

    def test_while_input_waits(self, visits, reader):
        visits.report(waiting=2)
        assert self.is_open(reader)

        visits.report(waiting=0)
        assert not self.is_open(reader)

    def test_until_the_watermark_has_passed_it(self, visits, reader):
        visits.report(waiting=0)

        self.reach(visits, NOW)
        assert self.is_open(reader)

        self.reach(visits, NOW + timedelta(minutes=40))
        assert not self.is_open(reader)
        assert not self.is_open(reader, "?as_of=2")

    def reach(self, visits, watermark):
        visits.conn.execute("UPDATE tidegauge.batch SET watermark = %s", [watermark])

    def test_as_of_a_batch_of_which_nothing_is_known(self, visits, reader):
        visits.report(waiting=0)

        assert self.is_open(reader, "?as_of=2")
