"""Boards in a browser: tiles follow commits together, a PNG shows what the page does, one site may frame a board."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.webapp.boards import SMALL, make_board
from tests.webapp.console.dashboard.test_browser import flights, page, pytestmark, visit
from tidegauge.webapp.console.boards.links import token_of
from tidegauge.webapp.console.boards.models import BoardLink
from tidegauge.webapp.console.boards.services import create_link

__all__ = ["flights", "page", "pytestmark", "visit"]

# The colours of the chart and the bars in a picture, and how many of its points differ from the ground.
LOOK = """async (bytes) => {
    const picture = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
    const canvas = new OffscreenCanvas(picture.width, picture.height), pen = canvas.getContext("2d");
    pen.drawImage(picture, 0, 0);
    const { data } = pen.getImageData(0, 0, picture.width, picture.height), colours = new Map();
    for (let at = 0; at < data.length; at += 4) {
        const colour = data.slice(at, at + 3).join(",");
        colours.set(colour, (colours.get(colour) || 0) + 1);
    }
    return { width: picture.width, height: picture.height, colours: [...colours.keys()] };
}"""


@pytest.fixture
def board(flights, admin_user):
    return make_board(User.objects.get(username="admin"), "morning", "Morning round", SMALL)


def test_tiles_follow_the_commits_with_one_request_for_all(board, flights, page):
    page.goto("/boards/morning")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.resource_type == "fetch" else None)

    flights.commit({("EWR", "C00"): 7_000})

    expect(page.locator(".tile .bars li").first).to_contain_text("EWR")
    expect(page.get_by_role("row", name="EWR · C00")).to_contain_text("7,100", timeout=20_000)
    assert {url.partition("?")[0].removeprefix(page.url) for url in asked} == {""}


def test_a_picture_has_what_the_page_shows(board, page):
    page.goto("/boards/morning")
    with page.expect_download() as tile:
        page.get_by_role("button", name="PNG of Flights by origin, the busiest first").click()
    with page.expect_download() as whole:
        page.get_by_role("button", name="PNG of the board").click()

    assert whole.value.suggested_filename == "Morning round.png"
    shown = page.locator("#tiles").bounding_box()
    looked = page.evaluate(LOOK, list(whole.value.path().read_bytes()))
    assert abs(looked["width"] / 2 - 32 - shown["width"]) <= 1
    bars = page.locator(".tile .bars rect").first
    colour = bars.evaluate("bar => getComputedStyle(bar).fill").removeprefix("rgb(").removesuffix(")").replace(" ", "")
    line = page.locator(".drawn path").first.evaluate("line => getComputedStyle(line).stroke")
    assert colour in page.evaluate(LOOK, list(tile.value.path().read_bytes()))["colours"]
    assert line.removeprefix("rgb(").removesuffix(")").replace(" ", "") in looked["colours"]


class Site:
    """A site of another origin with a page that frames an address."""

    def __init__(self) -> None:
        site = self
        self.framed = ""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(f'<iframe src="{site.framed}" width="800" height="600"></iframe>'.encode())

            def log_message(self, *_):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site():
    site = Site()
    yield site
    site.close()


def test_a_frame_is_shown_by_the_sites_that_may_and_by_no_other(board, chromium, live_server, site, settings):
    settings.TIDEGAUGE_FRAME_ORIGINS = [site.origin]
    link = create_link(board, kind=BoardLink.Kind.FRAME, days=1)
    site.framed = f"{live_server.url}/frames/boards/{token_of(link)}"
    page = chromium.new_context().new_page()

    page.goto(site.origin)
    expect(page.frame_locator("iframe").get_by_role("heading", name="Morning round")).to_be_visible()

    settings.TIDEGAUGE_FRAME_ORIGINS = ["https://other.example"]
    refused = []
    page.on("console", lambda said: refused.append(said.text))
    page.goto(site.origin)
    page.wait_for_timeout(500)
    assert page.frame_locator("iframe").get_by_role("heading", name="Morning round").count() == 0
    assert any("frame-ancestors" in text or "refused to connect" in text for text in refused)
