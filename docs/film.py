"""Records the film of the README: `python -m docs.film`.

A driver is killed in the middle of a batch and started again, and every event counts once. The processes are real: web,
events, a driver that is killed once a task of its batch has written rows, and the recount of `tidegauge demo --once`.
Above is the console, below a terminal with the commands.
"""

import argparse
import atexit
import html
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from PIL import Image
from playwright.sync_api import Browser, Error, Page, sync_playwright

from docs.screenshots import CHROMIUM, IMAGES, settle, sign_in
from tidegauge.pipelines.demo import lay_out
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, free_port
from tidegauge.pipelines.embedded.servers import ensure_servers
from tidegauge.webapp.commands.management.child_process import Child

FILM = IMAGES / "killed-driver.webp"

CONSOLE = {"width": 960, "height": 500}
TERMINAL = {"width": 960, "height": 170}
LINES = 7  # that the terminal shows
FRAME_MS, READING_MS = 450, 2_600
WAIT_SECONDS = 300.0

PIPELINE = "flights"
# The driver as a user would start it, and by its module, as the folder of pipelines may have another one of that name.
TYPED = "tidegauge run flights --input .tidegauge/demo/flights"
JOB = "tidegauge.pipelines.jobs.flights:flights"

# Rows of a batch that is not committed: a task has written them.
WRITTEN = """
SELECT p.open_txid, count(*) FROM tidegauge.pipeline p JOIN tidegauge_state.flights_by_carrier s ON s.txid = p.open_txid
WHERE p.name = %s GROUP BY p.open_txid
"""


class Film:
    """Takes frames of a page of the console above a terminal."""

    def __init__(self, console: Page, terminal: Page) -> None:
        self.console, self._terminal = console, terminal
        self._lines: list[str] = []
        self._frames: list[tuple[Image.Image, int]] = []

    def say(self, line: str) -> None:
        """Add a line to the terminal."""
        self._lines.append(line)
        shown = "\n".join(html.escape(each) for each in self._lines[-LINES:])
        self._terminal.set_content(TERMINAL_PAGE.format(text=shown))

    def take(self, milliseconds: int = FRAME_MS) -> None:
        frame = Image.new("RGB", (CONSOLE["width"], CONSOLE["height"] + TERMINAL["height"]))
        for page, top in ((self.console, 0), (self._terminal, CONSOLE["height"])):
            frame.paste(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), (0, top))
        self._frames.append((frame, milliseconds))

    def watch(self, seconds: float) -> None:
        """Take a frame per second."""
        for _ in range(round(seconds)):
            time.sleep(1)
            self.take()

    def save(self, path: Path) -> None:
        (first, *others), times = zip(*self._frames, strict=True)
        first.save(path, save_all=True, append_images=others, duration=list(times), loop=0, quality=60, method=6)


TERMINAL_PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 12px 16px; background: #10161d; color: #dce6ec; }}
pre {{ margin: 0; font: 14px/20px "IBM Plex Mono", monospace; }}
</style><pre>{text}</pre>"""


class System:
    """Web and events, and a driver that can be started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.url = f"http://127.0.0.1:{free_port()}"
        self.access = {"url": self.url, "admin_user": "ada", "admin_password": "rising tides 1927"}
        os.environ["TIDEGAUGE_ADMIN_PASSWORD"] = self.access["admin_password"]
        self.run("migrate", "--verbosity", "0")
        self.run("create_admin", self.access["admin_user"])

    def start(self, name: str, *arguments: str) -> Child:
        command = [sys.executable, str(REPOSITORY / "manage.py"), *arguments]
        return Child(name, command, self._home / "logs" / f"{name}.log")

    def run(self, *arguments: str) -> str:
        child = self.start(arguments[0], *arguments)
        until(lambda: child.exit_code() is not None, 2 * WAIT_SECONDS)
        if child.exit_code():
            raise RuntimeError(f"{arguments[0]} has failed:\n{child.last_lines()}")
        return child.log.read_text()

    def driver(self) -> Child:
        return self.start("driver", "run_pipeline", JOB, "--input", str(self._home / "demo" / PIPELINE))

    @contextmanager
    def served(self) -> Iterator[None]:
        events = free_port()
        os.environ |= {
            "TIDEGAUGE_EVENTS_URL": f"http://127.0.0.1:{events}",
            "TIDEGAUGE_EVENTS_ORIGINS": self.url,
            "TIDEGAUGE_STALE_AFTER_SECONDS": "3600",  # because a year of input is there from the start
        }
        with ExitStack() as stack:
            for name, options in (
                ("web", ["--port", self.url.rsplit(":", 1)[1]]),
                ("events", ["--port", str(events)]),
                ("worker", []),
            ):
                stack.callback(self.start(name, name, *options).stop)
            yield


