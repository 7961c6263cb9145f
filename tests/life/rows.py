"""Random rows, with the values at the edges of their types, and the steps of a life: batches and faults."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

from tidegauge.testing import Advance, Compact, Crash, Expire, Replay, Restart
from tidegauge.testing.steps import Point, Step

SCHEMA = (
    "t string, n bigint, i int, b boolean, x double, at timestamp, d date, u string, m decimal(20,4), "
    "small int, sign int, place int"
)

IDS = ["0a1b2c3d-0000-4000-8000-00000000000f", "ffffffff-ffff-4fff-bfff-ffffffffffff"]

# Column to values, each of which other spellings may name the same of.
EDGES: dict[str, list[Any]] = {
    "t": ["", "a", "A", "a ", "é", "e\u0301", "0", "NaN", "null", "x" * 300, '"\\', None],
    "n": [-(2**63), 2**63 - 1, 0, -1, 1, 7, None],
    "i": [-(2**31), 2**31 - 1, 0, 3, None],
    "b": [True, False, None],
    "x": ["NaN", "Infinity", "-Infinity", 0.0, -0.0, 0.1, -1.5, 5e-324, 1e308, None],
    "at": [
        *("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000001Z"),
        *("2026-03-29T01:30:00Z", "2025-12-31T23:59:59.999999Z", "1969-12-31T23:00:00Z", "9999-12-31T23:59:59Z", None),
    ],
    "d": ["2026-01-01", "2026-02-28", "0001-01-01", "9999-12-31", None],
    "u": [*IDS, *map(str.upper, IDS), "not a uuid", None],
    "m": ["0.0001", "-0.0001", "9999999999999999.9999", "12.5", "12.5000", None],
    "small": [0, 1, -1, 5, 100, None],
}

# A total with one of these is seldom in range.
FAR = [-(2**63), 2**63 - 1, -(2**31), 2**31 - 1, 1e308, "NaN", "Infinity", "-Infinity", "9999999999999999.9999"]

POINTS: list[Point] = ["after_begin", "mid_write", "before_commit", "after_commit"]


def random_rows(random: Random, *, signed: bool) -> list[dict[str, Any]]:
    """Return up to 30 rows; few of them have a value at the far edge of its type, so that most totals can be held.

    signed: with a sign of 1 or -1; what is taken away was not always there.
    """
    tame = {name: [value for value in values if value not in FAR] for name, values in EDGES.items()}
    rows = []
    for place in range(random.choice([0, 1, 5, 30])):
        pool = EDGES if random.random() < 0.2 else tame
        row = {name: random.choice(values) for name, values in pool.items()}
        rows.append(row | {"sign": 1, "place": place})
    if signed:
        taken = random.sample(rows, len(rows) // 3)
        rows += [row | {"sign": -1} for row in taken]
    return rows


def random_steps(random: Random, *, signed: bool, revertible: bool) -> list[Step]:
    """Return 2 to 6 batches and their faults. revertible: whether a batch may come again with other rows."""
    steps: list[Step] = []
    for _ in range(random.randint(2, 6)):
        steps.append(random_rows(random, signed=signed))
        steps += _faults(random, signed, revertible)
        steps += _between(random)
    return steps


def _faults(random: Random, signed: bool, revertible: bool) -> Sequence[Step]:
    points = POINTS if revertible else [point for point in POINTS if point != "mid_write"]
    faults: list[Step] = [Crash(random.choice(points)) for _ in range(random.choice([0, 0, 1, 2]))]
    if random.random() < 0.3:
        faults.append(Replay(random_rows(random, signed=signed) if revertible else None))
    return faults


def _between(random: Random) -> Sequence[Step]:
    choices: list[Step] = [Restart(), Compact(), Expire(), Advance(timedelta(seconds=random.choice([1, 20, 4000])))]
    return random.sample(choices, random.choice([0, 0, 1, 2]))
