"""The programs of docs/client.md print what it says."""

import re
import subprocess
import sys

from pipelines.embedded.data_dir import REPOSITORY
from tests.docs.blocks import program
from tests.webapp.events.events_server import events_server

CONNECTED = 'Client(os.environ["TIDEMARK_URL"], os.environ["TIDEMARK_API_KEY"]'


def printed(text: str) -> list[str]:
    """What the comments behind the prints say."""
    comments = re.findall(r"print\(.*\)  # (.*)$", text, re.MULTILINE)
    return [line.removeprefix("then ") for comment in comments for line in comment.split(", then ")]


def test_the_page_prints_what_it_says(web, client, api_key, tmp_path):
    text = program("client.md")
    assert text.count(CONNECTED) == 2
    expected = printed(text)
    with events_server(tmp_path) as events:
        ran = subprocess.run(
            [sys.executable, "-c", text.replace(CONNECTED, f"{CONNECTED}, events_url={events.url!r}")],
            env={"TIDEMARK_URL": web.url, "TIDEMARK_API_KEY": api_key, "PYTHONPATH": str(REPOSITORY)},
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == expected
    assert (tmp_path / "flights.csv").read_text().count("\n") == 61
