"""A visitor of the demo: sees the dashboard move, looks keys up, compacts a state, stops everything and comes back."""

import json
import subprocess

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.spark]

PATIENCE_MS = 60_000


COMMITTED = "Number(document.querySelector('[data-key=flights] .figures dd').innerText.replaceAll(',', ''))"


def committed_txid(page: Page) -> int:
    return page.evaluate(COMMITTED)


def test_the_overview_moves_while_batches_commit(page, demo):
    demo.wait_for_batch(1)
    page.goto("/")
    first = committed_txid(page)
    page.evaluate("window.untouched = true")

    page.wait_for_function(f"before => ({COMMITTED}) > before", arg=first, timeout=PATIENCE_MS)

    assert page.evaluate("window.untouched"), "the page was loaded anew instead of refreshed in place"
    assert committed_txid(page) > first
    expect(page.locator("[data-key=flights]")).to_contain_text("exactly once")


def test_a_state_page_shows_schema_leaders_and_entries_that_can_be_searched(page, demo):
    demo.wait_for_batch(2)
    page.goto("/states/routes/")

    expect(page.get_by_role("heading", level=1)).to_contain_text("routes")
    page.get_by_role("searchbox").fill("LAX")
    page.get_by_role("searchbox").press("Enter")

    rows = page.locator("table.entries tbody tr")
    expect(rows.filter(has_text="LAX").first).to_be_visible()
    expect(rows.filter(has_not_text="LAX")).to_have_count(0)


def test_the_printed_curl_line_works(demo):
    demo.wait_for_batch(1)
    said = demo.said()
    command = said[said.index("curl -s") : said.index("Ctrl-C stops everything")].strip()

    answer = json.loads(subprocess.run(command, shell=True, capture_output=True, check=True).stdout)  # noqa: S602

    assert answer["state"] == "routes"
    assert [result["status"] for result in answer["results"]] == ["found", "found"]


def test_a_compaction_started_from_the_admin_runs_and_shows_what_it_did(page, demo):
    demo.wait_for_batch(5)
    page.goto("/admin/states/state/")
    page.locator("tr", has_text="flights_by_carrier").locator("input[name=_selected_action]").check()
    page.locator("select[name=action]").select_option(label="Compact")
    page.locator("button[name=index]").click()

    page.wait_for_url("**/admin/states/maintenancerun/*/change/", timeout=PATIENCE_MS)
    expect(page.get_by_text("done", exact=True).first).to_be_visible(timeout=PATIENCE_MS)

    run = demo.get(f"/api/v1/maintenance/{page.url.rstrip('/').split('/')[-2]}")
    assert (run["kind"], run["state"], run["status"]) == ("compaction", "flights_by_carrier", "done")
    assert run["after"]["changelog_rows"] < run["before"]["changelog_rows"]


def test_ctrl_c_stops_everything_and_the_next_run_goes_on_from_there(demo):
    demo.wait_for_batch(3)

    code = demo.stop()
    left = subprocess.run(["/usr/bin/pgrep", "-f", str(demo.home)], capture_output=True, text=True).stdout.split()
    said = demo.said()
    access = demo.access()
    demo.start()
    first = demo.committed()

    assert code == 0
    assert left == []
    assert said.endswith("stopped.\n")
    assert "Traceback" not in said
    assert first >= 3
    assert demo.access() == access
    demo.wait_for_batch(first + 1)
