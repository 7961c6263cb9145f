import gzip
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import call_command
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from tidegauge.state_backends import BACKENDS
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api import general_openapi
from tidegauge.webapp.api.views import reference as reference_views
from tidegauge.webapp.events.subscriptions import PARAMETERS


def test_the_schema_is_valid_and_raises_no_warning(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yaml"))

    assert "/api/v1/states/{name}/lookup" in (tmp_path / "schema.yaml").read_text()


def test_the_schema_needs_no_api_key(db):
    schema = Client().get("/api/schema", headers={"Accept": "application/json"}).json()

    query = schema["paths"]["/api/v1/states/{name}/lookup"]["post"]
    refusals = {"400", "401", "403", "404", "406", "408", "409", "410", "413", "415", "429", "503", "504"}
    assert set(query["responses"]) == {"200", "304"} | refusals
    assert {"bearer": []} in query["security"]
    assert {"X-Api-Key": []} in query["security"]
    assert query["requestBody"]["content"]["application/json"]["examples"]


def test_every_call_parameter_and_answer_has_a_text_for_users(db):
    schema = Client().get("/api/schema", headers={"Accept": "application/json"}).json()

    calls = {f"{method} {path}": call for path, item in schema["paths"].items() for method, call in item.items()}
    texts = {name: [call["summary"], call.get("description", "")] for name, call in calls.items()}
    for name, call in calls.items():
        texts |= {f"{name} {each['name']}": [each.get("description", "")] for each in call.get("parameters", [])}
        texts |= {f"{name} {status}": [each["description"]] for status, each in call["responses"].items()}
    of_maintainers = re.compile("DRF|Django|serializer")
    assert len(calls) > 20
    assert [name for name, each in texts.items() if not all(each) or of_maintainers.search(str(each))] == []


def test_an_empty_filter_counts_as_absent_and_is_described(db, api):
    schema = Client().get("/api/schema", headers={"Accept": "application/json"}).json()

    parameters = {each["name"]: each for each in schema["paths"]["/api/v1/maintenance"]["get"]["parameters"]}
    for name in ("kind", "status"):
        assert "" in parameters[name]["schema"]["enum"]
        assert api.ask("GET", f"/maintenance?{name}=").status_code == 200


def test_a_backend_that_is_registered_later_is_in_the_schema(db, monkeypatch):
    Client().get("/api/schema")
    monkeypatch.setitem(BACKENDS, "later", BACKENDS["postgres"])

    schema = Client().get("/api/schema", headers={"Accept": "application/json"}).json()

    assert "later" in str(schema["components"]["schemas"])


@pytest.mark.parametrize("path", ["/api/docs", "/api/schema", "/api/v1/states"])
def test_options_lists_the_methods(client, db, path):
    client.raise_request_exception = False
    headers = {"X-Api-Key": create_api_key("reader", ["read"])[1]}

    response = client.options(path, headers=headers)

    assert (response.status_code, response.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize("path", ["/api/docs", "/api/schema"])
def test_a_wrong_method_is_a_problem_whatever_the_call_answers(client, db, path):
    response = client.post(path)

    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == 405


def test_the_event_streams_are_described_at_the_address_of_their_process(client, db, settings):
    settings.TIDEGAUGE_EVENTS_URL = "https://events.example"

    schema = client.get("/api/schema", headers={"Accept": "application/json"}).json()

    assert schema["servers"][0]["url"] == "/"
    for path in ("/events/states/{name}", "/events/tide"):
        described = schema["paths"][path]["get"]
        assert described["servers"][0]["url"] == "https://events.example"
        assert "text/event-stream" in described["responses"]["200"]["content"]
        assert "application/problem+json" in described["responses"]["401"]["content"]
    parameters = {parameter["name"] for parameter in schema["paths"]["/events/states/{name}"]["get"]["parameters"]}
    assert parameters == {"name", "token", "Last-Event-ID", *PARAMETERS}


def test_a_format_that_is_asked_for_counts_beside_an_accept_of_anything(client, db):
    answer = client.get("/api/schema?format=json", headers={"Accept": "*/*"})

    assert answer.json()["openapi"].startswith("3.")


@pytest.mark.parametrize("path", ["/api/schema", "/api/docs"])
def test_strangers_make_a_process_build_it_once_however_many_ask_at_once(db, monkeypatch, path):
    general_openapi.document.cache_clear()
    reference_views._rendered.cache_clear()
    reference_views._arranged.cache_clear()
    reference_views._for_strangers.cache_clear()
    built = []
    get_schema = SchemaGenerator.get_schema
    monkeypatch.setattr(SchemaGenerator, "get_schema", lambda *a, **k: built.append(1) or get_schema(*a, **k))

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda _: Client().get(path).status_code, range(12)))

    assert (set(statuses), len(built)) == ({200}, 1)


def test_it_is_sent_compressed_and_not_again_to_who_has_it(client, db):
    plain = client.get("/api/schema", headers={"Accept": "application/json"})
    short = client.get("/api/schema", headers={"Accept": "application/json", "Accept-Encoding": "gzip"})

    assert gzip.decompress(short.content) == plain.content
    assert "Accept-Encoding" in short.headers["Vary"]
    again = client.get("/api/schema", headers={"Accept": "application/json", "If-None-Match": plain.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
