import pytest

from tests.webapp.configuration.conftest import HOOK, document
from tidegauge.webapp.configuration.errors import ConfigurationError

KEYS = {"api_keys": {"board": {}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "1.yaml: the document must be a mapping, which is {} if it is empty"),
        ({"keys": {}}, "1.yaml: unknown kind 'keys'; there are saved_queries, webhooks, alert_rules, api_keys, "
                       "pipeline_limits, states, schedule"),
        ({"api_keys": None}, "1.yaml: api_keys must be a mapping, which is {} if it is empty"),
        ({"api_keys": {1: {}}}, "1.yaml: api_keys: 1 must be text; write it in quotes"),
        ({"api_keys": {"board": {"scope": []}}}, "1.yaml: api_keys: 'board': unknown field 'scope'; there are scopes, "
                                                 "states, key_prefix, queries, rate, burst, expires_at"),
        ({"webhooks": {"ops": {}}}, "1.yaml: webhooks: 'ops': url is missing"),
        ({"api_keys": {"board": {"rate": "9"}}}, "1.yaml: api_keys: 'board': rate must be a whole number, got str"),
        ({"api_keys": {"board": {"rate": True}}}, "1.yaml: api_keys: 'board': rate must be a whole number, got bool"),
        ({"states": {"totals": {"retention": "1 week"}}}, "1.yaml: states: 'totals': retention must be a length of "
         "time such as 10 minutes, in one unit from seconds to days, or unlimited, got str"),
        ({"api_keys": {"board": {"expires_at": "2027-01-01"}}}, "1.yaml: api_keys: 'board': expires_at must be a time "
         "with a time zone, such as 2027-01-01T00:00:00Z, got str"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_of_another_type_is_refused_with_its_place(content, message):
    with pytest.raises(ConfigurationError) as refused:
        document(content)

    assert str(refused.value) == message


def test_several_files_are_one_document():
    found = document(KEYS, {"webhooks": {"ops": HOOK}}, {"api_keys": {"feed": {}}})

    assert {kind: {name: each.file for name, each in named.items()} for kind, named in found.items()} == {
        "api_keys": {"board": "1.yaml", "feed": "3.yaml"}, "webhooks": {"ops": "2.yaml"},
    }  # fmt: skip


def test_a_name_in_two_files_is_refused_naming_both():
    with pytest.raises(ConfigurationError, match=r"'board' is declared in 1\.yaml and again in 3\.yaml; remove one"):
        document(KEYS, {}, KEYS)


def test_equal_values_have_one_form():
    board = {"states": ["b", "a", "b"], "expires_at": "2027-01-01T01:00:00+01:00"}
    found = document({"api_keys": {"board": board}, "states": {"a": {"retention": "24 hours"}}})

    assert found["api_keys"]["board"].fields["states"] == ["a", "b"]
    assert found["api_keys"]["board"].fields["expires_at"] == "2027-01-01T00:00:00Z"
    assert found["states"]["a"].fields["retention"] == "1 day"
