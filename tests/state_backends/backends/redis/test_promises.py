"""The promises of docs/redis.md: each names its tests."""

import ast
import re
from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[1]
PAGE = (BACKENDS.parents[2] / "docs" / "redis.md").read_text()
NAMED = re.findall(r"`(\S+\.py)::(\w+)::(\w+)`", PAGE)


def functions_of(file):
    """Return the classes of a test module with their functions."""
    classes = [node for node in ast.parse((BACKENDS / file).read_text()).body if isinstance(node, ast.ClassDef)]
    return {(node.name, part.name) for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "group", "test"), NAMED)
def test_each_test_that_the_table_names_exists(file, group, test):
    assert (group, test) in functions_of(file)


def test_each_line_of_the_table_names_a_test():
    lines = re.findall(r"^\| [^*|].*\|$", PAGE.partition("## What is promised")[2], re.MULTILINE)[1:]

    assert [line for line in lines if ".py::" not in line and "the two above" not in line] == []
