"""Samza's worked cases of its key-value store and restore planner (tests/vectors/samza_pravega.json).

They run in memory, and two of them over every backend with its log. Where Samza's behaviour is a trap, or a matter of
taste, CHOICES says what ours is, and why. Its tables of single rows are in test_tables.py.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.state_backends.key_value.conftest import AT, LOG_OF, SETTINGS
from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError, SpecError, StoreClosedError, ValueShapeError
from tidegauge.state_backends.key_value.log import Message, freeze, thaw
from tidegauge.state_backends.key_value.restore import RestorePlan, plan_restore
from tidegauge.state_backends.key_value.store import KeyValueStore

TEXT = (Path(__file__).parents[2] / "vectors" / "samza_pravega.json").read_text()


def text_of_bytes(written: re.Match[str]) -> str:
    """Return raw bytes, written 'hex:..', as the JSON text that stands for them. Fails for bytes beyond ASCII.

    The cases take a text for its ASCII bytes. Others are not offered: no key type and no JSON value holds bytes.
    """
    return json.dumps(bytes.fromhex(written[1]).decode("ascii"))


VECTORS = json.loads(re.sub(r'"hex:([^"]*)"', text_of_bytes, TEXT))["vectors"]
STORE = [v for v in VECTORS if v["suite"] == "key_value_store"]
PLANS = [v for v in VECTORS if v["suite"] == "restore_planner"]

RAISES = {
    "null_argument": (KeyShapeError, ValueShapeError),
    "value_too_large": ValueShapeError,
    "closed": StoreClosedError,
    "interrupted": KeyboardInterrupt,
}

# What a case counts and we do not, with the reason.
NOT_COUNTED = {
    "raw_flushes": "a backing map has no flush: what it has taken is stored",
    "ignored_large": "no value is dropped, so none is counted as dropped",
}


@dataclass(frozen=True)
class Choice:
    """What ours does. steps: number to what changes in it; expect: what changes in what the case ends with."""

    why: str
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    expect: dict[str, Any] = field(default_factory=dict)


CHOICES = {
    "kv.snapshot_does_not_see_unflushed_writes": Choice(
        "a snapshot holds one's own writes", {4: {"returns": [["a", "1"], ["b", "2"]]}}
    ),
    "kv.dropped_large_value_leaves_the_older_value": Choice(
        "a value that is too large is refused, never dropped", {2: {"raises": "value_too_large"}}
    ),
    "kv.large_value_dropped_silently": Choice(
        "a value that is too large refuses its list",
        {0: {"raises": "value_too_large"}},
        {"raw": {}, "changelog": []},
    ),
    "kv.restore_byte_and_message_counts": Choice(
        "raw bytes are stored as the text whose ASCII bytes they are",
        expect={"raw": {"\x01\x02": "\x03\x04\x05", "\x02\x03": "\x04\x05\x06", "\x03\x04": "\x05\x06\x07"}},
    ),
    "kv.missing_key_serde_is_a_config_error": Choice("types stand for serdes: a key without one is no spec"),
    "kv.missing_value_serde_is_a_config_error": Choice("types stand for serdes: a state without a value is no spec"),
}


# The cases are about the store; what it asks of maps and logs is in their contracts, test_restore.py and test_model.py.
ON_EVERY_BACKEND = ["kv.range_reflects_delete_update_add", "kv.trim_restores_the_older_committed_value"]


def ids(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


def test_every_case_is_run_and_every_trap_has_a_choice():
    traps = {v["name"] for v in STORE if v["level"] == "hazard"}

    assert (len(STORE), len(PLANS)) == (39, 11)
    assert {v["level"] for v in PLANS} == {"must"}
    assert traps <= set(CHOICES) <= {v["name"] for v in STORE}


@pytest.mark.parametrize(
    ("backend", "vector"),
    [
        pytest.param(backend, vector, id=f"{backend}-{vector['name']}")
        for vector in STORE
        for backend in (LOG_OF if vector["name"] in ON_EVERY_BACKEND else ["memory"])
        if "config_error" not in vector["expect"]
    ],
)
def test_store(vector, new_backing, new_log):
    choice = CHOICES.get(vector["name"], Choice(""))
    steps = [step | choice.steps.get(number, {}) for number, step in enumerate(vector["steps"])]
    run = Run(vector.get("config", {}), new_backing, new_log)

    for step in steps:
        run.checked_step(step)

    expected = {name: value for name, value in vector["expect"].items() if name not in NOT_COUNTED}
    expected |= choice.expect
    assert {name: getattr(run, name)() for name in expected} == expected


@pytest.mark.parametrize("vector", ids([v for v in STORE if "config_error" in v["expect"]]))
def test_declaration(vector):
    key = {"name": "text"} | ({"name": None} if "key_serde" in vector["config"] else {})
    value = vector["config"].get("value_serde", "jsonb")

    with pytest.raises(SpecError):
        StateSpec("cases", key=key, value=value, kind="non_transactional")


@pytest.mark.parametrize("vector", ids(PLANS))
def test_plan(vector):
    (given,) = vector["steps"]
    copies = {copy["name"]: copy["offset"] for copy in given.get("local_checkpoints", []) if copy.get("valid", True)}
    lag, age = given.get("min_compaction_lag_ms", 14_400_000), given.get("checkpoint_age_ms", 0)

    plan = plan_restore(
        given["oldest"],
        given["newest"],
        given["checkpointed"],
        copies if given.get("persistent", True) else None,
        logged=given.get("logged", True),
        retain_existing_state=given.get("retain_existing_state", True),
        checkpoint_age=timedelta(milliseconds=age),
        min_compaction_lag=timedelta(milliseconds=lag),
    )

    expected = vector["expect"]
    assert plan == (expected["restore"] and RestorePlan(*expected["restore"], expected["retain"]))


class Watched:
    """A backing map that says what it was asked and given."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.spec, self.scan = inner, inner.spec, inner.scan
        self.lookups = 0
        self.batches: list[list[list[Any]]] = []

    def multi_get(self, keys: Any) -> Any:
        self.lookups += len(keys)
        return self.inner.multi_get(keys)

    def multi_put(self, keys: Any, rows: Any) -> None:
        if keys:
            self.batches.append([[key[0], row.value] for key, row in zip(keys, rows, strict=True)])
        self.inner.multi_put(keys, rows)

    def multi_remove(self, keys: Any) -> None:
        if keys:
            self.batches.append([[key[0], None] for key in keys])
        self.inner.multi_remove(keys)


