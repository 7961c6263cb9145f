"""A browser for tests that query through Django beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")

IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no {CHROMIUM} on this machine"),
]


@contextmanager
def chromium(*options: str) -> Iterator[Browser]:
    """Playwright runs an event loop in this thread. Django refuses to query in one, and has other connections there."""
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", *options])
        yield browser
        browser.close()
        # Outside of the loop nobody finds them again, and they keep the test's database from being dropped.
        connections.close_all()
