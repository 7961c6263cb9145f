"""A state's own OpenAPI document: the calls of states with its address and its types."""

import importlib
from collections.abc import Iterator
from types import ModuleType
from urllib.parse import urlencode

import pytest
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.api.states import add_state
from tests.webapp.generated_client import generated_client
from tidegauge.state_backends import Count, StateSpec, Sum
from tidegauge.webapp.accounts.services import create_api_key

PACKAGE = "carriers_api"
STATE = "/states/flights_by_carrier"
KEY = urlencode({"key": '["JFK","C01"]'})


def document(api, path=STATE):
    response = api.ask("GET", f"{path}/openapi")
    assert response.status_code == 200, response.content
    return response.json()


def test_it_is_valid_and_has_all_calls_of_the_state_at_its_address(filled, api):
    found = document(api)

    validate_schema(found)
    whole = api.get("/api/schema?format=json").json()
    prefix = "/api/v1/states/{name}"
    paths = {path.removeprefix(prefix) for path in whole["paths"] if path.startswith(prefix)} - {"/openapi", "/windows"}
    assert len(paths) > 8
    assert {path.removeprefix(f"/api/v1{STATE}") for path in found["paths"]} == paths
    calls = [call for item in found["paths"].values() for call in item.values()]
    assert {each["name"] for call in calls for each in call["parameters"] if each["in"] == "path"} == set()
    assert "Pipeline" not in found["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/lookup", {"keys": [["JFK", "C01"], ["JFK", "ZZ"]]}),
        ("POST", "/lookup", {"keys": [["JFK", "C01"]], "measures": ["flights"]}),
        ("POST", "/lookup", {"keys": [["JFK", "C01"]], "combine": True}),
        ("GET", f"/keys?{KEY}", None),
        ("GET", "/entries?limit=3", None),
        ("GET", "/groups?by=origin", None),
        ("GET", f"/history?{KEY}", None),
        ("GET", f"/series?{KEY}", None),
    ],
)
def test_answers_are_what_it_says(filled, api, method, path, body):
    found = document(api)
    answer = api.ask(method, STATE + path, body).json()

    call = found["paths"][f"/api/v1{STATE}{path.partition('?')[0]}"][method.lower()]
    schema = call["responses"]["200"]["content"]["application/json"]["schema"] | {"components": found["components"]}
    assert list(Draft202012Validator(schema).iter_errors(answer)) == []


def test_types_that_another_state_has_do_not_fit(filled, api):
    add_state(filled.conn, StateSpec("typed", key={"k": "integer"}, measures={"n": Count(), "s": Sum("x")}), {})
    found = document(api, "/states/typed")
    schema = {"$ref": "#/components/schemas/Entry", "components": found["components"]}
    entry = {"key": [7], "value": {"n": 1, "s": 0.5}, "txid": 1, "updated_at": None}

    Draft202012Validator(schema).validate(entry)
    for wrong in ({"key": ["7"]}, {"key": [7, 8]}, {"value": {"n": "1"}}, {"value": 5}):
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate(entry | wrong)


def test_it_needs_access_to_the_state(filled, api):
    elsewhere = CheckedClient(create_api_key("elsewhere", ["read"], states=["totals"])[1])

    assert elsewhere.ask("GET", f"{STATE}/openapi").status_code == 403
    assert api.ask("GET", "/states/nothing/openapi").status_code == 404


@pytest.fixture
def generated(lasting, api, tmp_path) -> Iterator[ModuleType]:
    with generated_client(document(api), PACKAGE, tmp_path) as package:
        yield package


def test_a_client_generated_from_it_has_typed_values(generated, live_server):
    _, token = create_api_key("program", ["read"])
    call = importlib.import_module(f"{PACKAGE}.api.states.look_up_state")
    models = importlib.import_module(f"{PACKAGE}.models")
    with generated.AuthenticatedClient(live_server.url, token, headers={"Connection": "close"}) as client:
        answer = call.sync(client=client, body=models.LookupRequest(keys=[["EWR", "C00"]]))

    assert answer.results[0].value.flights == 1100
