"""The programs of docs/client.md print what it says."""

import re
import subprocess
import sys

import pytest

from tests.docs.blocks import program
from tests.webapp.api.saved_queries.published import TOP, published
from tidegauge import client as public
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.accounts.services import create_api_key

CONNECTED = 'Client(os.environ["TIDEGAUGE_URL"], os.environ["TIDEGAUGE_API_KEY"]'


def printed(text: str) -> list[str]:
    """What the comments behind the prints say."""
    comments = re.findall(r"print\(.*\)  # (.*)$", text, re.MULTILINE)
    return [line.removeprefix("then ") for comment in comments for line in comment.split(", then ")]


BUSIEST = {**TOP, "reads": [{**TOP["reads"][0], "limit": 10}]}


@pytest.fixture
def key(transactional_db):
    return create_api_key("reader of the page", ["read", "issue_tokens"])[1]


def test_the_page_prints_what_it_says(web, events_process, flights, key, tmp_path):
    published("busiest", BUSIEST)
    text = program("client.md")
    assert text.count(CONNECTED) == 2
    expected = printed(text)
    ran = subprocess.run(
        [sys.executable, "-c", text.replace(CONNECTED, f"{CONNECTED}, events_url={events_process.url!r}")],
        env={"TIDEGAUGE_URL": web.url, "TIDEGAUGE_API_KEY": key, "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == expected
    assert (tmp_path / "flights.csv").read_text().count("\n") == 61


def test_the_page_names_every_error_and_call():
    page = (REPOSITORY / "docs" / "client.md").read_text()
    calls = [name for kind in (public.Client, public.State, public.SavedQuery) for name in vars(kind) if name[0] != "_"]
    errors = [name for name in public.__all__ if name.endswith("Error") and name not in ("ApiError", "ClientError")]

    assert [
        name for name in (*errors, "ApiError", "ClientError") if f"`{name}`" not in page.replace("Error`s", "Error`")
    ] == []
    assert [name for name in calls if f"{name}(" not in page and name not in ("close", "openapi")] == []
