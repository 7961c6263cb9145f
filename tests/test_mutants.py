"""The table of mutants fits the code: `python -m tests.mutants` runs it."""

import ast
from collections import Counter
from pathlib import Path

from tests.mutants import MUTANTS
from tests.mutants.__main__ import copied, select
from tests.mutants.mutant import Mutant, StaleMutantError

CHECKOUT = Path(__file__).parents[1]


def problem(mutant: Mutant) -> str:
    """Return why a mutant cannot be run; empty if it can."""
    try:
        text = mutant.mutated(CHECKOUT)
        if mutant.file.endswith(".py"):
            ast.parse(text)
    except (OSError, StaleMutantError, SyntaxError) as error:
        return str(error)
    return "" if text != (CHECKOUT / mutant.file).read_text() else "it changes nothing"


def test_every_mutant_changes_text_that_is_there():
    assert {mutant.name: why for mutant in MUTANTS if (why := problem(mutant))} == {}


def test_each_mutant_has_a_name_of_its_own():
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


def test_the_tests_that_kill_mutants_are_there():
    files = {test.partition("::")[0] for mutant in MUTANTS for test in mutant.tests}

    assert [file for file in sorted(files) if not (CHECKOUT / file).exists()] == []


def test_mutants_are_chosen_by_what_their_names_begin_with():
    chosen = {mutant.name for mutant in select(MUTANTS, ["ledger/release", "maps/rollback"])}

    assert chosen == {"ledger/release-keeps-the-fence", "maps/rollback-remembers-what-the-batch-wrote"}
    assert len(list(select(MUTANTS, []))) == len(MUTANTS)


def test_the_copy_in_which_tests_run_has_the_packages():
    with copied(CHECKOUT) as copy:
        assert (copy / "tidegauge" / "webapp" / "settings.py").is_file()
