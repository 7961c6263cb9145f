import pytest

from tests.webapp.flights import BY_CARRIER
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.webapp.console.dashboard.pasted import PastedKey, pasted_keys, pasted_prefix

COUNTED = {"seen": Count()}
BY_PAGE = StateSpec("by_page", key={"page": "text"}, measures=COUNTED)
MIXED = StateSpec("mixed", key={"n": "bigint", "on": "boolean", "share": "double precision"}, measures=COUNTED)


def found(text: str, spec: StateSpec = BY_CARRIER) -> list:
    return [line.key for line in pasted_keys(text, spec)]


@pytest.mark.parametrize(
    "text",
    [
        "JFK,AA\nEWR,UA",
        "JFK, AA\r\nEWR, UA\r\n",
        "JFK\tAA\nEWR\tUA",
        '"JFK","AA"\n"EWR","UA"',
        '["JFK", "AA"]\n["EWR", "UA"]',
        '["JFK", "AA"],\n["EWR", "UA"],',
        '[["JFK", "AA"],\n ["EWR", "UA"]]',
        "origin,carrier\nJFK,AA\nEWR,UA",
        "\n\n  JFK,AA\n\nEWR,UA\n",
    ],
)
def test_csv_tsv_and_json_give_the_same_keys(text):
    assert found(text) == [("JFK", "AA"), ("EWR", "UA")]


def test_lines_are_numbered_as_they_were_pasted():
    lines = pasted_keys("origin,carrier\n\nJFK,AA\nJFK\n", BY_CARRIER)

    assert [(line.line, line.text) for line in lines] == [(3, "JFK,AA"), (4, "JFK")]


def test_parts_are_read_by_the_types_of_their_columns():
    assert found("7,TRUE,2.5\n-1,false,3", MIXED) == [(7, True, 2.5), (-1, False, 3.0)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("JFK", "expected 2 parts (origin, carrier), got 1"),
        ("JFK,AA,B6", "expected 2 parts (origin, carrier), got 3"),
        ('["JFK", 7]', "carrier must be text, got 7"),
        ('["JFK"', "not a valid JSON list (unexpected end of data: line 1 column 7 (char 6)); write it"),
    ],
)
def test_an_invalid_line_has_the_reason(line, error):
    [pasted] = pasted_keys(line, BY_CARRIER)

    assert pasted.key is None
    assert pasted.error.startswith(error)


def test_a_text_in_a_number_column_is_invalid():
    assert pasted_keys("many,true,1", MIXED) == [PastedKey(1, "many,true,1", None, "n must be bigint, got 'many'")]


def test_the_only_part_of_a_key_may_hold_commas():
    assert found('/a,b\n"/c, d"\n["/e"]', BY_PAGE) == [("/a,b",), ("/c, d",), ("/e",)]


def test_a_prefix_is_written_like_a_key():
    assert pasted_prefix("JFK", BY_CARRIER) == ("JFK",)
    assert pasted_prefix(' ["JFK", "AA"] ', BY_CARRIER) == ("JFK", "AA")
    assert pasted_prefix("  ", BY_CARRIER) == ()
    with pytest.raises(KeyShapeError, match="prefix: expected a list of at most 2 parts"):
        pasted_prefix("a,b,c", BY_CARRIER)
