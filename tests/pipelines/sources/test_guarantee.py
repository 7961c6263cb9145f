"""The guarantees of spouts and states, and docs/which-kind.md, which shows them and an example of a replay."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tidegauge.pipelines.declare.functions import StateFactory, StateUpdater
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.guarantee import MATRIX, guarantee
from tidegauge.state_backends import Combine, Count, MemoryBackingMap, StateSpec
from tidegauge.state_backends.maps import MAPS

PAGE = (Path(__file__).parents[3] / "docs" / "which-kind.md").read_text()
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


COUNTS = {"n": Count()}
VIEWS = StateSpec("views", key={"page": "text"}, measures=COUNTS)
SEEN = StateSpec("seen", key={"page": "text"}, value="jsonb")


class Emits(StateUpdater):
    def update_state(self, state, tuples, collector): ...


class Store(StateFactory):
    """A store of a user's own."""


def fed(stream, name="counted", kind="opaque"):
    return stream.group_by("page").persistent_aggregate(StateSpec(name, key=VIEWS.key, measures=COUNTS, kind=kind))


def looked_up(state):
    return FILES.state_query(state, ["page"], n="bigint")


def emitted(state, kind="opaque"):
    spec = replace(SEEN, kind=kind) if state is SEEN else state
    return FILES.partition_persist(spec, Emits(), emits={"page": "string"}).new_values_stream()


STORE = Store()
FILES = Stream.read(JsonFiles("/nowhere", schema="page string"))
NON_TRANSACTIONAL = fed(FILES, "twice", "non_transactional")
OWN = fed(FILES, "views")


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (fed(FILES, kind="transactional"), "exactly once"),
        # What another pipeline has committed meanwhile, a replay finds.
        (fed(looked_up(VIEWS), kind="transactional"), "approximate"),
        (fed(looked_up(VIEWS)), "exactly once"),
        (fed(looked_up(STORE), kind="transactional"), "approximate"),
        (fed(looked_up(VIEWS).merge(fed(FILES, "own").new_values_stream()), kind="transactional"), "approximate"),
        (fed(looked_up(VIEWS).merge(OWN.new_values_stream()), kind="transactional"), "exactly once"),
        (fed(looked_up(VIEWS).merge(FILES).each(page="upper(page)"), kind="transactional"), "approximate"),
        (fed(OWN.new_values_stream(), kind="transactional"), "exactly once"),
        # What is counted twice above is counted so below.
        (fed(NON_TRANSACTIONAL.new_values_stream()), "at least once"),
        (fed(fed(NON_TRANSACTIONAL.new_values_stream(), "between").new_values_stream()), "at least once"),
        (fed(emitted(SEEN)), "exactly once"),
        (fed(emitted(SEEN, "transactional")), "approximate"),
        (fed(emitted(STORE)), "at least once"),
    ],
)
def test_the_guarantee_follows_all_that_a_state_is_computed_from(counted, expected):
    assert Pipeline("p", [counted]).guarantees["counted"] == expected


def test_a_state_that_a_pipeline_looks_up_in_counts_like_one_that_it_reads():
    inexact = fed(NON_TRANSACTIONAL.new_values_stream(), "views")

    assert Pipeline("p", [fed(looked_up(VIEWS)), inexact]).guarantees == {
        "counted": "at least once",
        "twice": "at least once",
        "views": "at least once",
    }


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
