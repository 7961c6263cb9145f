"""The demo in a browser: as a newcomer, a reader, an analyst, an operator, on a phone; stopping and restarting it."""

import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from docs import screenshots

pytestmark = [pytest.mark.browser, pytest.mark.spark]

TIMEOUT_MS = 60_000

# While the demo processes its input, pages are slow on a small machine.
expect.set_options(timeout=20_000)


# The demo's input is all there from the start, so its lag grows while it is counted.
GOES_ON = re.compile("caught up|catching up|falling behind")

COMMITTED = "Number(document.querySelector('#pipeline-flights [data-label=Txid]').innerText.replaceAll(',', ''))"


def committed_txid(page: Page) -> int:
    return page.evaluate(COMMITTED)


def test_the_overview_follows_commits(page, demo):
    demo.wait_for_batch(1)
    page.goto("/")
    first = committed_txid(page)
    page.evaluate("window.untouched = true")

    page.wait_for_function(f"before => ({COMMITTED}) > before", arg=first, timeout=TIMEOUT_MS)

    assert page.evaluate("window.untouched"), "the page was reloaded instead of refreshed in place"
    assert committed_txid(page) > first
    expect(page.locator("#pipeline-flights .status")).to_have_text(GOES_ON)


def test_a_reader_finds_a_value_its_history_and_downloads_the_state(page, demo):
    demo.wait_for_batch(3)
    page.get_by_role("link", name="States", exact=True).click()
    page.get_by_role("link", name="flights_by_carrier").click()
    page.get_by_role("searchbox").fill("AA")
    rows = page.locator("table.entries tbody tr")
    expect(rows.filter(has_not_text="AA")).to_have_count(0)
    rows.filter(has_text="JFK").get_by_role("link", name="JFK").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("JFK · AA")
    versions = page.locator("table.versions tbody tr")
    expect(versions.nth(1)).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.locator("#chart-value .uplot")).to_be_visible()
    versions.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Batch ")

    page.get_by_role("link", name="flights_by_carrier").click()
    page.get_by_label("One key per line").fill('JFK,AA\nEWR\tUA\nLGA,nothing\n["JFK"]')
    page.get_by_role("button", name="Look up").click()
    for status in ("2 found", "1 missing", "1 invalid"):
        expect(page.get_by_text(status)).to_be_visible()

    page.locator(".breadcrumb").get_by_role("link", name="flights_by_carrier").click()
    with page.expect_download() as taken:
        page.get_by_role("link", name="CSV").click()
    lines = Path(taken.value.path()).read_text().splitlines()
    assert lines[0] == "origin,carrier,flights,mean_delay,largest_delay"
    assert len(lines) > 25


def test_a_newcomer_sees_what_runs_what_the_words_mean_and_finds_a_key(page, demo):
    demo.wait_for_batch(3)
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 pipelines")
    page.get_by_text("What txid, lag and opaque mean").click()
    expect(page.get_by_text("all values with the same txid became visible at once")).to_be_visible()

    page.locator("#pipeline-aircraft").get_by_role("link", name="aircraft").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("aircraft")
    expect(page.locator("#chart-rate .uplot")).to_be_visible()
    page.get_by_role("navigation", name="Pipeline").get_by_role("link", name="States & lineage").click()
    expect(page.get_by_role("heading", name="Lineage", exact=True)).to_be_visible()

    page.keyboard.press("/")
    page.get_by_role("combobox", name="Search").fill("flights_by_carrier JFK,AA")
    expect(page.locator("#search-results").get_by_role("option").first).to_contain_text("AA")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("JFK · AA")


