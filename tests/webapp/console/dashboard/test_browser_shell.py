"""The rail of dashboard and admin in a real browser: what is chosen in one holds in the other."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit

__all__ = ["flights", "page", "pytestmark", "visit"]

ADMIN_LIST = "/admin/states/batch/"


def choose_theme(page: Page, name: str) -> None:
    page.locator(".menu summary").click()
    page.get_by_role("radio", name=name).check()
    page.keyboard.press("Escape")


def ground(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


LIGHT, DARK = "rgb(245, 244, 239)", "rgb(8, 23, 28)"


def test_a_theme_that_was_chosen_holds_in_dashboard_and_admin(flights, page):
    page.emulate_media(color_scheme="light")
    page.goto("/")
    assert ground(page) == LIGHT

    choose_theme(page, "Dark")
    assert ground(page) == DARK
    expect(page.locator(".menu summary")).to_be_focused()
    page.goto(ADMIN_LIST)
    expect(page.locator("html.dark")).to_be_visible()
    assert ground(page) == DARK

    choose_theme(page, "Light")
    expect(page.locator("html.dark")).to_have_count(0)
    page.emulate_media(color_scheme="dark")
    page.goto("/login")
    page.goto("/")
    assert ground(page) == LIGHT

    choose_theme(page, "System")
    assert ground(page) == DARK


def test_another_tab_follows(flights, page):
    page.goto("/")
    other = page.context.new_page()
    other.goto(ADMIN_LIST)

    choose_theme(page, "Dark")

    expect(other.locator("html.dark")).to_be_visible()


def test_a_chart_follows_the_theme(flights, page):
    lines = "[...document.querySelectorAll('.u-axis')].length && document.querySelector('canvas').toDataURL()"
    page.emulate_media(color_scheme="light")
    page.goto("/pipelines/flights/")
    page.locator(".uplot canvas").first.wait_for()
    light = page.evaluate(lines)

    choose_theme(page, "Dark")

    page.wait_for_function(f"light => ({lines}) !== light", arg=light)


def test_the_key_of_the_search_can_be_switched_off(flights, page):
    dialog = page.locator("#search-dialog")
    page.goto("/")
    page.locator(".menu summary").click()
    page.get_by_role("checkbox", name="Search with the key").uncheck()

    for address in ("/", ADMIN_LIST):
        page.goto(address)
        expect(page.locator("#search-open kbd")).to_be_hidden()
        page.keyboard.press("/")
        expect(dialog).to_be_hidden()
        page.keyboard.press("Control+k")
        expect(dialog).to_be_visible()


def test_the_search_of_the_admin_finds_and_opens(flights, page):
    page.goto(ADMIN_LIST)
    page.keyboard.press("/")
    page.keyboard.type("totals")
    page.get_by_role("option", name=re.compile("^totals")).wait_for()

    page.keyboard.press("Enter")

    page.wait_for_url("**/states/totals/")


@pytest.mark.parametrize("width", [390, 1440])
def test_a_page_of_the_admin_that_fits_does_not_scroll(flights, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/auth/group/")

    assert page.evaluate("document.documentElement.scrollHeight") == 900


def test_times_of_the_admin_are_in_the_readers_zone(flights, visit):
    page = visit(timezone_id="Asia/Kolkata", locale="en-GB")
    page.goto(ADMIN_LIST)

    time = page.locator("#result_list time").first
    shown = time.evaluate("time => [time.textContent, new Date(time.dateTime).toLocaleTimeString('en-GB')]")

    assert shown[0].endswith(shown[1])
    assert "GMT+5:30" in page.locator("#zone").inner_text()
