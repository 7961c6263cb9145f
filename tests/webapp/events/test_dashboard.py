"""An open page updates from events if it can, and polls every second if it cannot; its user sees the same."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from playwright.sync_api import CDPSession, Page, expect

from tests.webapp.chromium import IN_A_BROWSER
from tests.webapp.events.events_server import events_server
from tests.webapp.web_server import Server

TOTALS = "/states/totals/"

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def own_process(live_server, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """An events process for pages of the web server."""
    shared = {"SECRET_KEY": settings.SECRET_KEY, "TIDEGAUGE_EVENTS_ORIGINS": live_server.url}
    with django_db_blocker.unblock(), events_server(tmp_path_factory.mktemp("events"), **shared) as server:
        yield server


@pytest.fixture
def events(own_process, monkeypatch) -> Server:
    """The web server's pages have the URL of the events process."""
    # The web server's host name, because cookies belong to a host name.
    monkeypatch.setattr(settings, "TIDEGAUGE_EVENTS_URL", f"http://localhost:{own_process.port}")
    return own_process


@pytest.fixture
def page(flights, live_server, admin_client, chromium) -> Iterator[Page]:
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    context = chromium.new_context(base_url=live_server.url)
    context.add_cookies([session])
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    assert errors == []


def updates_by(page: Page, how: str) -> None:
    expect(page.locator("body")).to_have_attribute("data-updates", how, timeout=10_000)


def polls(page: Page) -> list[str]:
    """Collects the page's requests for its content from now on."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "?v=" in request.url else None)
    return requests


def test_a_commit_shows_by_an_event_within_a_second(events, flights, page):
    page.goto(TOTALS)
    updates_by(page, "live")
    page.wait_for_timeout(1_500)
    requests = polls(page)
    page.wait_for_timeout(2_500)
    assert requests == []

    flights.commit({("JFK", "C00"): 1})

    expect(page.locator(".heroes dd")).to_have_text("6,131", timeout=1_000)
    expect(page.locator("#pause")).to_have_attribute("title", "Live: updates on every commit")


def test_a_driver_that_dies_is_reported_without_a_notification(events, flights, page):
    flights.report("running")
    page.goto("/")
    updates_by(page, "live")

    flights.die()

    expect(page.locator(".status[data-announce^='flights:']")).to_have_text("lost", timeout=4_000)


def test_without_events_a_page_polls_and_shows_no_notice(flights, page):
    page.goto(TOTALS)
    updates_by(page, "polling")

    flights.commit({("JFK", "C00"): 1})

    expect(page.locator(".heroes dd")).to_have_text("6,131", timeout=3_000)
    expect(page.locator("#notice")).to_have_text("")


def test_a_page_whose_events_process_stops_polls_and_reconnects(events, flights, page):
    page.goto(TOTALS)
    updates_by(page, "live")
    with events.stopped():
        updates_by(page, "polling")

        flights.commit({("JFK", "C00"): 1})

        expect(page.locator(".heroes dd")).to_have_text("6,131", timeout=3_000)
        expect(page.locator("#notice")).to_have_text("")
    updates_by(page, "live")


def test_a_paused_page_does_not_change_and_catches_up_when_it_resumes(events, flights, page):
    page.goto(TOTALS)
    updates_by(page, "live")
    under_way = []
    page.route("**" + TOTALS + "*", lambda route: under_way.append(route))
    with page.expect_request("**" + TOTALS + "*"):
        flights.commit({("JFK", "C00"): 1})
    page.get_by_role("button", name="Live").click()
    shown = page.locator(".heroes dd").inner_text()
    flights.commit({("JFK", "C00"): 1})

    with page.expect_response("**" + TOTALS + "*"):
        under_way[0].continue_()
    page.wait_for_timeout(1_500)

    assert len(under_way) == 1
    expect(page.locator(".heroes dd")).to_have_text(shown)
    assert shown != "6,132"
    page.unroute_all()
    page.get_by_role("button", name="Paused").click()
    expect(page.locator(".heroes dd")).to_have_text("6,132", timeout=1_000)


def test_a_page_of_another_origin_cannot_subscribe_with_a_users_session(events, flights, page):
    page.goto(TOTALS)
    other = page.context.new_page()
    other.goto(f"http://localhost:{events.port}/healthz".replace("localhost", "127.0.0.1"))

    outcome = other.evaluate(
        """address => new Promise(resolve => {
            const source = new EventSource(address, { withCredentials: true });
            source.addEventListener("ready", () => resolve("subscribed"));
            source.addEventListener("error", () => resolve("refused"));
        })""",
        f"http://localhost:{events.port}/events/tide",
    )

    assert outcome == "refused"


def test_an_open_page_on_which_nothing_happens_takes_next_to_no_cpu(events, flights, page):
    # Ten seconds after a commit its rate falls to 0, which is news.
    flights.conn.execute(
        "UPDATE tidegauge.batch SET started_at = started_at - interval '30 s', "
        "committed_at = committed_at - interval '30 s'"
    )
    inspectors = {}
    for address in (TOTALS, "/", "/pipelines/flights/"):
        opened = page.context.new_page()  # each has a thread of its own
        opened.goto(address)
        updates_by(opened, "live")
        inspectors[address] = page.context.new_cdp_session(opened)
        inspectors[address].send("Performance.enable", {"timeDomain": "threadTicks"})
    page.wait_for_timeout(3_000)  # until charts are drawn
    before = {address: busy_seconds(inspector) for address, inspector in inspectors.items()}
    page.wait_for_timeout(10_000)

    shares = {address: (busy_seconds(each) - before[address]) / 10 for address, each in inspectors.items()}
    assert {address: share for address, share in shares.items() if share >= 0.003} == {}


def busy_seconds(inspector: CDPSession) -> float:
    """The CPU that the page's thread has taken: scripts, layout, painting."""
    found = inspector.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in found if metric["name"] == "TaskDuration")
