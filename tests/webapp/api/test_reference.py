"""The pages /api/docs: all of the OpenAPI document, in the shell of the dashboard, and a page for each call."""

import re
from html import unescape

import pytest
from django.test import Client

from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.api.reference import type_of

HTML_ID = re.compile(r'\bid="([^"]+)"')
FIELD = re.compile(r'name="([^"]+)" data-place="([^"]+)" value="([^"]*)"')
# Calls about what there is none of among the flights, or what the reader has to name, and streams of another process.
LACKING = re.compile("_run$|saved_query|revoke_token|follow_|fold_windows")


@pytest.fixture
def page(client, db) -> str:
    """The list of all calls, as a visitor sees it who is not signed in."""
    return client.get("/api/docs").content.decode()


@pytest.fixture
def document(client, db) -> dict:
    return client.get("/api/schema", headers={"Accept": "application/json"}).json()


def operations(document: dict) -> dict[str, dict]:
    return {call["operationId"]: call for item in document["paths"].values() for call in item.values()}


def shown(client: Client, operation_id: str, **asked: str) -> str:
    answer = client.get(f"/api/docs/{operation_id}", asked)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def run(client: Client, operation_id: str, **asked: str):
    """Send what the button on the page of a call sends."""
    html = client.get(f"/api/docs/{operation_id}", asked).content.decode()
    address = unescape(re.search(r'data-run="([^"]*)"', html)[1]).removeprefix("http://testserver")
    method = re.search(r'data-method="(\w+)"', html)[1]
    body = re.search(r'<textarea id="call-body"[^>]*>([^<]*)<', html)
    return client.generic(method, address, unescape(body[1]) if body else "", content_type="application/json")


def test_the_list_has_every_call(page, document):
    assert operations(document).keys() <= {*HTML_ID.findall(page)}
    for operation_id, call in operations(document).items():
        assert f'href="/api/docs/{operation_id}">' in page
        assert call["summary"] in unescape(page)


def test_the_page_of_a_call_describes_it_with_its_schemas_in_place(client, document):
    for operation_id, call in operations(document).items():
        text = shown(client, operation_id)
        for parameter in call.get("parameters", []):
            assert f">{parameter['name']}</label>" in text
        assert re.findall(r'<div><dt class="mono">(\d+)</dt>', text) == sorted(call["responses"])
        assert "data-run" not in text
    assert "query, integer; from 1, to 1000" in shown(client, "list_entries")
    assert "committed_txid" in shown(client, "list_pipelines")


def test_a_call_with_a_body_has_a_curl_command_with_its_example(client, db):
    text = shown(client, "look_up_state")

    assert 'curl -fsS "http://testserver/api/v1/states/{name}/lookup"' in text
    assert """-d '{"keys": [["JFK", "AA"], ["JFK", "ZZ"]], "measures": ["flights"]}'""" in text


def test_every_call_runs_as_it_is_filled_in_with_a_state_and_a_key_of_the_reader(filled, admin_client, document):
    runnable = [each for each in operations(document) if not LACKING.search(each)]

    found = {operation_id: run(admin_client, operation_id).status_code for operation_id in runnable}

    assert found.pop("create_token") == 403  # with an API key alone
    assert found.pop("replay_dead_letters") == 409  # as there are none
    assert found.pop("expire_state") == 409  # as the compaction before is queued
    assert {operation_id: status for operation_id, status in found.items() if status not in (200, 202)} == {}


def test_another_state_is_filled_in_if_its_reader_sees_it(filled, reader, django_user_model):
    assert run(reader, "look_up_state", state="totals").json()["results"][0]["key"] == []
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    text = shown(reader, "look_up_state", state="flights_by_carrier")

    assert "<option>flights_by_carrier" not in text
    assert "/api/v1/states/totals/lookup" in text


def test_a_call_that_changes_something_is_marked_and_a_lookup_is_not(filled, admin_client):
    assert "data-changes" in shown(admin_client, "pause_pipeline")
    assert "data-changes" not in shown(admin_client, "look_up_state")


def test_a_call_that_does_not_exist_is_missing(client, db):
    assert client.get("/api/docs/nothing").status_code == 404


def test_each_link_leads_to_something_on_this_server(client, page, document):
    pages = [page, *(client.get(f"/api/docs/{each}").content.decode() for each in ("look_up_state", "list_runs"))]
    links = {link for text in pages for link in re.findall(r'(?:src|href)="([^"#]+)', text)}

    assert all(link.startswith("/") for link in links)
    assert {client.get(link, follow=True).status_code for link in links} == {200}


def test_no_id_occurs_twice(filled, admin_client, page):
    for text in (page, shown(admin_client, "list_entries"), shown(admin_client, "look_up_states")):
        ids = HTML_ID.findall(text)
        assert len(ids) == len({*ids})


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": ["string", "null"], "format": "date-time"}, "string (date-time) or null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Run"}}, "list of Run"),
        ({"oneOf": [{"type": "integer"}, {"enum": ["committed"]}]}, "integer or <code>committed</code>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"enum": ["<b>"]}, "<code>&lt;b&gt;</code>"),
        ({}, "any JSON value"),
    ],
)
def test_types_are_shown_in_words(schema, shown):
    assert type_of(schema, {}) == shown
