"""A page of another origin, in a real browser: with a token it reads and follows, if the settings list its origin."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER
from tests.webapp.events.events_server import events_server
from tests.webapp.web_server import Server
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.services import create_api_key

LOOKUP = "/api/v1/states/flights_by_carrier/lookup"
STREAM = "/events/states/flights_by_carrier"

FETCH = """async ([url, token]) => {
    try {
        const answer = await fetch(url, {
            method: "POST",
            headers: {"Authorization": `Bearer ${token}`, "Content-Type": "application/json"},
            body: JSON.stringify({keys: [["JFK", "C01"]]}),
        });
        const left = answer.headers.get("RateLimit");
        return [answer.status, (await answer.json()).results[0].status, answer.headers.has("ETag"), left !== null];
    } catch (error) { return [error.name]; }
}"""
SUBSCRIBE = """url => new Promise(resolve => {
    const source = new EventSource(url);
    source.addEventListener("ready", event => { source.close(); resolve(JSON.parse(event.data).state); });
    source.addEventListener("error", () => { source.close(); resolve("refused"); });
})"""

pytestmark = IN_A_BROWSER


class EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another origin</title>")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def empty_pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with empty_pages() as url:
        yield url


@pytest.fixture(scope="module")
def other_origin() -> Iterator[str]:
    with empty_pages() as url:
        yield url


@pytest.fixture
def token(transactional_db) -> str:
    authentication.clear_cache()
    key, _ = create_api_key("backend", ["issue_tokens", "read"])
    return issue(key, states=["flights_by_carrier"], key_prefix=["JFK"]).text


@pytest.fixture(scope="module")
def own_process(origin, django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """An events process for pages of `origin`."""
    shared = {"SECRET_KEY": django_settings.SECRET_KEY, "TIDEGAUGE_CORS_ORIGINS": origin}
    with django_db_blocker.unblock(), events_server(tmp_path_factory.mktemp("events"), **shared) as server:
        yield server


@pytest.fixture
def servers(live_server, own_process, origin, settings) -> tuple[str, str]:
    """The URLs of both processes."""
    settings.TIDEGAUGE_CORS_ORIGINS = [origin]
    return live_server.url, own_process.url


def asked_by(page: Page, servers: tuple[str, str], token: str) -> tuple[object, object]:
    """What a page gets of either process."""
    web, events = servers
    return page.evaluate(FETCH, [web + LOOKUP, token]), page.evaluate(SUBSCRIBE, f"{events}{STREAM}?token={token}")


def test_a_page_of_a_listed_origin_reads_and_follows(flights, chromium, origin, token, servers):
    page = chromium.new_page()
    page.goto(origin)

    assert asked_by(page, servers, token) == ([200, "found", True, True], "flights_by_carrier")


def test_a_page_of_another_origin_does_not(flights, chromium, other_origin, token, servers):
    page = chromium.new_page()
    page.goto(other_origin)

    assert asked_by(page, servers, token) == (["TypeError"], "refused")
