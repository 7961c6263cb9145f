"""Pravega's worked cases (tests/vectors/samza_pravega.json).

They hold as written; where the generator need not run as often as Pravega's, once is enough. Where Pravega's own
behaviour is a trap, CHOICES says what ours is, and why. The cases without steps are tables; their rows are promises in
the test files named in TABLES.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.state_backends.synchronizer.updates import GENERATORS, apply
from tidegauge.state_backends.errors import NoInitialStateError, RevisionError, TruncatedError
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream
from tidegauge.state_backends.synchronizer.synchronizer import StateSynchronizer

VECTORS = [
    vector
    for vector in json.loads((Path(__file__).parents[2] / "vectors" / "samza_pravega.json").read_text())["vectors"]
    if vector["name"].startswith("sync.")
]
CASES = [vector for vector in VECTORS if vector["suite"] == "state_synchronizer"]

TABLES = {
    "sync.limits_and_faults": "test_faults.py",
    "sync.membership": "test_membership.py",
    "sync.leader_election": "test_membership.py",
    "sync.properties": "test_properties.py",
}

ERRORS = {"no_initial_state": NoInitialStateError, "reversed_range": RevisionError, "truncated": TruncatedError}


@dataclass(frozen=True)
class Choice:
    """What ours does instead. steps: by number, the fields that differ. expect: what differs at the end."""

    why: str
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    expect: dict[str, Any] = field(default_factory=dict)


CHOICES = {
    "sync.no_op_decision_is_made_on_possibly_stale_state": Choice(
        "a run that writes nothing is checked against the log: B runs again, sees x and removes it",
        {3: {"generator_calls": 2}},
        {"records": 3},
    ),
    "sync.shared_map_remove_on_stale_copy_is_lost": Choice(
        "the same for a map: the removal is not lost",
        {3: {"generator_calls": 2}, 5: {"returns": {}}},
        {"records": 3},
    ),
    "sync.unconditional_before_initialize_poisons_the_log": Choice(
        "refused before the initial value is there, so that the log stays sound",
        {0: {"raises": "no_initial_state"}, 1: {"raises": None}, 2: {"raises": None}},
    ),
}


def test_no_case_is_left_out():
    suites = Counter(vector["suite"] for vector in VECTORS)
    hazards = {vector["name"] for vector in CASES if vector["level"] == "hazard"}

    assert suites == {"state_synchronizer": 25, "fault_table": 1, "sample": 2, "property": 1}
    assert {vector["name"] for vector in VECTORS} - {vector["name"] for vector in CASES} == set(TABLES)
    assert hazards == set(CHOICES)


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in CASES])
def test_case(vector, connect, name):
    choice = CHOICES.get(vector["name"], Choice("as Pravega's"))
    run = Run(connect, name)

    for number, step in enumerate(vector["steps"]):
        run.check(step | choice.steps.get(number, {}))

    seen = {"records": run.stream.head().revision, "oldest": run.stream.head().oldest}
    expected = vector["expect"] | choice.expect
    assert {fact: seen[fact] for fact in expected} == expected


class Run:
    """One case: clients by name, each on a connection of its own, and the log below them."""

    def __init__(self, connect, name: str) -> None:
        self._connect = connect
        self._name = name
        self._clients: dict[str, StateSynchronizer] = {}
        self._saved: dict[str, int] = {}
        self._open: dict[str, Any] = {}
        self._calls = 0
        self.stream = RevisionedStream(connect(), name)

    def check(self, step: dict[str, Any]) -> None:
        self._calls = 0
        if step.get("raises"):
            with pytest.raises(ERRORS[step["raises"]]):
                self._do(step)
            return
        returned = self._do(step)
        if "save_as" in step:
            self._saved[step["save_as"]] = returned
        if "returns" in step:
            assert returned == step["returns"], step
        if step.get("generator_calls") is not None:
            assert 1 <= self._calls <= step["generator_calls"], step

    def _do(self, step: dict[str, Any]) -> Any:
        if "client" in step:
            return getattr(self, step["op"])(self._client(step["client"]), step)
        return getattr(self, step["op"])(step)

    def _client(self, name: str) -> StateSynchronizer:
        if name not in self._clients:
            self._clients[name] = StateSynchronizer(self._connect(), self._name, apply)
        return self._clients[name]

    def initialize(self, client: StateSynchronizer, step: dict[str, Any]) -> None:
        client.initialize(step["value"])

    def state(self, client: StateSynchronizer, step: dict[str, Any]) -> Any:
        return client.state

    def fetch(self, client: StateSynchronizer, step: dict[str, Any]) -> None:
        client.fetch_updates()

    def update(self, client: StateSynchronizer, step: dict[str, Any]) -> Any:
        given = dict(step["generator"])
        generator = GENERATORS[given.pop("kind")]

        def counted(state: Any) -> list[Any]:
            self._calls += 1
            return generator(state, **given)

        return client.update_state(counted)

    def unconditional(self, client: StateSynchronizer, step: dict[str, Any]) -> None:
        client.update_state_unconditionally(step["updates"])

    def compact(self, client: StateSynchronizer, step: dict[str, Any]) -> None:
        assert step["value"] == "state"

        def counted(state: Any) -> Any:
            self._calls += 1
            return state

        client.compact(counted)

    def mark(self, step: dict[str, Any]) -> int | None:
        return self.stream.head().mark

    def oldest(self, step: dict[str, Any]) -> int:
        return self.stream.head().oldest

    def log(self, step: dict[str, Any]) -> list[Any]:
        return self._records(self.stream.head().oldest)

    def records_from_mark(self, step: dict[str, Any]) -> int:
        mark = self.stream.head().mark
        assert mark is not None
        return len(self._records(mark))

    def r_latest(self, step: dict[str, Any]) -> int:
        return self.stream.head().revision

    def r_oldest(self, step: dict[str, Any]) -> int:
        return self.stream.head().oldest

    def r_write(self, step: dict[str, Any]) -> None:
        self.stream.write(step["value"])

    def r_read(self, step: dict[str, Any]) -> list[Any]:
        return self._records(self._saved[step["from"]])

    def r_range(self, step: dict[str, Any]) -> list[Any]:
        entries = self.stream.read_range(self._saved[step["from"]], self._saved[step["to"]])
        return [entry.record for entry in entries]

    def r_truncate(self, step: dict[str, Any]) -> None:
        self.stream.truncate(self._saved[step["revision"]])

    def r_same(self, step: dict[str, Any]) -> bool:
        return self._saved[step["a"]] == self._saved[step["b"]]

    def r_open(self, step: dict[str, Any]) -> None:
        self._open[step["id"]] = self.stream.read_from(self._saved[step["from"]])

    def r_next(self, step: dict[str, Any]) -> Any:
        return next(self._open[step["id"]]).record

    def r_has_next(self, step: dict[str, Any]) -> bool:
        return next(self._open[step["id"]], None) is not None

    def _records(self, start: int) -> list[Any]:
        return [entry.record for entry in self.stream.read_from(start)]
