"""Wide states in a real browser: keys stay whole and in sight, and long lists of choices are searched."""

from datetime import UTC, datetime

import psycopg
import pytest
from playwright.sync_api import expect

from tests.webapp.console.dashboard.test_browser import _address, page, pytestmark, visit
from tests.webapp.wide_states import visits_pipeline
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.catalog import readers

__all__ = ["page", "pytestmark", "visit"]

BY_PAGE, BY_HOUR = "/states/visits_by_page/", "/states/visits_by_hour/"
# Of each column of a chart, where its line has pixels, as parts of the chart's height from its top.
LINE = """figure => {
  const canvas = figure.querySelector("canvas"), over = figure.querySelector(".u-over");
  const scale = canvas.width / canvas.clientWidth, length = over.clientHeight * scale, found = [];
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const left = Math.ceil(over.offsetLeft * scale), top = Math.ceil(over.offsetTop * scale);
  for (let x = left; x < left + over.clientWidth * scale; x += 1) {
    const rows = [];
    for (let y = top; y < top + length; y += 1) {
      const at = 4 * (y * canvas.width + x);
      if (data[at + 3] > 200 && data[at + 2] > data[at] + 60) rows.push((y - top) / length);
    }
    if (rows.length) found.push(rows);
  }
  return found;
}"""
LONGEST = "Math.max(...[...document.querySelectorAll('.entries tbody tr')].map((row) => row.offsetHeight))"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture
def visits(transactional_db):
    readers.clear_cache()
    with psycopg.connect(_address(), autocommit=True) as conn, visits_pipeline(conn, datetime.now(UTC)) as pipeline:
        yield pipeline


@pytest.mark.parametrize("width", [390, 1280])
def test_of_twenty_measures_keys_stay_on_one_line_and_in_sight(visits, visit, width):
    page = visit(viewport={"width": width, "height": 900})
    every = "&".join(f"measures=seconds_of_phase_{place}" for place in range(1, 20))
    page.goto(f"{BY_PAGE}?measures=visits&{every}")
    box = page.locator(".panel.wide")

    box.evaluate("panel => panel.scrollTo(1500, 0)")

    assert page.evaluate(LONGEST) < 2 * 21  # of one line
    assert page.evaluate(OVERFLOW) == 0
    assert box.evaluate("panel => panel.scrollLeft") == 1500
    key = page.locator(".entries tbody th").nth(3).bounding_box()
    assert abs(key["x"] - box.bounding_box()["x"]) < 3
    assert key["width"] < width * 0.75


def test_measures_are_found_in_the_chooser_and_those_that_are_hidden_stay_chosen(visits, page):
    page.goto(BY_PAGE)
    page.locator("#chooser summary").click()
    page.get_by_label("Find columns").fill("PHASE_19")
    expect(page.locator("#columns label:visible")).to_have_text(["seconds_of_phase_19"])
    page.get_by_label("seconds_of_phase_19").check()
    expect(page.locator(".chooser [role=status]")).to_have_text("8 of 20 selected")

    page.get_by_role("button", name="Search").last.click()

    expect(page.get_by_role("columnheader", name="seconds_of_phase_19")).to_be_visible()
    expect(page.locator(".entries thead th")).to_have_count(1 + 8 + 2)
    expect(page.get_by_label("Find columns")).to_have_value("PHASE_19")
    expect(page.locator("#columns label:visible")).to_have_count(1)


def test_a_new_api_key_chooses_among_hundreds_of_states_on_a_page_of_two_screens(visits, page):
    copies = (
        "INSERT INTO tidegauge.state SELECT (jsonb_populate_record(s, jsonb_build_object('name', 'state_' || n))).* "
    )
    visits.conn.execute(copies + "FROM tidegauge.state s, generate_series(1, 300) n WHERE s.name = 'visits_by_page'")
    page.goto("/keys/new")
    assert page.evaluate("document.documentElement.scrollHeight") < 1_800

    states = page.locator("#states input").count()
    assert states > 300
    page.get_by_label("Find states").fill("state_29")
    expect(page.locator("#states label:visible")).to_have_count(11)
    page.get_by_label("state_297").check()
    page.get_by_label("Find states").fill("by_hour")
    page.get_by_label("visits_by_hour").check()
    expect(page.locator("fieldset:has(#states) [role=status]")).to_have_text(f"2 of {states} selected")
    page.get_by_label("Name").fill("feed")
    page.get_by_role("button", name="Create API key").click()

    expect(page.get_by_role("heading", name="A first request")).to_be_visible()
    assert ApiKey.objects.get().states == ["state_297", "visits_by_hour"]


def test_sums_are_drawn_from_zero_and_the_open_hour_is_no_cliff(visits, page):
    page.goto(BY_HOUR)
    chart = page.locator("#chart-by-time-1")
    expect(chart.get_by_text("Dashed: not all events of this time are counted yet")).to_be_visible()

    line = chart.evaluate(LINE)

    # Between 2.00 and 2.04 billion bytes, and 10 million in the open hour, which no line leads down to.
    assert max(line[0]) < 0.2
    assert min(line[-1]) > 0.9
    assert max(max(rows) - min(rows) for rows in line if max(rows) < 0.5) < 0.1
    assert sum(min(rows) < 0.5 < max(rows) for rows in line) <= 2  # where both of its ends are in one column
    assert max(map(len, line)) < 12


def test_a_largest_value_is_drawn_over_the_range_of_its_values(visits, page):
    page.goto(BY_HOUR)
    expect(page.locator("#chart-by-time-2 .uplot")).to_be_visible()

    line = page.locator("#chart-by-time-2").evaluate(LINE)

    assert max(map(max, line)) - min(map(min, line)) > 0.7
