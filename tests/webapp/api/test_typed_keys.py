"""Every type of key column, from JSON to the table and back."""

import pytest

from tests.webapp.api.states import add_state
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.spec.types import KEY_TYPES

# SQL type to pairs: as a client sends it, as it is answered.
WRITTEN = {
    "text": [("plain", "plain"), ("", ""), ("ÅÄÖ 🛫", "ÅÄÖ 🛫"), ('quote " \\ [', 'quote " \\ [')],
    "bigint": [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (0, 0)],
    "integer": [(2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))],
    "double precision": [(0.1, 0.1), (1e300, 1e300), (-2.5, -2.5), (3, 3), ("NaN", "NaN"), ("-Infinity", "-Infinity")],
    "boolean": [(True, True), (False, False)],
    "timestamptz": [
        ("2013-01-01T05:00:00Z", "2013-01-01T05:00:00+00:00"),
        ("2013-01-01T05:00:00.000001+05:30", "2012-12-31T23:30:00.000001+00:00"),
    ],
    "date": [("2013-02-28", "2013-02-28")],
    "uuid": [("6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff-8b86-d011-b42d-00c04fc964ff")],
}

WRONG = {
    "text": [1, None, True, ["a"]],
    "bigint": [2**63, 1.5, "1", True, None],
    "integer": [2**31, "1"],
    "double precision": ["0.1", "nan", True, None],
    "boolean": [1, "true", None],
    "timestamptz": ["2013-01-01T05:00:00", "noon", 0],
    "date": ["2013-02-30", "yesterday", 20130228],
    "uuid": ["6F9619FF", 7],
}


@pytest.fixture(params=KEY_TYPES)
def sql_type(request) -> str:
    return request.param


@pytest.fixture
def typed(filled, sql_type) -> StateSpec:
    spec = StateSpec("typed", key={"part": sql_type}, measures={"seen": Count()})
    rows = {spec.check_key([written]): {"seen": n} for n, (written, _) in enumerate(WRITTEN[sql_type], 1)}
    add_state(filled.conn, spec, rows)
    return spec


def test_a_key_of_every_type_is_found_and_answered_in_one_form(api, typed, sql_type):
    keys = [[written] for written, _ in WRITTEN[sql_type]]

    results = api.ask("POST", "/states/typed/lookup", {"keys": keys}).json()["results"]

    assert [(result["key"], result["status"], result["value"]) for result in results] == [
        ([answered], "found", {"seen": n}) for n, (_, answered) in enumerate(WRITTEN[sql_type], 1)
    ]


def test_an_answered_key_can_be_sent_as_it_is(api, typed, sql_type):
    entries = api.ask("GET", "/states/typed/entries").json()["entries"]

    again = api.ask("POST", "/states/typed/lookup", {"keys": [entry["key"] for entry in entries]}).json()["results"]

    assert len(entries) == len(WRITTEN[sql_type])
    assert [(result["key"], result["value"]) for result in again] == [
        (entry["key"], entry["value"]) for entry in entries
    ]


def test_a_key_of_another_type_is_a_400_that_names_the_type(api, typed, sql_type):
    for wrong in WRONG[sql_type]:
        response = api.ask("POST", "/states/typed/lookup", {"keys": [[wrong]]})

        assert (response.status_code, response.json()["index"]) == (400, 0), wrong
        assert "part must be" in response.json()["detail"]
