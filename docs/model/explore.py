"""Visits every world that the rules can reach, breadth first, until an invariant does not hold."""

from collections import Counter, deque
from typing import NamedTuple

from docs.model.rules import Rules
from docs.model.world import World


class Found(NamedTuple):
    """states: how many worlds were reached. actions: name to how often it led to a new world.

    violation: "" if every invariant holds in every world; else what is wrong at the end of `history`, the shortest
    sequence of steps that leads there.
    """

    states: int
    actions: Counter[str]
    violation: str
    history: list[str]


def explore(rules: Rules) -> Found:
    """Search everything within the bounds of the rules."""
    first = World(faults=rules.bounds.faults)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    actions: Counter[str] = Counter()
    waiting = deque([first])
    while waiting:
        # Oldest first, so that the first violation found has a shortest history.
        world = waiting.popleft()
        for action, sentence, after in rules.steps(world):
            if after in came_from:
                continue
            came_from[after] = world, sentence
            actions[action] += 1
            violation = rules.violation(after)
            if violation:
                return Found(len(came_from), actions, violation, _history(came_from, after))
            waiting.append(after)
    return Found(len(came_from), actions, "", [])


def _history(came_from: dict[World, tuple[World, str] | None], last: World) -> list[str]:
    sentences = []
    step = came_from[last]
    while step is not None:
        world, sentence = step
        sentences.append(sentence)
        step = came_from[world]
    return sentences[::-1]
