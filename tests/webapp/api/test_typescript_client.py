"""Typed clients generated from what a real server serves, compiled by `tsc --strict` and run against it by Node."""

import json
from typing import Any, NamedTuple

import httpx
import pytest

from tests.docs.blocks import blocks
from tests.webapp.api.saved_queries.published import SHARE, published
from tests.webapp.committed_flights import committed_flights
from tests.webapp.typescript_client import HERE, Project
from tests.webapp.web_server import Server
from tidegauge.webapp.accounts.services import create_api_key

EXAMPLE, EVENTS_EXAMPLE = (block.text for block in blocks("ts") if block.page == "generated-clients.md")


class Ran(NamedTuple):
    """got: what program.ts printed, by step. example: what the page's example printed."""

    got: dict[str, Any]
    example: str


# The servers read committed rows. Tests with this mark run after those that need the rows of migrations, and empty the
# database afterwards.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def ran(web_process, events_process, django_db_blocker, tmp_path_factory) -> Ran:
    """One run for all tests of the module: the compiler takes seconds."""
    project = Project(tmp_path_factory.mktemp("typescript"))
    with django_db_blocker.unblock(), committed_flights():
        return _ran(project, web_process, events_process)


def _ran(project: Project, web: Server, events: Server) -> Ran:
    published("share", SHARE)
    _, key = create_api_key("program", ["read"])
    project.add("program.ts", (HERE / "program.ts").read_text())
    project.add("example.ts", EXAMPLE)
    project.add("events.ts", EVENTS_EXAMPLE)
    project.generate("tidegauge", httpx.get(f"{web.url}/api/schema?format=json").content)
    headers = {"Authorization": f"Bearer {key}"}
    project.generate("saved", httpx.get(f"{web.url}/api/v1/saved-queries/share/openapi", headers=headers).content)
    project.compile()
    environ = {"TIDEGAUGE_URL": web.url, "TIDEGAUGE_EVENTS_URL": events.url, "TIDEGAUGE_API_KEY": key}
    return Ran(json.loads(project.run("program.js", **environ)), project.run("example.js", **environ))


FOUND = {"key": ["JFK", "C01"], "status": "found", "value": {"flights": 99}}
MISSING = {"key": ["JFK", "ZZ"], "status": "missing", "value": None}


def test_keys_are_looked_up(ran):
    assert ran.got["keys"] == {"txid": 2, "results": [FOUND, MISSING]}


def test_several_states_are_looked_up(ran):
    assert ran.got["states"] == [1, 0]


def test_one_key_is_read(ran):
    assert ran.got["oneKey"] == {"key": ["JFK", "C01"], "value": {"flights": 99}}


def test_pages_of_filtered_entries_are_followed_by_their_cursor(ran):
    assert ran.got["pages"] == ["JFK/C00", "JFK/C01", "JFK/C02"]


def test_a_problem_is_known_by_its_code(ran):
    assert ran.got["problems"] == [[400, "key 1 is wrong"], [404, "it is missing as of batch 2"]]


def test_a_saved_query_has_typed_answers_in_the_order_of_its_reads(ran):
    assert ran.got["savedQuery"] == {"total": [6130], "combined": 394, "carriers": 2}
    assert ran.got["refusedParameter"] == "invalid_request"


def test_events_are_read_by_their_type(ran):
    assert ran.got["events"] == {"txid": 2, "results": [FOUND]}


def test_the_example_of_the_page_runs(ran):
    assert ran.example.splitlines() == [
        "JFK/C01 found { flights: 99 }",
        "JFK/ZZ missing null",
        "EWR/C00 { flights: 1100 }",
        "JFK/C00 { flights: 100 }",
    ]
