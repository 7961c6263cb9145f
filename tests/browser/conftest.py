"""The demo, started with an empty environment, and a real browser."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.webapp.chromium import CHROMIUM
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, free_port

# Without a line in any log of its processes, which say what they do. On a busy machine a start takes minutes.
STUCK_AFTER_SECONDS = 120
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Demo:
    """`tidegauge demo` with its own data folder and an almost empty environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.output = home / "demo.out"

    def start(self) -> None:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", "--port", str(self.port)],
                cwd=REPOSITORY,
                env={"PATH": os.environ["PATH"], "HOME": str(self.home), "TIDEGAUGE_HOME": str(self.home)},
                stdout=output,
                stderr=output,
            )
        self._wait_for(lambda: "Ctrl-C stops everything" in self.printed())

    def printed(self) -> str:
        return self.output.read_text()

    def access(self) -> dict[str, str]:
        return json.loads((self.home / "demo.json").read_text())

    def get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {self.access()['api_key']}"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 (localhost)
            return json.load(response)

    def committed(self) -> int:
        pipelines = {pipeline["name"]: pipeline for pipeline in self.get("/api/v1/pipelines")["pipelines"]}
        return pipelines["flights"]["committed_txid"] if "flights" in pipelines else 0

    def wait_for_batch(self, txid: int) -> None:
        self._wait_for(lambda: self.committed() >= txid)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=90)

    def _wait_for(self, condition: Any) -> None:
        seen, since = self._progress(), time.monotonic()
        while not condition():
            assert self.process.poll() is None, f"the demo has ended:\n{self.printed()}"
            if (now := self._progress()) != seen:
                seen, since = now, time.monotonic()
            assert time.monotonic() < since + STUCK_AFTER_SECONDS, f"the demo is stuck:\n{self.printed()}"
            time.sleep(0.2)

    def _progress(self) -> list[int]:
        """Return the sizes of its output and of its processes' logs."""
        return [log.stat().st_size for log in [self.output, *sorted((self.home / "logs").glob("*"))]]


# Not for the session: a demo in the background would slow down all later tests.
@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    home = Path(tempfile.mkdtemp(prefix="tidegauge-demo-"))
    running = Demo(home)
    try:
        running.start()
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: make chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, demo: Demo) -> Iterator[Page]:
    """A signed-in page on a desktop."""
    with signed_in(browser, demo, viewport={"width": 1280, "height": 900}) as visitor:
        yield visitor


@pytest.fixture
def phone(browser: Browser, demo: Demo) -> Iterator[Page]:
    """A signed-in page on a phone, in dark mode."""
    look = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}
    with signed_in(browser, demo, **look) as visitor:
        yield visitor


@contextmanager
def signed_in(browser: Browser, demo: Demo, **look: Any) -> Iterator[Page]:
    """Open a page. Script errors, policy violations and requests to other hosts fail the test."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{demo.port}", **look)
    visitor = context.new_page()
    errors: list[str] = []
    visitor.on("pageerror", lambda error: errors.append(str(error)))
    visitor.on("console", lambda message: errors.append(message.text) if "Security Policy" in message.text else None)
    visitor.on("request", lambda request: errors.append(request.url) if "127.0.0.1" not in request.url else None)
    visitor.goto("/")
    visitor.get_by_label("Username").fill(demo.access()["admin_user"])
    visitor.get_by_label("Password").fill(demo.access()["admin_password"])
    visitor.get_by_role("button", name="Sign in").click()
    visitor.get_by_role("link", name="Health").wait_for()
    yield visitor
    context.close()
    assert errors == []
