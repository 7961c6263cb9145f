"""What the first visit to a page costs in bytes: until it is painted, until it can be used, and for its charts.

Bytes are exact, and times depend on what else the machine does. So the first paint is bounded by the files that it
waits for: the page names them all, so it takes two round trips and the time of their bytes.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER

pytestmark = IN_A_BROWSER

# Those that an operator opens first.
PAGES = ["/", "/pipelines/flights/", "/states/flights_by_carrier/", "/states/flights_by_hour/", "/login"]

# Style sheets and the script of the theme, loaded beside each other after the page itself.
BLOCKING_BYTES = 14_000
FIRST_BYTES = 60_000
# Of these, uPlot has 22 kB.
LATE_BYTES = 36_000

LOADED = """() => {
    const names = [...document.querySelectorAll("meta[name^=late-]")].map(({ content }) => content);
    const late = names.map((name) => new URL(name, location).href);
    return [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
        .filter(({ initiatorType }) => initiatorType !== "fetch" && initiatorType !== "other").map((entry) => ({
            name: new URL(entry.name).pathname, bytes: entry.transferSize, began: entry.startTime,
            ended: entry.responseEnd, isBlocking: entry.renderBlockingStatus === "blocking",
            isLate: late.includes(entry.name),
        }));
}"""
FETCHED = """() => [...document.querySelectorAll("meta[name^=late-]")]
    .some(({ content }) => performance.getEntriesByName(new URL(content, location).href).length)"""
DRAWN = "() => [...document.querySelectorAll('.drawing')].every((drawing) => drawing.querySelector('.uplot'))"


@pytest.fixture
def page(lasting, web_process, admin_client, chromium) -> Iterator[Page]:
    """A page of a signed-in browser that has nothing stored."""
    context = chromium.new_context(base_url=web_process.url)
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": web_process.url}
    context.add_cookies([session])
    return context.new_page()


@pytest.mark.parametrize("path", PAGES)
def test_the_first_paint_waits_for_few_bytes_and_charts_come_after_it(page, path):
    if path == "/login":
        page.context.clear_cookies()
    page.goto(path)
    page.wait_for_function(FETCHED)
    page.wait_for_function(DRAWN)

    loaded = page.evaluate(LOADED)

    blocking, late = ([file for file in loaded if file[which]] for which in ("isBlocking", "isLate"))
    first = [file for file in loaded if not file["isLate"]]
    assert len(blocking) >= 3
    assert all(file["bytes"] > 0 for file in loaded)
    assert sum(file["bytes"] for file in blocking) < BLOCKING_BYTES
    assert sum(file["bytes"] for file in first) < FIRST_BYTES
    assert sum(file["bytes"] for file in late) < LATE_BYTES
    assert min(file["began"] for file in late) >= max(file["ended"] for file in blocking)
    assert any("uplot" in file["name"] for file in late) == (page.locator(".drawing").count() > 0)
