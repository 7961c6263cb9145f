"""Journeys by keyboard alone, from the search to the answer: nothing is clicked, and Tab reaches what is needed."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit
from tests.webapp.console.dashboard.test_browser_wide_states import visits
from tests.webapp.wide_states import hours
from tidegauge.state_backends.dead_letters.letters import DeadLetter

__all__ = ["flights", "page", "pytestmark", "visit", "visits"]

# More than any of these pages has controls between its top and what is looked for.
MOST_TABS = 120


def open_by_search(page: Page, text: str, name: str) -> None:
    """Open what the search finds first for a text. name: what that begins with."""
    page.keyboard.press("/")
    page.keyboard.type(text)
    expect(page.locator("#search-results")).to_have_attribute("data-text", text)
    expect(page.locator("#search-results").get_by_role("option").first).to_contain_text(name)
    page.keyboard.press("Enter")


def tab_to(page: Page, wanted: Locator) -> None:
    for _ in range(MOST_TABS):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {wanted}")


def press(page: Page, wanted: Locator, key: str = "Enter") -> None:
    tab_to(page, wanted)
    page.keyboard.press(key)


def test_an_analyst_compares_last_week_with_the_week_before(visits, page):
    visits.commit([], hours(datetime.now(UTC) - timedelta(days=7)))
    page.goto("/")

    open_by_search(page, "visits_by_hour", "visits_by_hour")
    press(page, page.get_by_role("navigation", name="State").get_by_role("link", name="Explore"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("explore")
    press(page, page.get_by_role("checkbox", name="country", exact=True), "Space")
    tab_to(page, page.get_by_label("Compare with"))
    page.keyboard.type("7 days ago")
    tab_to(page, page.get_by_label("Last", exact=True))
    page.keyboard.type("7 days")
    page.keyboard.press("Enter")

    expect(page.get_by_role("columnheader", name="change of visits")).to_be_visible()
    press(page, page.get_by_role("link", name="change of visits"))
    expect(page.get_by_role("columnheader", name="change of visits")).to_have_attribute("aria-sort", "descending")
    assert page.locator(".explored tbody tr").count() == 10


def test_an_owner_makes_an_api_key_and_calls_the_api_with_it(flights, page):
    page.goto("/keys")
    press(page, page.get_by_role("link", name="New API key"))
    tab_to(page, page.get_by_label("Name"))
    page.keyboard.type("nightly report")
    expect(page.locator("#scopes").get_by_role("checkbox").first).to_be_checked()
    press(page, page.get_by_role("button", name="Create API key"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Copy this secret now")
    secret = page.locator("#secret").inner_text()

    page.goto("/api/docs/look_up_state?state=flights_by_carrier")
    tab_to(page, page.get_by_role("textbox", name="Body"))
    page.keyboard.press("Control+a")
    page.keyboard.type('{"keys": [["JFK", "C07"]]}')
    tab_to(page, page.get_by_label("Run with an API key"))
    page.keyboard.type(secret)
    page.keyboard.press("Shift+Tab")
    press(page, page.get_by_role("button", name="Run"))

    answer = page.get_by_role("dialog", name="Response")
    expect(answer.get_by_role("status")).to_contain_text("200 OK")
    expect(answer.locator("pre")).to_contain_text('"flights": 93')
    page.keyboard.press("Escape")
    expect(answer).not_to_be_visible()


def test_an_operator_replays_dead_letters(flights, page):
    letters = [DeadLetter("day.json", "{", "not JSON", line, record={"line": "{"}) for line in range(1, 4)]
    flights.commit({("EWR", "C07"): 1}, letters=letters)
    page.goto("/")

    open_by_search(page, "replay flights", "Replay dead letters of flights")
    expect(page.get_by_role("heading", name="By reason")).to_be_visible()
    press(page, page.locator("main").get_by_role("link", name="Replay 3 letters: not JSON"))
    expect(page.locator(".effects tbody tr")).to_contain_text("3")
    press(page, page.locator("form.decision").get_by_role("button"))

    expect(page.locator("#replay")).to_contain_text("Last replay: 3 letters, requested by admin")
