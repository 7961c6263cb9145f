import json

import pytest

from tidegauge.webapp.console.dashboard.letter_marks import marked_line

LONG = json.dumps({"origin": "x" * 300, "n": "nine", "rest": "y" * 300})


@pytest.mark.parametrize(
    ("line", "reason", "marked"),
    [
        ('{"a": 1, "n": "nine", "b": 2}', 'n: expected int, got "nine"', '"n": "nine"'),
        ('{"a": "n", "n": null}', "n: required, and absent or null", '"n": null'),
        ('{"n": 9e99}', "measure total: n does not fit numeric(9, 2): 9e99", '"n": 9e99'),
        ('{"k": null}', "key column k is null", '"k": null'),
        (LONG, 'n: expected int, got "nine"', '"n": "nine"'),
        ("JFK;nine;2", "n: expected int, got nine", "nine"),
        ("nine;nine;2", "n: expected int, got nine", ""),
        ('{"a": 1', "not JSON: Expecting ',' delimiter at column 8", "1"),
        ('{"a" 1}', "not JSON: Expecting ':' delimiter at column 6", "1"),
        ("{", "unreadable", ""),
        ('{"a": 1}', "n: required, and absent or null", ""),
        ("", "not JSON: Expecting value at column 1", ""),
    ],
)
def test_the_field_of_the_reason_is_marked(line, reason, marked):
    found = marked_line(line, reason)

    assert found.marked == marked
    whole = f"{found.before}{found.marked}{found.after}"
    assert whole.strip("…") in line
    assert len(whole) <= 165
