"""The OpenAPI document of a saved query: valid, true of the answers, and good enough to generate a client from."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from tests.webapp.api.saved_queries.published import SHARE, TOP, published
from tests.webapp.api.states import add_state
from tests.webapp.generated_client import generated_client
from tidegauge.state_backends import DistinctCount, Max, StateSpec, Sum, TopK
from tidegauge.webapp.accounts.services import create_api_key

PACKAGE = "saved_query_client"
TYPED = {
    "parameters": {
        f"p{n}": {"type": kind, "default": default}
        for n, (kind, default) in enumerate({
            "text": "a", "bigint": 1, "integer": 1, "boolean": True, "double precision": 0.5, "numeric": "0.10",
            "timestamptz": "2013-01-01T05:00:00Z", "date": "2013-01-01", "uuid": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        }.items())
    },
    "reads": [{"state": "typed", "where": [
        "t>={p0}", "n>={p1}", "i>={p2}", "b={p3}", "x>={p4}", "c>={p5}", "at>={p6}", "d>={p7}", "u={p8}",
    ]}],
}  # fmt: skip


def document(api, name, **options):
    response = api.ask("GET", f"/saved-queries/{name}/openapi", **options)
    assert response.status_code == 200, response.content
    return response.json()


@pytest.fixture
def typed(filled):
    key = {"t": "text", "n": "bigint", "i": "integer", "b": "boolean", "d": "date", "u": "uuid"}
    measures = {
        "x": Max("x"), "c": Sum("c", type="numeric"), "at": Max("at", type="timestamptz"), "top": TopK("t"),
        "users": DistinctCount("t"),
    }  # fmt: skip
    add_state(filled.conn, StateSpec("typed", key=key, measures=measures), {})
    published("typed", TYPED)


def test_it_is_valid_and_has_the_parameters_of_the_query_with_their_types(filled, typed, api):
    published(description="The busiest carriers\nof an airport")
    published("share", SHARE)

    for name in ("top", "share", "typed"):
        validate_schema(document(api, name))

    found = document(api, "top")
    operation = found["paths"]["/api/v1/saved-queries/top/versions/1"]["get"]
    parameters = {each["name"]: each for each in operation["parameters"]}
    assert (found["info"]["title"], found["info"]["version"]) == ("top", "1")
    assert operation["summary"] == "The busiest carriers"
    assert (parameters["origin"]["required"], parameters["origin"]["schema"]) == (True, {"type": "string"})
    assert parameters["least"]["schema"] == {"type": "integer", "format": "int64", "default": 0}
    assert parameters["cursor"]["required"] is False


def test_its_server_is_the_one_that_it_is_read_from(filled, api, settings):
    settings.ALLOWED_HOSTS = ["*"]
    published()

    for host in ("localhost:8000", "internal:8000"):
        assert document(api, "top", headers={"Host": host})["servers"] == [{"url": "/"}]


def test_an_answer_is_what_it_says(filled, api):
    published()
    published("share", SHARE)
    for name, asked in (("top", "origin=EWR"), ("share", "carrier=C01&carrier=C02&carrier=ZZ")):
        schemas = document(api, name)["components"]
        answer = api.ask("GET", f"/saved-queries/{name}?{asked}").json()

        validator = Draft202012Validator(schemas["schemas"]["Result"] | {"components": schemas})
        assert list(validator.iter_errors(answer)) == []


@pytest.fixture
def generated(lasting, api, tmp_path) -> Iterator[ModuleType]:
    published("top-carriers", TOP)
    with generated_client(document(api, "top-carriers"), PACKAGE, tmp_path) as package:
        yield package


def test_a_client_generated_from_it_runs_the_query(generated, live_server):
    _, token = create_api_key("program", ["read"])
    call = importlib.import_module(f"{PACKAGE}.api.default.top_carriers")
    with generated.AuthenticatedClient(live_server.url, token, headers={"Connection": "close"}) as client:
        found = call.sync(client=client, origin="EWR", least=99)
        wrong = call.sync(client=client, origin="EWR", at_txid=99)

    assert [entry.value.flights for entry in found.answers[0].entries] == [1100, 99]
    assert (found.query, found.version, found.answers[0].next_) == ("top-carriers", 1, None)
    assert (wrong.status, "not committed" in wrong.detail) == (409, True)
