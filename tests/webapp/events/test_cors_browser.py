"""A page of another origin, in a real browser: with a token it reads and follows, if the settings list its origin."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER, chromium
from tests.webapp.events.events_server import events_server
from webapp.accounts import authentication
from webapp.accounts.issuing import issue
from webapp.accounts.services import create_api_key

QUERY = "/api/v1/states/flights_by_carrier/query"
STREAM = "/events/states/flights_by_carrier"

FETCH = """async ([url, token]) => {
    try {
        const answer = await fetch(url, {
            method: "POST",
            headers: {"Authorization": `Bearer ${token}`, "Content-Type": "application/json"},
            body: JSON.stringify({keys: [["JFK", "C01"]]}),
        });
        const left = answer.headers.get("RateLimit-Remaining");
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


@pytest.fixture
def origin() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def page(origin) -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page()
        opened.goto(origin)
        yield opened


@pytest.fixture
def token(transactional_db) -> str:
    authentication.clear_cache()
    key, _ = create_api_key("backend", ["issue_tokens", "read"])
    return issue(key, states=["flights_by_carrier"], key_prefix=["JFK"]).text


@contextmanager
def servers(live_server, settings, folder: Path, origins: str) -> Iterator[tuple[str, str]]:
    """Both processes with the setting; gives their URLs."""
    settings.TIDEMARK_CORS_ORIGINS = [each for each in origins.split(",") if each]
    shared = {"SECRET_KEY": django_settings.SECRET_KEY, "TIDEMARK_CORS_ORIGINS": origins}
    with events_server(folder, **shared) as events:
        yield live_server.url, events.url


def test_a_page_of_a_listed_origin_reads_and_follows(flights, page, origin, token, live_server, settings, tmp_path):
    with servers(live_server, settings, tmp_path, origin) as (web, events):
        assert page.evaluate(FETCH, [web + QUERY, token]) == [200, "found", True, True]
        assert page.evaluate(SUBSCRIBE, f"{events}{STREAM}?token={token}") == "flights_by_carrier"


def test_a_page_of_another_origin_does_not(flights, page, origin, token, live_server, settings, tmp_path):
    with servers(live_server, settings, tmp_path, "") as (web, events):
        assert page.evaluate(FETCH, [web + QUERY, token]) == ["TypeError"]
        assert page.evaluate(SUBSCRIBE, f"{events}{STREAM}?token={token}") == "refused"
