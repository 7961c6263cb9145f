"""Takes the screenshots of the README from a running demo: `python -m docs.screenshots .tidegauge/demo.json`.

Sizes and order are fixed, so that two runs differ only in their figures.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True)
class Shot:
    """name: of the file. address: of the page in the demo. size: of the viewport in pixels."""

    name: str
    address: str
    size: dict[str, int]
    scheme: Literal["light", "dark"]

    @property
    def file_name(self) -> str:
        return f"{self.name}.png"


KEY = '/states/flights_by_carrier/key?key=["JFK","AA"]&range=15m'

SHOTS = [
    Shot("overview", "/", DESKTOP, "light"),
    Shot("pipeline", "/pipelines/aircraft/?range=15m", DESKTOP, "dark"),
    Shot("explorer", "/states/delays_by_day/explore", DESKTOP, "light"),
    Shot("key", KEY, DESKTOP, "light"),
    Shot("dead-letters", "/pipelines/aircraft/dead-letters", DESKTOP, "light"),
    Shot("maintenance", "/maintenance", DESKTOP, "dark"),
    Shot("overview-phone", "/", PHONE, "dark"),
    Shot("state-phone", "/states/flights_by_carrier/", PHONE, "light"),
]


def take(access: Mapping[str, str], folder: Path, browser: Browser) -> list[Path]:
    """Write all screenshots into `folder` and return their paths. access: the content of `demo.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    signed_in = sign_in(browser, access)
    return [_take(shot, folder / shot.file_name, browser, access["url"], signed_in) for shot in SHOTS]


def sign_in(browser: Browser, access: Mapping[str, str]) -> Any:
    with _context(browser, access["url"]) as context:
        page = context.new_page()
        page.goto("/login")
        page.get_by_label("Username").fill(access["admin_user"])
        page.get_by_label("Password").fill(access["admin_password"])
        page.get_by_role("button", name="Sign in").click()
        page.locator(".headline h1").wait_for()
        return context.storage_state()


def _take(shot: Shot, path: Path, browser: Browser, url: str, signed_in: Any) -> Path:
    look: dict[str, Any] = {"viewport": shot.size, "color_scheme": shot.scheme, "reduced_motion": "reduce"}
    with _context(browser, url, storage_state=signed_in, **look) as context:
        page = context.new_page()
        page.goto(shot.address)
        settle(page)
        page.screenshot(path=path)
    return path


def settle(page: Page) -> None:
    """Wait until fonts are loaded, times are shown and charts are drawn."""
    page.wait_for_function("document.fonts.status === 'loaded' && document.readyState === 'complete'")
    page.locator("main h1").wait_for()
    expect(page.locator(".drawing:not(:has(.uplot))")).to_have_count(0)


@contextmanager
def _context(browser: Browser, url: str, **options: Any) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=url, locale="en-GB", timezone_id="UTC", **options)
    try:
        yield context
    finally:
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.screenshots", description="Take the README's screenshots.")
    parser.add_argument("access", type=Path, help="demo.json of a running demo")
    parser.add_argument("--to", type=Path, default=IMAGES, help="output folder (default: %(default)s)")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        take(json.loads(options.access.read_text()), options.to, browser)
        browser.close()


if __name__ == "__main__":
    main()
