"""The tables among Pravega's worked cases: each row is a promise in a test, or has a reason why there is none."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "samza_pravega.json").read_text())["vectors"]


def rows_of(name: str) -> list[dict[str, Any]]:
    [rows] = [case["expect"]["rows"] for case in CASES if case["name"] == name]
    return rows


def assert_each_row_is_answered(name: str, answers: Sequence[Callable[..., None] | str]) -> None:
    """answers: per row of the table, in its order, the test that holds it or the reason why there is none."""
    assert len(rows_of(name)) == len(answers)
    for answer in answers:
        assert isinstance(answer, str) or answer.__name__.startswith("test_")