def record(browser: Browser, home: Path) -> Film:
    """Return the film. home: an empty folder for the data of all processes, which is TIDEGAUGE_HOME."""
    system = System(home)
    lay_out(home / "demo" / PIPELINE)
    with system.served(), psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        until(lambda: _answers(browser, system.url), WAIT_SECONDS)
        driver = system.driver()
        until(lambda: committed(conn) >= 3, WAIT_SECONDS)
        film = Film(_signed_in(browser, system), browser.new_page(viewport=TERMINAL))
        film.say(f"$ {TYPED}")
        film.watch(5)
        txid, keys = kill_in_a_batch(conn, driver.pid)
        film.say(f"$ kill -9 {driver.pid}    # batch {txid} is not committed, {keys} keys of it are written")
        film.console.get_by_text("its driver stopped responding").first.wait_for(timeout=120_000)
        film.take(READING_MS)
        film.say(f"$ {TYPED}")
        film.take()
        driver = system.driver()
        until(lambda: committed(conn) > txid, WAIT_SECONDS)
        film.say(f"  batch {txid} was reverted, replayed and committed")
        film.watch(6)
        driver.stop()
        film.say("$ tidegauge demo --once    # the rest of the year, and a recount without Spark")
        recount = system.start("recount", "demo", "--once")
        while recount.exit_code() is None:
            time.sleep(3)
            film.take()
        for line in recount.log.read_text().splitlines():
            if "exact" in line.lower() or "events in" in line:
                film.say(f"  {line}")
        film.take(2 * READING_MS)
    return film


def _signed_in(browser: Browser, system: System) -> Page:
    signed_in = sign_in(browser, system.access)
    context = browser.new_context(
        base_url=system.url,
        storage_state=signed_in,
        viewport=CONSOLE,
        color_scheme="light",
        reduced_motion="reduce",
        locale="en-GB",
    )
    page = context.new_page()
    page.goto("/")
    settle(page)
    return page


def committed(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT committed_txid FROM tidegauge.pipeline WHERE name = %s", [PIPELINE]).fetchone()
    return row[0] if row else 0


def kill_in_a_batch(conn: psycopg.Connection, pid: int) -> tuple[int, int]:
    """Kill the driver once a task has written keys of an open batch. Return its txid and the number of keys."""
    until(lambda: conn.execute(WRITTEN, [PIPELINE]).fetchone() is not None, WAIT_SECONDS, every=0.001)
    os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    row = conn.execute(WRITTEN, [PIPELINE]).fetchone()
    if row is None:
        raise RuntimeError("the batch was committed before the driver was killed; record again")
    return row[0], row[1]


def until(is_true: Callable[[], bool], seconds: float, every: float = 0.2) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened within {seconds:.0f} s")
        time.sleep(every)


def _answers(browser: Browser, url: str) -> bool:
    page = browser.new_page()
    try:
        return page.request.get(f"{url}/healthz").ok
    except Error:  # while nobody listens there
        return False
    finally:
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.film", description="Record the README's film.")
    parser.add_argument("--to", type=Path, default=FILM, help="the film (default: %(default)s)")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="tidegauge-film-"))
    # Registered first, so that it runs after the servers in it have stopped.
    atexit.register(shutil.rmtree, home)
    os.environ["TIDEGAUGE_HOME"] = str(home)
    ensure_servers()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        record(browser, home).save(options.to)
        browser.close()


if __name__ == "__main__":
    main()
