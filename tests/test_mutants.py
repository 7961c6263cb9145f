"""The table of mutants fits the code: `python -m tests.mutants` runs it."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import MUTANTS

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_text_that_is_there_and_can_still_be_read(mutant):
    text = mutant.mutated(CHECKOUT)

    assert text != (CHECKOUT / mutant.file).read_text()
    if mutant.file.endswith(".py"):
        ast.parse(text)


def test_each_mutant_has_a_name_of_its_own():
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


def test_the_tests_that_kill_mutants_are_there():
    files = {test.partition("::")[0] for mutant in MUTANTS for test in mutant.tests}

    assert [file for file in sorted(files) if not (CHECKOUT / file).exists()] == []
