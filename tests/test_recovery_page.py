"""docs/recovery.md: each finding is in its table of contents, and each message, command and statement has a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery_page import FINDINGS, PAGE, commands, messages, statements

MODULES = [
    ast.parse(text)
    for path in Path(__file__).parent.rglob("test_*.py")
    if "from tests.recovery_page import " in (text := path.read_text())
]


def calls(tree: ast.Module, function: str) -> Iterator[tuple[str, int]]:
    """Yield the finding and the number that each call of `function` names.

    A call with a variable stands for the keys of the module's dictionaries, as in a parametrized test.
    """
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            named, *number = node.args
            for finding in [named] if isinstance(named, ast.Constant) else keys:
                if isinstance(finding, ast.Constant):
                    yield finding.value, number[0].value if number else 1


def claimed(function: str) -> set[tuple[str, int]]:
    """Return what the tests name in calls of `function`."""
    return {call for module in MODULES for call in calls(module, function)}


@pytest.mark.parametrize("shown", [commands, statements])
def test_all_that_the_page_says_to_type_is_run_by_a_test(shown):
    findings = {(finding, 1) for finding in FINDINGS if shown(finding)}

    assert sorted(findings - claimed(shown.__name__)) == []


def test_each_message_of_the_page_is_compared_with_that_of_a_real_fault():
    shown = {(finding, number) for finding in FINDINGS for number, _ in enumerate(messages(finding), start=1)}

    assert sorted(shown - claimed("message_of")) == []


def test_the_tables_at_the_top_have_each_finding_once_with_words_of_its_messages():
    rows = re.findall(r"^\| (.*) \| \[(.*)\]\(#(.*)\) \|$", PAGE, re.MULTILINE)

    assert [finding for _, finding, _ in rows] == list(FINDINGS)
    for words, finding, anchor in rows:
        assert anchor == re.sub(r"[^\w -]", "", finding.lower()).replace(" ", "-")
        for fragment in re.findall(r"`([^`]*)`", words):
            assert fragment in " ".join(messages(finding))
