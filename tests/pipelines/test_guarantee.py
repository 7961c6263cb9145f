"""The guarantees of spouts and states, and docs/which-kind.md, which shows them and an example of a replay."""

import re
from pathlib import Path

import pytest

from pipelines.guarantee import MATRIX, guarantee
from state_backends import Combine, MemoryBackingMap, StateSpec
from state_backends.maps import MAPS

PAGE = (Path(__file__).parents[2] / "docs" / "which-kind.md").read_text()
KINDS = ["opaque", "transactional", "non_transactional"]


def rows(heading):
    """Return the cells of each row of the first table under a heading."""
    table = PAGE.split(f"## {heading}\n")[1].split("\n\n|", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("spout", "kind", "expected"),
    [
        ("transactional", "opaque", "exactly once"),
        ("transactional", "transactional", "exactly once"),
        ("transactional", "non_transactional", "at least once"),
        ("opaque", "opaque", "exactly once"),
        ("opaque", "transactional", "approximate"),
        ("opaque", "non_transactional", "at least once"),
        ("non_transactional", "opaque", "approximate"),
        ("non_transactional", "transactional", "approximate"),
        ("non_transactional", "non_transactional", "approximate"),
    ],
)
def test_the_guarantee_of_each_pair_of_spout_and_state(spout, kind, expected):
    assert guarantee(spout, kind) == expected


def test_the_page_shows_the_matrix_that_pipelines_use():
    shown = {
        (re.match(r"\w+", source).group(), kind): promise
        for source, *promises in rows("What is promised")
        for kind, promise in zip(KINDS, promises, strict=True)
    }

    assert shown == MATRIX


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_replay_is_what_the_maps_do(kind):
    (shown,) = [cells for cells in rows("What a row holds, and what happens on a replay") if cells[0] == kind]
    backing = MemoryBackingMap(StateSpec("views", key={"page": "text"}, value="jsonb", kind=kind))

    for txid, views in [(1, 1), (2, 3)]:
        add(backing, txid, views)
    seen = [as_shown(backing)]
    for _ in range(2):
        add(backing, 3, 2)
        seen.append(as_shown(backing))

    assert seen == shown[1:4]


def add(backing, txid, views):
    counts = MAPS[backing.spec.kind](backing)
    counts.begin_commit(txid)
    counts.multi_update([("/home",)], [Combine(lambda stored, partial: stored + partial, views)])


def as_shown(backing):
    (row,) = backing.multi_get([("/home",)])
    text = str(row.value)
    if row.txid is not None:
        text += f" (batch {row.txid})"
    return text if row.prev_txid is None else f"{text}, before it {row.prev}"
