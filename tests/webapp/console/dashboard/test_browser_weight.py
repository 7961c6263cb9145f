"""What the first visit to a page costs in bytes: until it is painted, until it can be used, and for its charts.

Bytes are exact, and times depend on what else the machine does. So the first paint is bounded by what it waits for: the
page itself at a first visit, which takes one round trip and the time of its bytes, and nothing over the wire later.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER

pytestmark = IN_A_BROWSER

# Those that an operator opens first.
PAGES = ["/", "/pipelines/flights/", "/states/flights_by_carrier/", "/states/flights_by_hour/", "/login"]

# The page with its style sheets.
PAINT_BYTES = 24_000
FIRST_BYTES = 60_000
# Loaded after the paint: of these, uPlot has 22 kB, and the typefaces 30 kB.
LATE_BYTES = 36_000
FONT_BYTES = 31_000

LOADED = """() => {
    const names = [...document.querySelectorAll("meta[name^=late-]")].map(({ content }) => content);
    const late = names.map((name) => new URL(name, location).href);
    const [page] = performance.getEntriesByType("navigation");
    const others = ["fetch", "other"];
    const loaded = performance.getEntriesByType("resource").filter((entry) => !others.includes(entry.initiatorType));
    return [page, ...loaded].map((entry) => ({
        name: new URL(entry.name).pathname, bytes: entry.transferSize, began: entry.startTime,
        isBlocking: entry.renderBlockingStatus === "blocking", isPage: entry === page,
        isFont: entry.name.endsWith(".woff2"), isLate: late.includes(entry.name),
    }));
}"""
PAINTED = "performance.getEntriesByName('first-paint')[0].startTime"
TYPESET = "() => performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('.woff2'))"
DRAWN = "() => [...document.querySelectorAll('.drawing')].every((drawing) => drawing.querySelector('.uplot'))"
STORED = "() => document.cookie.includes('tidegauge_styles=')"


@pytest.fixture
def page(lasting, web_process, admin_client, chromium) -> Iterator[Page]:
    """A page of a signed-in browser that has nothing stored."""
    context = chromium.new_context(base_url=web_process.url)
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": web_process.url}
    context.add_cookies([session])
    return context.new_page()


@pytest.mark.parametrize("path", PAGES)
def test_the_first_paint_waits_for_the_page_alone_and_typefaces_and_charts_come_after_it(page, path):
    if path == "/login":
        page.context.clear_cookies()
    page.goto(path)
    page.wait_for_function(TYPESET)
    page.wait_for_function(DRAWN)
    page.evaluate("document.fonts.ready.then(() => null)")

    loaded, painted = page.evaluate(LOADED), page.evaluate(PAINTED)

    fonts = [file for file in loaded if file["isFont"]]
    late = [file for file in loaded if file["isLate"]]
    first = [file for file in loaded if not file["isLate"] and not file["isFont"]]
    assert [file["name"] for file in loaded if file["isBlocking"] and not file["isPage"]] == []
    assert all(file["bytes"] > 0 for file in loaded)
    assert next(file["bytes"] for file in loaded if file["isPage"]) < PAINT_BYTES
    assert sum(file["bytes"] for file in first) < FIRST_BYTES
    assert sum(file["bytes"] for file in late) < LATE_BYTES
    assert 0 < sum(file["bytes"] for file in fonts) < FONT_BYTES
    assert min(file["began"] for file in [*late, *fonts]) >= painted
    assert any("uplot" in file["name"] for file in late) == (page.locator(".drawing").count() > 0)


def test_later_pages_link_to_style_sheets_that_the_browser_has(page):
    page.goto("/login")
    page.wait_for_function(STORED)

    page.goto("/")

    assert page.locator("head style").count() == 0
    blocking = [file for file in page.evaluate(LOADED) if file["isBlocking"] and not file["isPage"]]
    assert len(blocking) >= 4
    assert [
        file["name"]
        for file in blocking
        if file["bytes"] and file["name"].endswith(("shell.css", "tidegauge.css", "health.css"))
    ] == []
