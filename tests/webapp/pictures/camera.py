"""Takes the picture of a page once everything on it is drawn and stands still."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.webapp.pictures import comparison

SCREEN_PX = 900
PHONE_PX = 390
LONGEST_PX = {1440: 1800, 390: 2400}
SHOTS = 20

# The class of the admin's theme follows that of the system a moment later.
DRAWN = """theme => document.readyState === "complete" && document.fonts.status === "loaded" &&
    (!window.Alpine || document.documentElement.classList.contains("dark") === (theme === "dark"))"""
HEIGHT = "document.documentElement.scrollHeight"
# Scrollbars of the admin show for a second after a page is loaded.
UNSEEN = ".simplebar-track { display: none; }"
STILL = "performance.now = () => 10000"  # charts move on by it


@dataclass(frozen=True)
class Look:
    width: int
    theme: Literal["light", "dark"]

    @property
    def scale(self) -> int:
        """By what its pictures are scaled down: not at all on a phone, so that their text can be read."""
        return comparison.SCALE if self.width > PHONE_PX else 1


@contextmanager
def camera(
    browser: Browser, url: str, cookies: list[Any], now: datetime, look: Look
) -> Iterator[Callable[[str], Image.Image]]:
    """Open a browser whose clock stands still at `now`. Yields what returns the scaled picture of a page."""
    context = browser.new_context(
        base_url=url, color_scheme=look.theme, reduced_motion="reduce", locale="en-GB", timezone_id="UTC",
    )  # fmt: skip
    context.add_cookies(cookies)
    context.add_init_script(STILL)
    context.clock.set_fixed_time(now)
    page = context.new_page()
    yield lambda path: comparison.scaled(_take(page, path, look), look.scale)
    context.close()


def _take(page: Page, path: str, look: Look) -> bytes:
    page.set_viewport_size({"width": look.width, "height": SCREEN_PX})
    page.goto(path)
    page.wait_for_function(DRAWN, arg=look.theme)
    expect(page.locator(".drawing:not(:has(.uplot))")).to_have_count(0)
    # Not a picture beyond the screen: what sticks to its end would lie on the middle of the page.
    height = min(page.evaluate(HEIGHT), LONGEST_PX[look.width])
    page.set_viewport_size({"width": look.width, "height": height})
    last = b""
    for _ in range(SHOTS):
        page.evaluate("document.activeElement.blur()")  # Forms take the focus a moment later, or not.
        shot = page.screenshot(animations="disabled", style=UNSEEN)
        if shot == last:
            return shot
        last = shot
    raise AssertionError(f"{path} does not stand still at {look.width} px, {look.theme}")
