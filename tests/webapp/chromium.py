"""A browser for tests that query through Django beside it.

Playwright runs an event loop in this thread for as long as it is open. In one Django refuses to query and has other
connections, and nobody else can run a loop. So the loop counts as running within a test with a browser alone.
"""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections
from playwright.sync_api import Browser, sync_playwright

# The shell is the browser without the program around it: it takes a third less CPU for the same pages.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: make chromium"),
]


class Chromium:
    """A running Chromium, and the loop that Playwright talks to it on."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._loop = asyncio.get_running_loop()
        self._leave_loop()

    @contextmanager
    def in_use(self) -> Iterator[Browser]:
        """Give the browser to a test; its contexts and what Django connected beside it are closed at the end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
            self._enter_loop()
            try:
                yield self._browser
            finally:
                for context in self._browser.contexts:
                    context.close()
                # Outside of the loop nobody finds them again, and they keep the test's database from being dropped.
                connections.close_all()
                self._leave_loop()

    def close(self) -> None:
        self._enter_loop()
        self._browser.close()

    def _enter_loop(self) -> None:
        # Playwright marks the loop as running in the same way, after each of its calls.
        asyncio._set_running_loop(self._loop)

    def _leave_loop(self) -> None:
        asyncio._set_running_loop(None)


@contextmanager
def chromium_running(*options: str) -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", *options]
        running = Chromium(playwright.chromium.launch(executable_path=CHROMIUM, args=arguments))
        try:
            yield running
        finally:
            running.close()
