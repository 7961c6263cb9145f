"""Query parameters that a call does not know are refused, on every path: what they were meant to change would not."""

import pytest
from django.test import Client
from django.urls import reverse

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.urls import API

ARGUMENTS = {"name": "flights_by_carrier", "run_id": 1, "key": "JFK/C01", "version": 1, "token_id": "1"}
# Each saved query declares its own parameters: tests/webapp/api/saved_queries.
WITH_OWN = {"saved_query", "saved_query_version"}


@pytest.fixture
def owner(db) -> Client:
    authentication.clear_cache()
    return Client(headers={"X-Api-Key": create_api_key("owner", Scope.values)[1]})


CALLS = [
    pytest.param(method.upper(), pattern, id=f"{method} {pattern.name}")
    for pattern in API
    for method in ("get", "post", "delete")
    if hasattr(pattern.callback.view_class, method) and pattern.name not in WITH_OWN
]


@pytest.mark.parametrize(("method", "pattern"), CALLS)
def test_an_unknown_parameter_is_a_400_that_names_it_and_the_known_ones(owner, method, pattern):
    arguments = {name: ARGUMENTS[name] for name in pattern.pattern.converters}
    path = reverse(f"lookup:{pattern.name}", kwargs=arguments)

    response = owner.generic(method, f"{path}?prefx=1", b"{}", content_type="application/json")

    assert response.status_code == 400
    assert response.json()["detail"].startswith("unknown parameter 'prefx'; there are ")


def test_a_call_without_parameters_says_so(keeper):
    response = keeper.get("/api/v1/states?order=name&a=1")

    assert response.json()["detail"] == "unknown parameter 'a', 'order'; there are none"


def test_a_preflight_may_carry_the_parameters_of_its_request(keeper):
    assert keeper.options("/api/v1/states?prefx=1").status_code == 204


@pytest.mark.parametrize("method", ["TRACE", "PUT", "PATCH"])
def test_a_method_that_a_path_lacks_is_a_405_whatever_its_parameters(keeper, method):
    assert keeper.generic(method, "/api/v1/states/totals/export?format=csv&where=0").status_code == 405
