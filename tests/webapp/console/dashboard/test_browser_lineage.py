"""The graph of lineage in a real browser: followed by pointer and keyboard, scrolled inside its box on a phone."""

import pytest
from playwright.sync_api import expect

from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit
from tests.webapp.console.dashboard.test_lineage import INPUTS
from tidegauge.state_backends.schema.inputs import record_inputs

__all__ = ["flights", "page", "pytestmark", "visit"]


@pytest.fixture
def recorded(flights):
    record_inputs(flights.conn, INPUTS)


def box(page, name: str):
    return page.locator(".graph").get_by_role("link", name=name)


def highlighted(page) -> list[str]:
    return sorted(name.split(",")[0] for name in page.locator(".graph .followed a.on title").all_text_contents())


def test_what_a_box_is_computed_from_and_what_reads_it_is_highlighted(recorded, page):
    page.goto("/lineage")

    box(page, "totals, state").hover()
    assert highlighted(page) == ["flights", "flights_by_carrier", "flights_by_hour", "folder '/input'", "totals"]
    box(page, "flights_by_hour, state").hover()
    assert highlighted(page) == ["flights", "flights_by_carrier", "flights_by_hour", "folder '/input'", "totals"]
    page.get_by_role("heading", level=1).hover()
    assert highlighted(page) == []


def test_boxes_are_reached_and_opened_by_keyboard(recorded, page):
    page.goto("/lineage")

    page.locator(".graph").focus()
    for name in ("folder '/input', source", "flights, pipeline", "totals, state"):
        page.keyboard.press("Tab")
        expect(box(page, name)).to_be_focused()
    assert "totals" in highlighted(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("totals")


def test_a_link_skips_the_graph(recorded, page):
    page.goto("/lineage")

    page.get_by_role("link", name="Skip to the table").press("Enter")
    page.keyboard.press("Tab")

    expect(page.locator("section:has(#states) .scroll")).to_be_focused()


def test_on_a_phone_it_scrolls_in_its_box_to_what_the_filter_names(recorded, visit):
    page = visit(viewport={"width": 390, "height": 844})
    page.goto("/lineage?q=flights_by_hour")

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    panel, asked = page.locator(".graph").bounding_box(), box(page, "flights_by_hour, state").bounding_box()
    assert panel["x"] <= asked["x"]
    assert asked["x"] + asked["width"] <= panel["x"] + panel["width"]
    expect(box(page, "flights_by_hour, state")).to_have_attribute("aria-current", "true")
