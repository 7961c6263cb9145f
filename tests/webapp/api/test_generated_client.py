"""A typed client generated from /api/schema, used as in a program of a user."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.docs.blocks import program
from tests.webapp.generated_client import generated_client
from tidegauge.webapp.accounts.services import create_api_key

pytestmark = pytest.mark.processes

PACKAGE = "tidegauge_api"  # as on the page
PAGE = "generated-clients.md"

# The generator knows neither type: files are text or bytes to it.
FILES = """
content_type_overrides:
  application/x-ndjson: text/plain
  application/vnd.apache.arrow.stream: application/octet-stream
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Iterator[ModuleType]:
    document = SchemaGenerator().get_schema(request=None, public=True)
    with generated_client(document, PACKAGE, tmp_path_factory.mktemp("client"), settings=FILES) as package:
        yield package


@pytest.fixture
def client(generated, lasting, live_server):
    _, token = create_api_key("program", ["read"])
    with generated.AuthenticatedClient(live_server.url, token, headers={"Connection": "close"}) as client:
        yield client


def call(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.api.states.{name}")


def models() -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.models")


def test_keys_are_looked_up(client):
    body = models().LookupRequest(keys=[["JFK", "C01"], ["JFK", "ZZ"]], measures=["flights"], min_txid=2)

    answer = call("look_up_state").sync("flights_by_carrier", client=client, body=body)

    assert isinstance(answer, models().StateAnswer)
    assert (answer.txid, answer.isolation.value) == (2, "committed")
    assert [(result.key, result.status.value, result.value) for result in answer.results] == [
        (["JFK", "C01"], "found", {"flights": 99}),
        (["JFK", "ZZ"], "missing", None),
    ]


def test_several_states_are_looked_up_at_one_batch(client):
    lookups = [
        models().LookupOfStateRequest(state="totals", keys=[[]]),
        models().LookupOfStateRequest(state="flights_by_carrier", keys=[["JFK", "C01"], ["EWR", "C01"]], combine=True),
    ]

    answer = call("look_up_states").sync(client=client, body=models().LookupsRequest(lookups=lookups))

    assert answer.txid == 2
    assert answer.answers[0].results[0].value == {"flights": 6130}
    assert answer.answers[1].combined.value["flights"] == 198


def test_pages_are_followed_by_their_cursor(client):
    listed, cursor = [], {}
    while True:
        page = call("list_entries").sync("flights_by_carrier", client=client, limit=25, order_by="-flights", **cursor)
        listed += [entry.value["flights"] for entry in page.entries]
        if page.next_ is None:
            break
        cursor = {"cursor": page.next_}

    assert len(listed) == 60
    assert listed == sorted(listed, reverse=True)


def test_a_history_is_read(client):
    history = call("get_history").sync("flights_by_carrier", client=client, key='["EWR", "C00"]')

    assert [(version.txid, version.value["flights"]) for version in history.versions] == [(2, 1100), (1, 100)]


def test_a_problem_is_a_value_that_says_what_is_wrong(client):
    body = models().LookupRequest(keys=[["JFK", "C01"], ["JFK"]])

    problem = call("look_up_state").sync("flights_by_carrier", client=client, body=body)

    assert isinstance(problem, models().Problem)
    assert (problem.status, problem.index) == (400, 1)
    assert problem.detail == "key 1: expected 2 parts (origin, carrier), got 1"


def test_a_known_answer_is_a_304_without_a_body(client):
    ask = call("look_up_state").sync_detailed
    body = models().LookupRequest(keys=[["JFK", "C01"]])
    etag = ask("flights_by_carrier", client=client, body=body).headers["ETag"]

    again = ask("flights_by_carrier", client=client, body=body, if_none_match=etag)

    assert (int(again.status_code), again.content) == (304, b"")


def test_the_example_of_the_page_runs(generated, lasting, live_server, monkeypatch, capsys):
    monkeypatch.setenv("TIDEGAUGE_URL", live_server.url)
    monkeypatch.setenv("TIDEGAUGE_API_KEY", create_api_key("program", ["read"])[1])

    exec(compile(program(PAGE), PAGE, "exec"), {})  # noqa: S102

    assert capsys.readouterr().out == "['JFK', 'C01'] found {'flights': 99}\n['JFK', 'ZZ'] missing None\n"