class Run:
    """One case: a store over one backend, its log, and what came back."""

    def __init__(self, config: dict[str, Any], new_backing: Any, new_log: Any) -> None:
        self.new_backing = new_backing
        self.options = options(config)
        self.backing = Watched(new_backing(SETTINGS))
        self.new_log = new_log
        self.log = new_log(self.backing.spec)
        self.given = 0  # messages that were in the log before the case began
        self.asked = 0
        self.kept: dict[str, Any] = {}
        self.restored: Any = None
        self.open()

    def open(self) -> None:
        self.store = KeyValueStore(self.backing, log=self.log, **self.options)

    def checked_step(self, step: dict[str, Any]) -> None:
        if "raises" in step:
            with pytest.raises(RAISES[step["raises"]]):
                self.step(step)
        else:
            result = self.step(step)
            assert "returns" not in step or result == step["returns"], step

    def step(self, step: dict[str, Any]) -> Any:
        key, store = (step.get("key"),), self.store
        match step["op"]:
            case "get":
                self.asked += 1
                return store.get(key)
            case "get_all":
                self.asked += len(step["keys"])
                return {key: value for (key,), value in store.get_all([(key,) for key in step["keys"]]).items()}
            case "put":
                store.put(key, value_of(step["value"]))
            case "put_all":
                store.put_all([((key,), value_of(value)) for key, value in step["entries"]])
            case "delete":
                store.delete(key)
            case "delete_all":
                store.delete_all([(key,) for key in step["keys"]])
            case "range":
                return pairs(store.range((step["from"],), (step["to"],)))
            case "all":
                return pairs(store.all())
            case "open_iterator":
                self.kept[step["id"]] = store.all()
            case "snapshot":
                self.kept[step["id"]] = store.snapshot((step["from"],), (step["to"],))
            case "drain_iterator" | "read_snapshot":
                return pairs(self.kept[step["id"]])
            case "flush" | "close":
                getattr(store, step["op"])()
            case "raw":
                return self.raw()
            case "restart":
                self.backing = Watched(self.new_backing(SETTINGS))
                self.open()
            case "restore":
                self.restore(step)
            case unknown:
                raise AssertionError(unknown)
        return None

    def restore(self, step: dict[str, Any]) -> None:
        if "messages" in step:
            messages = [
                Message((key,), value and freeze(SETTINGS, (key,), value), AT) for key, value in step["messages"]
            ]
            self.given = len(messages)
            self.log = self.new_log(self.backing.spec, messages)
            if "interrupt_before" in step:
                self.log = InterruptedLog(self.log, step["interrupt_before"])
            self.open()
        if "upto" not in step:
            self.restored = self.store.restore()
        else:
            # The cases count messages from 0, and null means no message.
            self.restored = self.store.restore(upto=0 if step["upto"] is None else step["upto"] + 1)

    # What a case expects, by name.

    def raw(self) -> dict[str, Any]:
        return {key: row.value for (key,), row in self.backing.scan()}

    def changelog(self) -> list[Any]:
        return [[message.key[0], message.text and thaw(message.text)] for message in self.log.read(after=self.given)]

    def cache_hits(self) -> int:
        return self.asked - self.backing.lookups

    def raw_lookups(self) -> int:
        return self.backing.lookups

    def last_batch(self) -> list[Any]:
        return self.backing.batches[-1]

    def nonempty_batches(self) -> int:
        return len(self.backing.batches)

    def batch_sizes(self) -> list[int]:
        return [len(batch) for batch in self.backing.batches]

    def dirty(self) -> int:
        before = len(self.backing.batches)
        self.store.flush()
        return sum(len(batch) for batch in self.backing.batches[before:])

    def effective_cache_size(self) -> int:
        return self.store.cache_keys

    def restored_messages(self) -> int:
        return self.restored.messages if self.restored else len(self.raw())

    def restored_bytes(self) -> int:
        # The cases count the bytes of bare keys and values, ours those of their JSON.
        messages = list(self.log.read())
        around_keys = sum(len(json.dumps(m.key)) - len(m.key[0]) for m in messages)
        around_values = sum(len(m.text) - len(thaw(m.text)) for m in messages if m.text)
        return self.restored.bytes - around_keys - around_values

    def trimmed_messages(self) -> int:
        return self.restored.undone


class InterruptedLog:
    """A log whose reader is interrupted before one of its messages."""

    def __init__(self, log: Any, before: int) -> None:
        self.end, self.append = log.end, log.append
        self._log, self._before = log, before

    def read(self, after: int = 0, upto: int | None = None) -> Any:
        for number, message in enumerate(self._log.read(after, upto)):
            if number == self._before:
                raise KeyboardInterrupt
            yield message


def options(config: dict[str, Any]) -> dict[str, Any]:
    ours = {
        "cache_size": "cache_keys",
        "write_batch_size": "write_batch_keys",
        "restore_batch_size": "restore_batch_keys",
        "max_value_bytes": "max_value_bytes",
    }
    given = {ours[name]: value for name, value in config.items() if name in ours}
    if "max_value_bytes" in given:
        given["max_value_bytes"] += len('""')  # we measure JSON
    if given.get("cache_keys") == 0:
        given["write_batch_keys"] = 1  # Samza's switch for both
    return given


def value_of(value: Any) -> Any:
    return value["repeat"] * value["times"] if isinstance(value, dict) else value


def pairs(entries: Any) -> list[Any]:
    return [[key, value] for (key,), value in entries]
