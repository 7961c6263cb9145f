"""Charts over time in a real browser: drawn from the API, zoomed by dragging, kept by refreshes of the page."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit
from tests.webapp.flights import Flights

__all__ = ["flights", "page", "pytestmark", "visit"]

PIPELINE = "/pipelines/flights/"
# Where the line of a chart has pixels, as parts of the width of its range: the line's colour is the bluest one.
COLUMNS = """figure => {
  const canvas = figure.querySelector("canvas"), over = figure.querySelector(".u-over");
  const scale = canvas.width / canvas.clientWidth, { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const left = over.offsetLeft * scale, length = over.clientWidth * scale, columns = [];
  for (let x = Math.ceil(left); x < left + length; x += 1)
    for (let y = 0; y < over.clientHeight * scale; y += 1) {
      const at = 4 * (y * width + x), [red, green, blue, alpha] = data.slice(at, at + 4);
      if (alpha > 200 && blue > red + 60) { columns.push((x - left) / length); break; }
    }
  return columns;
}"""


@pytest.fixture
def paused(flights: Flights) -> Flights:
    """Batches each ten seconds, with a pause of ten minutes in the middle of the last half hour."""
    now = datetime.now(UTC)
    flights.conn.execute("UPDATE tidegauge.batch SET committed_at = committed_at - interval '2 h'")
    for n in range(60):
        batch = flights.commit({("JFK", "C00"): 100 + n})
        at = now - timedelta(seconds=10 * (60 - n) + (600 if n < 30 else 0))
        flights.conn.execute(
            "UPDATE tidegauge.batch SET started_at = %(at)s - interval '2 s', batch_time = %(at)s - interval '2 s', "
            "committed_at = %(at)s WHERE txid = %(txid)s",
            {"at": at, "txid": batch.txid},
        )
    return flights


def drawn(page: Page, name: str = "rate"):
    figure = page.locator(f"#chart-{name}")
    expect(figure.locator(".uplot")).to_be_visible()
    return figure


def test_a_pause_is_a_gap_in_the_line(paused, page):
    page.goto(f"{PIPELINE}?range=1h")

    columns = drawn(page).evaluate(COLUMNS)

    # Batches were committed from 20 to 15 minutes ago, and in the last five minutes.
    assert [place for place in columns if 0.66 < place < 0.75]
    assert not [place for place in columns if 0.77 < place < 0.9]
    assert [place for place in columns if place > 0.91]


def test_the_values_at_the_pointer_are_shown_with_their_unit(paused, page):
    page.goto(f"{PIPELINE}?range=15m")
    page.locator("#more-charts > summary").click()
    over = drawn(page, "duration").locator(".u-over")
    box = over.bounding_box()

    over.hover(position={"x": 0.95 * box["width"], "y": 40})

    expect(page.locator("#chart-duration .tip")).to_contain_text(re.compile(r"Longest\s*2 s.*Average\s*2 s"))
    expect(page.locator("#chart-rate .tip")).to_be_hidden()


def test_dragging_shows_the_dragged_range_under_an_address_of_its_own(paused, page):
    page.goto(f"{PIPELINE}?range=1h")
    box = drawn(page).locator(".u-over").bounding_box()

    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()

    page.wait_for_url(re.compile(r"\?from=\d{4}-.*Z&to=.*Z$"))
    expect(page.locator("#range-from")).to_be_visible()
    since, until = (
        datetime.fromisoformat(page.locator("#chart-rate").get_attribute(name)) for name in ("data-from", "data-to")
    )
    assert 840 < (until - since).total_seconds() < 960
    drawn(page)
    page.reload()
    assert page.locator("#chart-rate").get_attribute("data-from") == since.isoformat()


def test_the_fields_of_a_range_are_in_the_readers_time_zone(paused, visit):
    page = visit(timezone_id="Asia/Kolkata")
    page.goto(f"{PIPELINE}?from=2013-01-01T10:00:00Z&to=2013-01-01T11:00:00Z")

    expect(page.locator("#range-from")).to_have_value("2013-01-01T15:30")
    page.locator("#range-to").fill("2013-01-01T17:00:00")
    page.get_by_role("button", name="Show").click()

    page.wait_for_url(f"**{PIPELINE}?from=2013-01-01T10%3A00%3A00Z&to=2013-01-01T11%3A30%3A00Z")
    said, canvas = page.locator("#chart-rate .no-values"), page.locator("#chart-rate canvas")
    expect(said).to_have_text("No data in this range.")
    assert said.bounding_box()["y"] < canvas.bounding_box()["y"] + canvas.bounding_box()["height"] / 2


def test_a_refresh_keeps_the_chart_and_adds_the_new_batch(paused, page):
    page.goto(f"{PIPELINE}?range=15m")
    figure = drawn(page)
    figure.locator(".uplot").evaluate("chart => { chart.dataset.first = 'yes' }")
    figure.locator("summary").click()
    rows = figure.locator("tbody tr")
    expect(rows.first).to_be_visible()
    before = rows.count()

    paused.commit({("JFK", "C00"): 777})

    expect(page.locator(".figures dd").first).to_have_text("62")
    expect(rows).to_have_count(before + 1, timeout=20_000)
    expect(figure.locator(".uplot")).to_have_attribute("data-first", "yes")


def test_a_refresh_reads_the_newest_points_alone(paused, page):
    answers = []
    page.on("response", lambda response: answers.append(response) if "/series?" in response.url else None)
    page.goto(f"{PIPELINE}?range=15m")
    label = drawn(page).locator(".uplot")
    expect(label).to_have_attribute("aria-label", re.compile("points, the latest"))
    points = int(label.get_attribute("aria-label").split()[0])

    paused.commit({("JFK", "C00"): 777})

    expect(label).to_have_attribute("aria-label", re.compile(f"^{points + 1} points"), timeout=20_000)
    whole, *newest = (answer.json() for answer in answers)
    assert len(whole["times"]) == points
    assert all(len(each["times"]) <= points / 2 for each in newest)
    assert {each["step_seconds"] for each in newest} == {whole["step_seconds"]}


def test_a_replayed_batch_is_marked(paused, page):
    paused.conn.execute("UPDATE tidegauge.batch SET attempt = 2 WHERE txid = 50")

    page.goto(f"{PIPELINE}?range=1h")

    expect(drawn(page, "lag").locator(".replays")).to_have_text("Dashed: 1 replayed batch")


def test_a_click_on_a_point_opens_its_batch(paused, page):
    page.goto(f"{PIPELINE}?range=15m")
    over = drawn(page, "lag").locator(".u-over")
    box = over.bounding_box()

    over.click(position={"x": box["width"] - 1, "y": 40})

    page.wait_for_url(f"**{PIPELINE}batches/61")


def test_charts_below_are_drawn_in_their_size_once_they_are_opened(paused, page):
    page.goto(f"{PIPELINE}?range=15m")
    drawn(page)

    page.locator("#more-charts > summary").click()

    plot = drawn(page, "pending").locator(".u-over")
    page.wait_for_function("over => over.clientWidth > 250", arg=plot.element_handle())


def test_the_page_of_batches_has_their_durations(paused, page):
    page.goto(f"{PIPELINE}batches")

    expect(drawn(page, "duration").locator(".uplot")).to_have_accessible_name(re.compile("Longest: 2 s"))


def test_another_range_is_drawn_without_loading_the_page_again(paused, page):
    page.goto(PIPELINE)
    drawn(page)
    page.evaluate("window.isSame = true")

    page.locator("#range-24h").click()

    page.wait_for_url("**?range=24h")
    expect(page.locator("#range-24h")).to_have_attribute("aria-current", "true")
    expect(page.locator("#chart-rate .uplot")).to_have_attribute("aria-label", re.compile("points, the latest"))
    assert page.evaluate("window.isSame")


def test_a_series_that_cannot_be_read_says_so(paused, page):
    page.route("**/series?*", lambda route: route.fulfill(status=503))

    page.goto(PIPELINE)

    expect(page.locator("#chart-rate .no-values")).to_have_text("The series cannot be read right now.")


def test_the_newest_version_of_a_key_holds_until_now(flights, page):
    flights.commit({("EWR", "C00"): 1_000})
    flights.conn.execute(
        "UPDATE tidegauge_changelog.flights_by_carrier SET updated_at = now() - interval '40 min' * (3 - txid)"
    )

    page.goto('/states/flights_by_carrier/key?key=["EWR","C00"]&range=1h')

    # The older value is from before the range; the newer one is two thirds of it.
    figure = drawn(page, "value")
    expect(figure.locator(".uplot")).to_have_accessible_name("3 points, the latest: flights: 1,100")
    assert [place for place in figure.evaluate(COLUMNS) if 0.5 < place < 0.99]