def test_an_analyst_groups_orders_runs_the_request_and_compares_keys(page, demo):
    demo.wait_for_batch(3)
    page.goto("/states/flights_by_hour/")
    page.get_by_role("navigation", name="State").get_by_role("link", name="Explore").click()
    page.get_by_role("checkbox", name="origin", exact=True).check()
    page.get_by_label("Order").select_option(label="flights, largest first")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".explored tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("dialog", name="Response").get_by_role("status")).to_contain_text("200 OK")
    page.keyboard.press("Escape")

    page.goto("/states/flights_by_carrier/explore")
    for key in ('["JFK","AA"]', '["EWR","UA"]'):
        page.get_by_role("checkbox", name=f"Compare {key}").check()
    page.get_by_role("button", name="Compare ticked keys").click()
    expect(page.locator("#chart-column-0 .uplot")).to_be_visible()
    # The last batch of now, because another journey may have removed what the changelog had of the first ones.
    last = demo.committed()
    demo.wait_for_batch(last + 1)
    page.get_by_label("Compared with").fill(str(last))
    page.get_by_role("button", name="Show", exact=True).first.click()
    expect(page.locator(".compared tbody td").first).to_contain_text("before")


def test_an_operator_pauses_resumes_compacts_and_cancels(page, demo):
    demo.wait_for_batch(3)
    page.goto("/pipelines/flights/")
    page.get_by_role("button", name="Pause pipeline").click()
    expect(page.locator(".headline .status")).to_have_text("paused", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Resume pipeline").click()
    expect(page.locator(".headline .status")).to_have_text(GOES_ON, timeout=TIMEOUT_MS)

    page.get_by_role("link", name="Maintenance").click()
    page.get_by_role("link", name="Compact flights_by_carrier").click()
    expect(page.get_by_role("row", name="flights_by_carrier")).to_contain_text("entries of its changelog")
    page.get_by_role("button", name="Compact").click()
    expect(page.locator(".headline .status")).to_have_text("done", timeout=TIMEOUT_MS)
    figures = page.get_by_role("region", name="Before and after").locator("tr", has_text="changelog rows")
    before, after = (int(figures.locator("td").nth(n).inner_text().replace(",", "")) for n in (0, 1))
    assert after < before

    with stopped(worker_pid(page)):
        page.get_by_role("link", name="Maintenance").first.click()
        page.get_by_role("link", name="Compact routes").click()
        page.get_by_role("button", name="Compact").click()
        expect(page.locator(".headline .status")).to_have_text("queued")
        page.get_by_role("button", name="Cancel run").click()
        expect(page.locator(".headline .status")).to_have_text("cancelled")
    page.get_by_role("link", name="Maintenance").first.click()
    expect(page.locator("table.runs tbody tr").first).to_contain_text("cancelled")


def worker_pid(page: Page) -> int:
    page.goto("/")
    page.locator("#services summary").click()
    return int(page.locator("tr", has=page.get_by_role("rowheader", name="worker")).locator("td").nth(3).inner_text())


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, such as a worker that should not start a run."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_every_page_fits_a_phone_in_dark_mode(phone, demo):
    demo.wait_for_batch(3)
    assert phone.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    red, green, blue = phone.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(red, green, blue) < 64

    for address in PAGES:
        phone.goto(address)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, address
        assert phone.evaluate(TOO_SMALL) == [], address

    phone.goto("/")
    tabs = phone.get_by_role("navigation", name="Main")
    for name in ("Maintenance", "API keys"):
        tabs.get_by_text("More").tap()
        tabs.get_by_role("link", name=name).tap()
        expect(tabs.locator("[aria-current=page]")).to_have_text(name)
    for name in ("Alerts", "Explore", "Health", "States"):
        tabs.get_by_role("link", name=name).tap()
        expect(tabs.locator("[aria-current=page]")).to_contain_text(name)
    phone.locator("#state-routes").get_by_role("link").first.tap()
    phone.get_by_role("searchbox").fill("LAX")
    expect(phone.locator("table.entries tbody tr").first).to_contain_text("LAX")


PAGES = [
    "/",
    "/pipelines/",
    "/explore",
    "/pipelines/flights/",
    "/pipelines/flights/states",
    "/pipelines/flights/api",
    "/pipelines/flights/batches",
    "/pipelines/flights/batches/1",
    "/pipelines/flights/dead-letters",
    "/states/flights_by_carrier/",
    "/states/flights_by_carrier/schema",
    "/states/flights_by_carrier/api",
    "/states/flights_by_carrier/maintenance",
    "/states/totals/",
    "/states/delays_by_day/explore",
    "/lineage",
    "/pipelines/aircraft/dead-letters",
    '/states/flights_by_carrier/key?key=["JFK","AA"]',
    "/maintenance",
    "/keys",
]

# Controls too small for a thumb; a label is part of its control. Exempt are links and boxes in text and tables.
TOO_SMALL = """() => [...document.querySelectorAll(
        ".rail a, .rail button, .tabs a, .tabs summary, main button, main input, main select, main textarea, " +
        ".pages a, .choices a")]
    .filter((target) => target.type !== "hidden" && target.offsetParent && getComputedStyle(target).clipPath === "none")
    .filter((target) => target.type !== "checkbox" || !target.closest("table"))
    .map((target) => target.closest("label") || target)
    .filter((target) => target.getBoundingClientRect().height < 32 || target.getBoundingClientRect().width < 24)
    .map((target) => target.outerHTML.slice(0, 120))"""


def test_the_screenshots_of_the_readme_can_be_taken_again(browser, demo, tmp_path):
    demo.wait_for_batch(3)
    taken = screenshots.take(demo.access(), tmp_path, browser)

    assert [path.name for path in taken] == [shot.file_name for shot in screenshots.SHOTS]
    for path, shot in zip(taken, screenshots.SHOTS, strict=True):
        assert size_of(path) == (shot.size["width"], shot.size["height"])
        assert 10_000 < path.stat().st_size < 200_000


def test_the_readme_has_the_screenshots_that_the_script_takes():
    kept = {path.name for path in screenshots.IMAGES.glob("*.png")}

    assert kept == {shot.file_name for shot in screenshots.SHOTS}
    assert all(path.stat().st_size < 200_000 for path in screenshots.IMAGES.glob("*.png"))


def size_of(path: Path) -> tuple[int, int]:
    """Width and height, from the header of a PNG."""
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return struct.unpack(">II", header[16:24])


def test_the_printed_curl_line_works(demo):
    demo.wait_for_batch(1)
    printed = demo.printed()
    command = printed[printed.index("curl -fsS") :].partition("\n\n")[0]

    response = json.loads(subprocess.run(command, shell=True, capture_output=True, check=True).stdout)  # noqa: S602

    assert response["state"] == "routes"
    assert [result["status"] for result in response["results"]] == ["found", "found"]


def test_a_compaction_started_from_the_admin_runs_and_shows_what_it_did(page, demo):
    demo.wait_for_batch(5)
    page.goto("/admin/states/state/")
    page.locator("tr", has_text="flights_by_carrier").locator("input[name=_selected_action]").check()
    page.locator("select[name=action]").select_option("compact")
    page.locator("button[name=index]").click()
    page.locator("form:has([name=confirmed]) button[type=submit]").click()

    page.wait_for_url("**/admin/states/maintenancerun/*/change/", timeout=TIMEOUT_MS)
    expect(page.get_by_text("done", exact=True).first).to_be_visible(timeout=TIMEOUT_MS)

    run = demo.get(f"/api/v1/maintenance/{page.url.rstrip('/').split('/')[-2]}")
    assert (run["kind"], run["state"], run["status"]) == ("compaction", "flights_by_carrier", "done")
    assert run["after"]["changelog_rows"] < run["before"]["changelog_rows"]


def test_ctrl_c_stops_everything_and_the_next_run_continues_from_there(demo):
    demo.wait_for_batch(3)

    code = demo.stop()
    left = subprocess.run(["/usr/bin/pgrep", "-f", str(demo.home)], capture_output=True, text=True).stdout.split()
    printed = demo.printed()
    access = demo.access()
    demo.start()
    first = demo.committed()

    assert code == 0
    assert left == []
    assert printed.endswith("stopped.\n")
    assert "Traceback" not in printed
    assert first >= 3
    assert demo.access() == access
    demo.wait_for_batch(first + 1)
