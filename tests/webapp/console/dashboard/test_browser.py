"""Live pages in a real browser: they follow the batches without disturbing the reader."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from playwright.sync_api import Locator, Page, expect
from psycopg.conninfo import make_conninfo

from tests.webapp.chromium import IN_A_BROWSER
from tests.webapp.flights import Flights, flights_pipeline
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.notify.alerts.models import Silence

STATE = "/states/flights_by_carrier/"

pytestmark = IN_A_BROWSER


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """A pipeline whose commits other connections see, such as those of the live server."""
    readers.clear_cache()
    with psycopg.connect(_address(), autocommit=True) as conn, flights_pipeline(conn) as pipeline:
        pipeline.commit({(origin, f"C{n:02}"): 100 - n for n in range(30) for origin in ("EWR", "JFK")})
        pipeline.report("running", pending={"count": 0, "unit": "files", "oldest": None})
        yield pipeline


def _address() -> str:
    held = connection.get_connection_params()
    return make_conninfo(
        **{name: held[name] for name in ("host", "port", "user", "password", "dbname") if name in held}
    )


@pytest.fixture
def visit(live_server, admin_client, chromium) -> Iterator[Callable[..., Page]]:
    """Opens a page of a signed-in browser; script errors and security policy violations fail the test."""
    visits: list[tuple[Page, list[str]]] = []

    def visit(**context: Any) -> Page:
        opened = chromium.new_context(base_url=live_server.url, **context)
        opened.add_cookies([session])
        errors: list[str] = []
        visits.append((opened.new_page(), errors))
        visits[-1][0].on("pageerror", lambda error: errors.append(str(error)))
        visits[-1][0].on("console", lambda said: errors.append(said.text) if "Security Policy" in said.text else None)
        return visits[-1][0]

    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    yield visit
    assert [errors for _, errors in visits if errors] == []


@pytest.fixture
def page(visit) -> Page:
    return visit()


@pytest.mark.core
def test_a_commit_shows_without_moving_the_reader(flights, page):
    page.goto(f"{STATE}?q=EWR")
    page.locator("#q").focus()
    page.evaluate("scrollTo(0, 300)")

    flights.commit({("EWR", "C07"): 5_000})

    row = page.get_by_role("row", name="EWR · C07")
    expect(row).to_contain_text("5,093")
    assert page.evaluate("scrollY") == 300
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.locator(".entries tbody tr").count() == 25


def test_typed_text_searches_and_survives_commits(flights, page):
    page.goto(STATE)

    page.locator("#q").press_sequentially("c07")
    rows = page.locator(".entries tbody tr")
    expect(rows).to_have_count(2)
    flights.commit({("LGA", "C07"): 1})

    expect(rows).to_have_count(3)
    expect(page.locator("#q")).to_have_value("c07")
    assert page.url.endswith(f"{STATE}?q=c07")


def test_sorting_survives_commits_and_back_undoes_it(flights, page):
    page.goto(STATE)
    page.locator("#sort-flights").click()
    expect(page.locator("[aria-sort=descending]")).to_have_text("flights")

    flights.commit({("JFK", "C29"): 9_000})

    expect(page.locator(".entries tbody tr").first).to_contain_text("9,071")
    page.go_back()
    expect(page.locator("[aria-sort=ascending]")).to_have_text("origin · carrier")


def test_a_driver_that_dies_is_reported_at_once(flights, page):
    page.goto("/")
    expect(page.locator("#pipeline-flights .status")).to_have_text("caught up")
    expect(page).to_have_title("Health · Tidegauge")

    flights.die()

    expect(page.locator("#pipeline-flights .status")).to_have_text("lost")
    expect(page.get_by_role("status")).to_have_text("flights: lost")
    expect(page.locator("#strip")).to_have_text("1 lost of 1 pipeline")
    expect(page).to_have_title("1 lost — Health · Tidegauge")


def test_a_page_that_is_cut_off_does_not_say_live(flights, page):
    page.goto("/")
    expect(page.get_by_role("button", name="Live")).to_be_visible()

    page.context.set_offline(True)

    expect(page.get_by_role("button", name="Disconnected")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("No response from the server. Retrying.")
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="Live")).to_be_visible()


def test_a_paused_page_does_not_refresh(flights, page):
    page.goto("/states/totals/")
    page.get_by_role("button", name="Live").click()
    flights.commit({("JFK", "C00"): 1})

    page.wait_for_timeout(1_500)

    expect(page.locator(".heroes dd")).to_have_text("5,130")
    page.get_by_role("button", name="Paused").click()
    expect(page.locator(".heroes dd")).to_have_text("5,131")


PAGES = [
    "/",
    "/pipelines/flights/",
    "/pipelines/flights/batches",
    "/pipelines/flights/batches/1",
    "/pipelines/flights/dead-letters",
    STATE,
    "/states/flights_by_hour/",
    "/states/totals/",
    f'{STATE}key?key=["EWR","C00"]',
    "/maintenance",
    "/keys",
    "/search?q=flights",
]


def test_no_page_is_wider_than_a_phone(flights, page):
    page.set_viewport_size({"width": 360, "height": 740})

    for address in PAGES:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


def test_a_wide_table_scrolls_in_its_own_box(flights, page):
    page.set_viewport_size({"width": 800, "height": 740})

    for address in PAGES:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 800, address


def test_the_table_of_pipelines_fits_a_small_laptop_whatever_it_says_about_a_status(flights, page):
    flights.commit({("JFK", "C00"): 1})
    before = json.dumps({"lag_seconds": 60, "pending": {"count": 100, "unit": "files"}})
    flights.conn.execute(
        "UPDATE tidegauge.batch SET metrics = %s, committed_at = now() - interval '9 min' + txid * interval '1 min'",
        [before],
    )
    oldest = (datetime.now(UTC) - timedelta(minutes=4)).isoformat()
    flights.report("running", pending={"count": 900, "unit": "files", "oldest": oldest})
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/pipelines/")

    expect(page.locator("#pipeline-flights .said")).to_have_attribute("title", re.compile("^behind 4 min, growing"))
    assert page.locator(".panel.scroll").evaluate("panel => panel.scrollWidth - panel.clientWidth") == 0


def test_times_are_shown_in_the_time_zone_of_the_reader(flights, visit):
    page = visit(timezone_id="Asia/Tokyo", locale="en-GB")
    page.goto("/pipelines/flights/batches/1")
    shown = page.locator(".facts time").first

    assert page.locator("#zone").inner_text() == "Asia/Tokyo (GMT+9)"
    hour = (int(re.search(r"T(\d\d):", shown.get_attribute("datetime"))[1]) + 9) % 24
    assert re.search(rf"\b{hour:02}:\d\d:\d\d$", shown.inner_text())


def test_without_scripts_search_sort_and_links_work_and_times_are_utc(flights, visit):
    page = visit(java_script_enabled=False)
    page.goto(STATE)
    page.locator("#q").fill("C0")
    page.get_by_role("button", name="Search").click()
    page.locator("#sort-flights").click()
    page.get_by_role("link", name="JFK · C00").first.click()

    assert page.get_by_role("heading", level=1).inner_text() == "JFK · C00"
    assert page.locator("#zone").inner_text() == "UTC"
    assert page.locator(".versions time").inner_text().endswith(" UTC")


def test_the_keyboard_reaches_every_control_and_shows_the_focus(flights, page):
    for address in ("/", STATE, "/maintenance"):
        page.goto(address)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"

        visited = set()
        for _ in range(200):
            page.keyboard.press("Tab")
            where = page.evaluate(FOCUSED)
            if where["body"]:
                break
            assert where["outlined"], where
            visited.add(where["text"])
        else:
            raise AssertionError(f"the keyboard is trapped on {address}")
        assert len(visited) >= 5


FOCUSED = """() => {
    const at = document.activeElement;
    return {
        body: at === document.body || at.className === "skip",
        outlined: getComputedStyle(at).outlineStyle !== "none",
        text: at.outerHTML.slice(0, 200),
    };
}"""


def test_a_page_stops_asking_for_events_where_nothing_serves_them(flights, page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/events/" in request.url else None)
    page.clock.install()
    page.goto(STATE)
    while len(asked) < 3:
        page.clock.fast_forward("01:00")
    for _ in range(20):
        page.clock.fast_forward("10:00")

    assert len(asked) == 3


def test_a_page_on_which_nothing_happens_asks_less_and_less_often(flights, page):
    answers: list[int] = []
    page.on("response", lambda answer: answers.append(answer.status) if "?v=" in answer.url else None)
    page.clock.install()
    page.goto("/states/totals/")

    def seconds(count: int) -> list[int]:
        """The statuses of the answers that arrive in this time."""
        answers.clear()
        for _ in range(count):
            page.clock.run_for(1_000)
            page.evaluate("fetch('/healthz').then(answer => answer.text())")
        return [*answers]

    first = len(seconds(20))
    seconds(30)
    assert 2 <= len(seconds(20)) < first
    flights.commit({("EWR", "C07"): 1})
    assert 200 in seconds(10)


def test_a_list_of_keys_is_pasted_and_answered_line_by_line(flights, page):
    page.goto(STATE)
    page.get_by_label("One key per line").fill("EWR,C07\nJFK\tC07\nLGA,C07\nEWR")
    page.get_by_role("button", name="Look up").click()

    rows = page.locator(".answers tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("found")
    expect(rows.nth(2)).to_contain_text("missing")
    expect(rows.nth(3)).to_contain_text("expected 2 parts")
    page.wait_for_timeout(1_500)
    expect(rows).to_have_count(4)
    page.reload()
    expect(rows).to_have_count(4)


def test_a_long_list_of_answers_scrolls_in_its_own_box(flights, page):
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(STATE)
        page.get_by_label("One key per line").fill("EWR,C07\n" * 800)
        page.get_by_role("button", name="Look up").click()

        expect(page.locator(".answers tbody tr")).to_have_count(800)
        assert page.evaluate("document.documentElement.scrollHeight") < 3_000


def test_entries_have_a_next_page_and_back_returns(flights, page):
    page.goto(f"{STATE}?order=-flights")
    first = page.locator(".entries tbody th").first.inner_text()
    page.locator("#next").click()
    expect(page.locator(".pages")).to_contain_text("26–50")  # noqa: RUF001

    page.go_back()
    expect(page.locator(".pages")).to_contain_text("1–25 of 60")  # noqa: RUF001
    assert page.locator(".entries tbody th").first.inner_text() == first


def test_a_download_is_the_range_that_the_page_shows(flights, page):
    page.goto(f"{STATE}?prefix=JFK")
    with page.expect_download() as taken:
        page.get_by_role("link", name="CSV").click()

    lines = Path(taken.value.path()).read_text().splitlines()
    assert taken.value.suggested_filename == "flights_by_carrier-1.csv"
    assert lines[0] == "origin,carrier,flights,mean_delay,max_delay"
    assert lines[1].startswith("JFK,C00,100,12.5,140")
    assert len(lines) == 1 + 30


def test_pasted_text_survives_a_commit(flights, page):
    page.goto(STATE)
    page.get_by_label("One key per line").fill("EWR,C07")

    flights.commit({("EWR", "C07"): 5_000})

    expect(page.get_by_role("row", name="EWR · C07")).to_contain_text("5,093")
    expect(page.get_by_label("One key per line")).to_have_value("EWR,C07")


def test_a_value_that_changes_grows_its_chart_and_its_table(flights, page):
    page.goto(f'{STATE}key?key=["EWR","C00"]')
    expect(page.locator(".versions tbody tr")).to_have_count(1)

    flights.commit({("EWR", "C00"): 5})

    expect(page.locator(".versions tbody tr")).to_have_count(2)
    chart = page.locator("#chart-value .uplot")
    expect(chart).to_have_accessible_name(re.compile("points, the latest: flights: 105"), timeout=60_000)


def test_a_banner_that_appears_and_disappears_keeps_focus_and_typed_text(flights, page):
    page.goto(STATE)
    page.get_by_label("One key per line").fill("EWR,C07")
    page.locator("#q").focus()
    page.evaluate("document.querySelector('#entries').mark = true")

    flights.report("failed", "no such column")
    expect(page.locator(".trouble")).to_be_visible()
    flights.report("running")
    expect(page.locator(".trouble")).to_have_count(0)

    assert page.evaluate("document.activeElement.id") == "q"
    assert page.evaluate("document.querySelector('#entries').mark")
    expect(page.get_by_label("One key per line")).to_have_value("EWR,C07")


def test_an_entry_that_moves_up_keeps_its_row_and_the_others_do_not_flash(flights, page):
    page.goto(f"{STATE}?order=-flights&q=JFK")
    page.evaluate("[...document.querySelectorAll('.entries tbody tr')].forEach((row) => { row.was = row.innerText; })")
    page.get_by_role("link", name="C20").focus()

    flights.commit({("JFK", "C20"): 9_000})

    first = page.locator(".entries tbody tr").first
    expect(first).to_contain_text("9,080")
    assert "C20" in first.evaluate("row => row.was")
    expect(page.locator(".entries .flash").first).to_be_visible()
    flashed = page.locator(".entries tr:has(.flash)")
    expect(flashed).to_have_count(1)
    assert page.evaluate("document.activeElement.textContent") == "JFK · C20"


def test_a_table_follows_while_the_reader_scrolls_it_by_keyboard(flights, page):
    page.goto(f"{STATE}?q=EWR")
    page.locator(".panel.wide").focus()

    flights.commit({("EWR", "C07"): 5_000})

    expect(page.get_by_role("row", name="EWR · C07")).to_contain_text("5,093")
    assert page.evaluate("document.activeElement.matches('.panel.wide')")


def test_a_selection_that_is_not_submitted_survives_commits(flights, page):
    page.goto("/pipelines/flights/dead-letters")
    page.locator("#of-state").select_option("totals")

    flights.commit({("EWR", "C07"): 1}, letters=[DeadLetter("day.json", "{", "not JSON")])

    expect(page.locator("[id^=letter-]")).to_have_count(1)
    expect(page.locator("#of-state")).to_have_value("totals")


def test_a_program_that_was_unfolded_stays_so(flights, page):
    page.goto(f"{STATE}explore?order=-flights")
    page.get_by_text("JavaScript", exact=True).click()

    flights.commit({("EWR", "C07"): 5_000})

    expect(page.locator(".explored tbody tr").first).to_contain_text("5,093")
    expect(page.get_by_label("JavaScript", exact=True)).to_be_visible()


@pytest.mark.parametrize(("query", "status"), [("?where=flights=99", "entries"), ("", "results")])
def test_the_request_of_the_api_panel_runs_in_place(flights, page, query, status):
    page.goto(f"{STATE}api{query}")
    page.get_by_role("button", name="Run").click()

    answer = page.get_by_role("dialog", name="Response")
    expect(answer.get_by_role("status")).to_contain_text("200 OK")
    expect(answer.locator("pre")).to_contain_text(f'"{status}": [')
    page.keyboard.press("Escape")
    expect(answer).not_to_be_visible()


def test_a_silence_lasts_until_a_time_of_the_readers_clock(flights, visit):
    page = visit(timezone_id="Asia/Tokyo")
    page.goto("/alerts")
    expect(page.get_by_label("Until, GMT+9")).to_be_visible()
    page.get_by_label("Until, GMT+9").fill("2099-01-02T09:30")
    page.get_by_role("button", name="Silence", exact=True).click()

    expect(page.get_by_text("No messages about any pipeline until then.")).to_be_visible()
    assert Silence.objects.get().until == datetime(2099, 1, 2, 0, 30, tzinfo=UTC)


class TestReference:
    def test_a_lookup_runs_with_what_was_typed_and_curl_says_the_same(self, flights, page):
        page.goto("/api/docs/look_up_state?state=flights_by_carrier")
        page.get_by_role("textbox", name="Body").fill('{"keys": [["JFK", "C07"]]}')
        expect(page.locator("#curl")).to_contain_text("""-d '{"keys": [["JFK", "C07"]]}'""")
        page.get_by_role("button", name="Run").click()

        answer = page.get_by_role("dialog", name="Response")
        expect(answer.get_by_role("status")).to_contain_text("200 OK")
        expect(answer.locator("pre")).to_contain_text('"flights": 93')

    def test_what_changes_something_is_asked_about_first(self, flights, page):
        asked: list[str] = []
        page.goto("/api/docs/pause_pipeline")
        for accepts in (False, True):
            page.once("dialog", lambda dialog, accepts=accepts: (
                asked.append(dialog.message), dialog.accept() if accepts else dialog.dismiss()
            ))  # fmt: skip
            page.get_by_role("button", name="Run").click()

        expect(page.get_by_role("dialog", name="Response").get_by_role("status")).to_contain_text("202")
        assert asked == ["POST /api/v1/pipelines/flights/pause changes something. Run it?"] * 2

    def test_a_call_for_api_keys_runs_with_one(self, flights, page):
        _, secret = create_api_key("feed", ["read", "issue_tokens"])
        page.goto("/api/docs/create_token")
        page.get_by_label("Run with an API key").fill(secret)
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Run").click()

        expect(page.get_by_role("dialog", name="Response").get_by_role("status")).to_contain_text("201")


class TestSearch:
    @pytest.fixture
    def dialog(self, page) -> Locator:
        return page.get_by_role("dialog", name="Search")

    @pytest.mark.parametrize("key", ["/", "Control+k", "Meta+k"])
    def test_a_key_opens_it_and_escape_returns_to_the_page(self, flights, page, dialog, key):
        page.goto(STATE)
        page.get_by_role("link", name="Health").first.focus()

        page.keyboard.press(key)
        expect(page.get_by_role("combobox", name="Search")).to_be_focused()
        page.keyboard.press("Escape")

        expect(dialog).to_be_hidden()
        expect(page.get_by_role("link", name="Health").first).to_be_focused()

    def test_a_slash_that_is_typed_opens_nothing(self, flights, page, dialog):
        page.goto(STATE)
        page.locator("#q").press_sequentially("a/b")

        expect(page.locator("#q")).to_have_value("a/b")
        expect(dialog).to_be_hidden()

    def test_the_keyboard_chooses_a_result_and_enter_opens_it(self, flights, page, dialog):
        page.goto("/")
        page.get_by_role("link", name="Search").click()
        field = dialog.get_by_role("combobox")
        field.press_sequentially("flights_by")
        expect(dialog.get_by_role("status")).to_have_text(re.compile(r"\d+ results"))
        expect(field).to_have_attribute("aria-expanded", "true")
        first = dialog.get_by_role("option").first
        expect(first).to_have_attribute("aria-selected", "true")
        expect(field).to_have_attribute("aria-activedescendant", first.get_attribute("id"))

        field.press("ArrowUp")
        expect(dialog.get_by_role("option").last).to_have_attribute("aria-selected", "true")
        field.press("ArrowDown")
        field.press("ArrowDown")
        field.press("Enter")

        page.wait_for_url("**/states/flights_by_hour/")

    @pytest.mark.core
    def test_a_key_is_found_and_opened(self, flights, page, dialog):
        page.goto("/maintenance")
        page.keyboard.press("/")
        page.keyboard.type("JFK,C07")
        dialog.get_by_role("option", name="JFK · C07").click()

        expect(page.get_by_role("heading", level=1)).to_have_text("JFK · C07")

    def test_it_says_when_it_finds_nothing_and_finds_again(self, flights, page, dialog):
        page.goto("/")
        page.keyboard.press("/")
        field = dialog.get_by_role("combobox")
        field.fill("nowhere")
        expect(dialog.get_by_role("status")).to_have_text("Nothing found")
        expect(dialog).to_contain_text("Nothing found for nowhere.")
        expect(field).to_have_attribute("aria-expanded", "false")

        field.fill("totals")
        expect(dialog.get_by_role("option").first).to_contain_text("totals")

    def test_only_the_last_text_is_answered(self, flights, page, dialog):
        page.goto("/")
        page.keyboard.press("/")
        asked = []
        page.on("request", lambda request: asked.append(request.url) if "/search?" in request.url else None)
        page.keyboard.type("totals")

        expect(dialog.get_by_role("option").first).to_contain_text("totals")
        assert [url.rpartition("=")[2] for url in asked][-1] == "totals"
        assert dialog.locator("#search-results").get_attribute("data-text") == "totals"

    def test_enter_before_the_results_leads_to_the_search_page(self, flights, page, dialog):
        page.goto("/")
        page.route("**/search?*", lambda route: None if route.request.headers.get("hx-request") else route.continue_())
        page.keyboard.press("/")
        page.keyboard.type("totals")
        page.keyboard.press("Enter")

        page.wait_for_url("**/search?q=totals")
        expect(page.get_by_role("heading", level=1)).to_have_text("Search")

    def test_the_keyboard_pauses_silences_and_copies(self, flights, visit):
        page = visit(permissions=["clipboard-read", "clipboard-write"])
        page.goto(STATE)
        option = page.get_by_role("dialog", name="Search").get_by_role("option")
        page.keyboard.press("/")
        page.keyboard.type("copy JFK,C07")
        expect(option.first).to_have_text("Copy JFK · C07flights_by_carrier")
        page.keyboard.press("Enter")
        expect(page.locator("#search-said")).to_have_text('Copied ["JFK", "C07"]')
        assert page.evaluate("navigator.clipboard.readText()") == '["JFK", "C07"]'

        page.locator("#search-text").fill("pause flights")
        expect(option.first).to_contain_text("Pause flights")
        page.keyboard.press("Enter")
        page.wait_for_url("**/pipelines/flights/")
        expect(page.get_by_role("button", name="Resume pipeline")).to_be_visible()

        page.keyboard.press("/")
        page.keyboard.type("silence flights")
        expect(option.first).to_contain_text("Silence flights for an hour")
        page.keyboard.press("Enter")
        expect(page.get_by_text("No messages about flights for 60 min.")).to_be_visible()

    def test_it_stays_open_while_the_page_refreshes(self, flights, page, dialog):
        page.goto("/states/totals/")
        page.keyboard.press("/")
        page.keyboard.type("totals")
        expect(dialog.get_by_role("option").first).to_be_visible()

        flights.commit({("JFK", "C00"): 1})

        expect(page.locator(".heroes dd")).to_have_text("5,131")
        expect(dialog.get_by_role("combobox")).to_be_focused()
        expect(dialog.get_by_role("combobox")).to_have_value("totals")
        expect(dialog.get_by_role("option").first).to_be_visible()

    def test_a_search_that_fails_is_reported(self, flights, page, dialog):
        page.goto("/")
        page.route("**/search?*", lambda route: route.abort())
        page.keyboard.press("/")
        page.keyboard.type("totals")

        expect(dialog.get_by_role("status")).to_have_text("Search failed. Press Enter to try again.")

    def test_without_scripts_it_is_a_page(self, flights, visit):
        page = visit(java_script_enabled=False)
        page.goto("/")
        page.get_by_role("link", name="Search").click()
        page.get_by_role("textbox", name="Search for").fill("JFK,C07")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="JFK · C07").click()

        assert page.get_by_role("heading", level=1).inner_text() == "JFK · C07"
