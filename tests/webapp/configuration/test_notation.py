import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.webapp.configuration.notation import NotationError, as_json, as_yaml, parse

TEXTS = st.text(st.characters(blacklist_categories=("Cs",))) | st.sampled_from(
    ["NO", "on", "12:30", "010", "1e5", "1_000", "2027-01-01", "~", "null", "true", ".inf", "=", "<<", "0x1F", "- a"]
)
NUMBERS = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_written_is_read_as_it_was(value):
    assert parse(as_json(value)) == value
    assert repr(parse(as_yaml(value))) == repr(value)


@pytest.mark.parametrize("text", ["NO", "off", "12:30", "010", "2027-01-01", "1_000", "0x1F", ".nan"])
def test_what_only_old_yaml_takes_for_something_else_is_text(text):
    assert parse(f"[{text}]") == [text]


def test_what_json_has_is_read_the_same_in_yaml():
    assert parse("[1, -2.5, 1e3, true, null, a]") == [1, -2.5, 1000.0, True, None, "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "line 2, column 1: 'a' is there twice"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ("a: &x 1\nb: *x\n", "line 2, column 4: an alias is not allowed; write the value again"),
        ("a: [", "line 1, column 5: "),
        ("a: !!python/object:os.system {}", "line 1, column 4: could not determine a constructor"),
        ("a: \0", "special characters are not allowed"),
    ],
)
def test_what_could_be_misread_is_refused_with_its_place(text, message):
    with pytest.raises(NotationError) as refused:
        parse(text)

    assert message in str(refused.value)


def test_what_is_nested_too_deeply_is_refused():
    with pytest.raises(NotationError, match="it is nested too deeply"):
        parse("[" * 5_000)
