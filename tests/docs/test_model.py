"""The model of the protocol: its rules keep every invariant, and each guard is needed for that."""

import re
from collections import defaultdict

import pytest

from docs.model.buckets import rules_of
from docs.model.explore import explore
from docs.model.guards import GUARDS, WHOLE
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

# Fewer would mean that a rule has become too narrow to reach what it should be tried against.
FEWEST_STATES = 100_000


@pytest.mark.long
def test_no_invariant_is_broken_and_every_action_is_taken():
    taken, possible = defaultdict(set), defaultdict(set)
    states = 0
    for store, bounds in WHOLE:
        rules = rules_of(store, bounds)

        found = explore(rules)

        assert (found.violation, found.history) == ("", [])
        states += found.states
        taken[store] |= found.actions.keys()
        possible[store] |= rules.actions

    assert taken == possible
    assert states > FEWEST_STATES


@pytest.mark.long
@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_an_invariant_is_broken(guard):
    _, store, bounds = GUARDS[guard]

    found = explore(rules_of(store, bounds, off=frozenset({guard})))

    assert found.violation


def test_the_page_has_every_guard_with_its_rule():
    page = (REPOSITORY / "docs" / "model" / "README.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", page, re.MULTILINE)

    assert rows == [(name, guard.rule) for name, guard in GUARDS.items()]


def test_an_unknown_guard_is_refused():
    store, bounds = WHOLE[0]

    with pytest.raises(ValueError, match=r"unknown guards \['fences'\]"):
        rules_of(store, bounds, off=frozenset({"fences"}))
