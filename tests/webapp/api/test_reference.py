"""The page /api/docs: all of the OpenAPI document, in the shell of the dashboard."""

import re
from html import unescape

import pytest

from tidegauge.webapp.api.reference import type_of

HTML_ID = re.compile(r'\bid="([^"]+)"')
SUMMARY = re.compile(r'<span class="muted">([^<]+)</span></summary>')


@pytest.fixture
def page(client, db) -> str:
    """As a visitor sees it who is not signed in."""
    return client.get("/api/docs").content.decode()


@pytest.fixture
def document(client, db) -> dict:
    return client.get("/api/schema", headers={"Accept": "application/json"}).json()


def test_it_shows_every_call_and_every_schema(page, document):
    calls = [call for item in document["paths"].values() for call in item.values()]

    assert {call["operationId"] for call in calls} <= {*HTML_ID.findall(page)}
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= {*HTML_ID.findall(page)}
    assert {call["summary"] for call in calls} == {*SUMMARY.findall(unescape(page))}


def test_every_parameter_and_answer_of_a_call_is_described(page, document):
    call = document["paths"]["/api/v1/states/{name}/entries"]["get"]
    shown = page[page.index('id="list_entries"') :].split("</details>")[0]

    for parameter in call["parameters"]:
        assert f'<span class="mono">{parameter["name"]}</span>' in shown
    assert re.findall(r'<dt class="mono">(\d+)</dt>', shown) == sorted(call["responses"])
    assert "query, integer; from 1, to 1000" in shown


def test_a_call_with_a_body_has_a_curl_command_with_its_example(page):
    shown = unescape(page[page.index('id="look_up_state"') :].split("</details>")[0])

    assert 'curl -fsS "http://testserver/api/v1/states/{name}/lookup"' in shown
    assert """-d '{"keys": [["JFK", "AA"], ["JFK", "ZZ"]], "measures": ["flights"]}'""" in shown


def test_each_link_leads_to_something_on_this_server(client, page):
    links = re.findall(r'(?:src|href)="([^"]+)"', page)

    assert {link[1:] for link in links if link.startswith("#")} <= {*HTML_ID.findall(page)}
    others = {link for link in links if not link.startswith("#")}
    assert all(link.startswith("/") for link in others)
    assert {client.get(link, follow=True).status_code for link in others} == {200}


def test_no_id_occurs_twice(page):
    ids = HTML_ID.findall(page)

    assert len(ids) == len({*ids})


def test_a_reader_has_the_navigation_and_opens_answers(admin_client):
    page = admin_client.get("/api/docs").content.decode()

    assert '<a class="wide-only" href="/api/docs" aria-current="page">API docs</a>' in page
    assert '<a class="button" href="/api/v1/states">Open the response</a>' in page


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": ["string", "null"], "format": "date-time"}, "string (date-time) or null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Run"}}, 'list of <a href="#schema-Run">Run</a>'),
        ({"oneOf": [{"type": "integer"}, {"enum": ["committed"]}]}, "integer or <code>committed</code>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"enum": ["<b>"]}, "<code>&lt;b&gt;</code>"),
        ({}, "any JSON value"),
    ],
)
def test_types_are_shown_in_words(schema, shown):
    assert type_of(schema) == shown
