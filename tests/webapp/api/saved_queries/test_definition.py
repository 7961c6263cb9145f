"""Definitions: what is refused before anyone can publish it, and what parameters take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.spec.types import TYPES
from tidegauge.webapp.api.saved_queries.definition import Definition
from tidegauge.webapp.api.saved_queries.parameters import DefinitionError, Parameter, ParameterError, as_condition

READ = {"state": "s", "keys": [["{a}"]]}
TEXT = {"a": {"type": "text"}}


def definition(parameters=TEXT, *reads):
    return {"parameters": parameters, "reads": list(reads) or [READ]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the definition must be an object"),
        ({"reads": []}, "reads must be a list of 1 to 20"),
        ({"sql": "SELECT 1", "reads": [READ]}, "unknown member 'sql'"),
        (definition({"a": {"type": "jsonb"}}), "parameter 'a' has type 'jsonb'"),
        (definition({"a": "text"}), "parameter 'a' must be an object"),
        (definition({"at_txid": {"type": "bigint"}}), "invalid name"),
        (definition({"A b": {"type": "bigint"}}), "invalid name"),
        (definition({"a": {"type": "bigint", "default": "x"}}), "its default does not fit"),
        (definition({**TEXT, "b": {"type": "text"}}), "parameter 'b' is not used"),
        (definition({}), "no parameter 'a'"),
        (definition(TEXT, {"state": "s", "keys": []}), r"reads\[0\]: keys must be a list"),
        (definition(TEXT, READ, {"keys": [["{a}"]]}), r"reads\[1\]: state must be"),
        (definition(TEXT, {**READ, "where": ["n>1"]}), "unknown member 'where'"),
        (definition(TEXT, READ, {"state": "s", "where": ["n~1"]}), "where: 'n~1' is not a condition"),
        (definition(TEXT, READ, {"state": "s", "limit": 0}), "limit must be a whole number from 1 to 1000"),
        (definition(TEXT, READ, *[{"state": "s"}] * 6), "at most 5"),
        (definition({"a": {"type": "text", "many": True}}, {"state": "s", "prefix": ["{a}"]}), "many values"),
        (definition({"a": {"type": "text", "many": True}}, {"state": "s", "where": ["k={a}"]}), "many values"),
    ],
)
def test_a_malformed_definition_is_refused_with_the_part_that_is_wrong(document, message):
    with pytest.raises(DefinitionError, match=message):
        Definition.parse(document)


def test_a_parameter_stands_for_its_value_as_a_whole_and_braces_can_be_escaped():
    found = Definition.parse(
        definition(TEXT, {"state": "s", "keys": [["{a}", "x{a}", "{{a}}"]]}, {"state": "s", "where": ["k=x{a}"]})
    )

    assert found.reads[0].typed_keys({"a": "v"}) == [["v", "x{a}", "{a}"]]
    assert found.reads[1].typed_where({"a": "v"}) == [Filter("k", "=", "x{a}")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bigint", "1.5"), ("bigint", "9223372036854775808"), ("double precision", "NaN"), ("numeric", "Infinity"),
        ("boolean", "1"), ("timestamptz", "2013-01-01T05:00:00"), ("uuid", "x"), ("text", "\0"), ("date", ""),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_parameter_and_type(kind, text):
    with pytest.raises(ParameterError, match=f"parameter 'a' must be {kind}"):
        Parameter("a", TYPES[kind]).read([text])


def test_a_value_is_given_once_unless_the_parameter_has_many():
    with pytest.raises(ParameterError, match="given 2 times; give it once"):
        Parameter("a", TYPES["text"]).read(["x", "y"])
    assert Parameter("a", TYPES["text"], many=True).read(["x", "y"]) == ["x", "y"]
    with pytest.raises(ParameterError, match="parameter 'a' is required, a value of type text"):
        Parameter("a", TYPES["text"]).read([])


@given(st.text(), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
def test_a_value_stays_one_value_of_a_condition_whatever_it_holds(value, operator):
    assert Filter.parse(as_condition(Filter("k", operator, value))) == Filter("k", operator, value)
    assert Filter.parse(as_condition(Filter("k", "in", [value, "x"]))) == Filter("k", "in", [value, "x"])
