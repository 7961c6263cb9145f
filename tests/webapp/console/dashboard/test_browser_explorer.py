"""The explorer in a real browser: its form, its columns, and a table that keeps its keys in sight."""

from urllib.parse import unquote

from playwright.sync_api import expect

from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit

__all__ = ["flights", "page", "pytestmark", "visit"]

EXPLORE = "/states/flights_by_carrier/explore"
# Where an element is in the table's panel. Both boxes are read at once, because the page may move in between.
FROM_CORNER = """(selector) => {
    const panel = document.querySelector(".panel.wide").getBoundingClientRect();
    const box = document.querySelector(selector).getBoundingClientRect();
    return {left: box.left - panel.left, top: box.top - panel.top};
}"""


def test_conditions_columns_and_order_are_chosen_on_the_page(flights, page):
    page.goto(EXPLORE)
    page.get_by_label("Filter").fill("flights>90")
    page.locator("#chooser summary").click()
    page.get_by_label("mean_delay").uncheck()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("columnheader", name="mean_delay")).to_have_count(0)
    page.get_by_label("and", exact=True).fill("carrier=C03")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".explored tbody tr")).to_have_count(2)
    page.get_by_role("link", name="max_delay").click()

    expect(page.get_by_label("Order")).to_have_value("-max_delay")
    address = unquote(page.url)
    assert "where=flights>90&where=carrier=C03&order=-max_delay" in address
    assert address.endswith("measures=flights,max_delay")
    page.reload()
    expect(page.locator(".explored tbody tr")).to_have_count(2)


def test_a_refresh_leaves_boxes_that_were_ticked_as_they_are(flights, page):
    page.goto(EXPLORE)
    page.locator("#chooser summary").click()
    page.get_by_label("max_delay").uncheck()

    flights.commit({("EWR", "C00"): 7_000})

    expect(page.get_by_role("row", name="EWR · C00")).to_contain_text("7,100")
    expect(page.get_by_label("max_delay")).not_to_be_checked()


def test_keys_and_headings_stay_in_sight(flights, visit):
    page = visit(viewport={"width": 390, "height": 700})
    page.goto(f"{EXPLORE}?limit=100")
    page.locator(".panel.wide").evaluate("panel => panel.scrollTo(200, 600)")

    heading = page.evaluate(FROM_CORNER, ".explored thead th")
    key = page.evaluate(FROM_CORNER, ".explored tbody tr:nth-child(30) th")
    assert 0 <= heading["top"] < 3
    assert 0 <= heading["left"] < 3
    assert 0 <= key["left"] < 3
    assert 0 < key["top"] < 500  # it has scrolled with its row, into sight


def test_ticked_keys_are_compared_and_one_is_taken_out_again(flights, page):
    flights.commit({("EWR", "C01"): 500})
    page.goto(f"{EXPLORE}?measures=flights")
    for carrier in ("C00", "C01", "C02"):
        page.get_by_role("checkbox", name=f'Compare ["EWR","{carrier}"]').check()
    page.get_by_role("button", name="Compare ticked keys").click()

    expect(page.locator("#chart-column-0 .uplot")).to_be_visible()
    expect(page.locator("#chart-column-0 .legend li")).to_have_text(["EWR · C00", "EWR · C01", "EWR · C02"])
    page.get_by_role("checkbox", name='["EWR", "C00"]').uncheck()
    page.get_by_label("Compared with").fill("1")
    page.get_by_role("button", name="Show", exact=True).first.click()

    expect(page.locator(".compared tbody td")).to_have_text(
        ["599 before 99, +500 (+505.1 %)", "98 before 98, unchanged"]
    )
    expect(page.locator("#chart-column-0 .legend li")).to_have_text(["EWR · C01", "EWR · C02"])
    expect(page.get_by_role("checkbox", name='["EWR", "C02"]')).to_be_checked()
    page.get_by_role("link", name="24 h").click()
    page.wait_for_url("**range=24h")
    expect(page.locator("#chart-column-0 .uplot")).to_be_visible()


def test_the_keys_of_a_group_are_shown_ungrouped(flights, page):
    page.goto(EXPLORE)
    page.get_by_role("checkbox", name="origin", exact=True).check()
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("link", name="JFK").click()

    expect(page.get_by_role("row", name="JFK · C00")).to_be_visible()
    expect(page.get_by_role("checkbox", name="origin", exact=True)).not_to_be_checked()


def test_a_state_keyed_by_a_time_draws_its_series_and_follows_the_question(flights, page):
    page.goto("/states/flights_by_hour/explore?group=origin")
    expect(page.locator("figure")).to_have_count(0)
    page.get_by_role("checkbox", name="origin", exact=True).uncheck()
    page.get_by_role("button", name="Show", exact=True).click()

    expect(page.locator("#chart-by-time-0 .uplot")).to_be_visible()
    expect(page.get_by_role("img", name="points, the latest: flights: 2")).to_be_visible()
    page.get_by_label("Filter").fill("origin=EWR")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("img", name="points, the latest: flights: 1")).to_be_visible()


def test_grouped_by_the_time_alone_the_charts_need_no_further_answer(flights, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/explore/series" in request.url else None)

    page.goto("/states/flights_by_hour/explore?group=hour")

    expect(page.get_by_role("img", name="points, the latest: flights: 2")).to_be_visible()
    assert asked == []


def test_why_a_series_is_refused_stands_in_its_chart(flights, page, settings):
    settings.TIDEGAUGE_GROUP_MAX_KEYS = 1
    page.goto("/states/flights_by_hour/explore")

    expect(page.locator("#chart-by-time-0")).to_contain_text("grouping reads and folds all rows of a range")


def test_a_chart_that_was_refused_for_too_many_searches_asks_again(flights, page, settings):
    settings.TIDEGAUGE_SEARCHES = 0
    page.goto("/states/flights_by_hour/explore")
    expect(page.locator("#chart-by-time-0")).to_contain_text("0 searches running")

    settings.TIDEGAUGE_SEARCHES = 16
    expect(page.locator("#chart-by-time-0 .uplot")).to_be_visible()
    expect(page.locator("#chart-by-time-0")).not_to_contain_text("searches running")
