"""What only a browser can tell: the page follows the batches, and its reader does not notice but by the figures."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from playwright.sync_api import Page, expect, sync_playwright
from psycopg.conninfo import make_conninfo

from state_backends.schema import tables
from state_backends.table import StateTable
from tests.webapp.flights import SPECS, Flights, flights_pipeline
from webapp.states import specs

CHROMIUM = Path("/usr/bin/chromium")
STATE = "/states/flights_by_carrier/"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no {CHROMIUM} on this machine"),
]


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """A pipeline that commits for good: the server sees it from connections of its own."""
    specs.forget()
    with psycopg.connect(_address(), autocommit=True) as conn, flights_pipeline(conn) as pipeline:
        pipeline.commit({(origin, f"C{n:02}"): 100 - n for n in range(30) for origin in ("EWR", "JFK")})
        pipeline.report("running", pending={"count": 0, "unit": "files", "oldest": None})
        yield pipeline
        for spec in SPECS:
            tables.drop(conn, StateTable(spec))
        conn.execute("DELETE FROM tidemark.pipeline")


def _address() -> str:
    held = connection.get_connection_params()
    return make_conninfo(
        **{name: held[name] for name in ("host", "port", "user", "password", "dbname") if name in held}
    )


@pytest.fixture
def page(live_server, admin_client, monkeypatch) -> Iterator[Page]:
    """A signed-in browser; what it was refused or logged as an error fails the test."""
    # Playwright keeps an event loop in this thread, in which Django would not query.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = browser.new_context(base_url=live_server.url)
        context.add_cookies([session])
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        browser.close()
    assert errors == []


def test_a_commit_shows_without_moving_the_reader(flights, page):
    page.goto(f"{STATE}?q=EWR")
    page.locator("#q").focus()
    page.evaluate("scrollTo(0, 300)")

    flights.commit({("EWR", "C07"): 5_000})

    row = page.get_by_role("row", name="EWR C07")
    expect(row).to_contain_text("5,093")
    assert page.evaluate("scrollY") == 300
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.locator(".entries tbody tr").count() == 25


def test_what_a_reader_types_searches_and_survives_commits(flights, page):
    page.goto(STATE)

    page.locator("#q").press_sequentially("c07")
    rows = page.locator(".entries tbody tr")
    expect(rows).to_have_count(2)
    flights.commit({("LGA", "C07"): 1})

    expect(rows).to_have_count(3)
    expect(page.locator("#q")).to_have_value("c07")
    assert page.url.endswith(f"{STATE}?q=c07")


def test_sorting_stays_and_the_way_back_leads_back(flights, page):
    page.goto(STATE)
    page.locator("#sort-flights").click()
    expect(page.locator("[aria-sort=descending]")).to_have_text("flights")

    flights.commit({("JFK", "C29"): 9_000})

    expect(page.locator(".entries tbody tr").first).to_contain_text("9,071")
    page.go_back()
    expect(page.locator("[aria-sort=ascending]")).to_have_text("origin, carrier")


def test_a_driver_that_dies_is_reported_at_once(flights, page):
    page.goto("/")
    expect(page.locator(".status")).to_have_text("running")

    flights.die()

    expect(page.locator(".status")).to_have_text("lost")
    expect(page.get_by_role("status")).to_have_text("flights: lost")


def test_a_paused_page_stands_still(flights, page):
    page.goto("/states/totals/")
    page.get_by_role("button", name="Live").click()
    flights.commit({("JFK", "C00"): 1})

    page.wait_for_timeout(1_500)

    expect(page.locator(".heroes dd")).to_have_text("5,130")
    page.get_by_role("button", name="Paused").click()
    expect(page.locator(".heroes dd")).to_have_text("5,131")


def test_no_page_is_wider_than_a_phone(flights, page):
    page.set_viewport_size({"width": 360, "height": 740})

    for address in ["/", "/pipelines/flights/", STATE, "/states/flights_by_hour/", "/states/totals/"]:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
