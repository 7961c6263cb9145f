"""Writes the input of whole pipelines: sales in Parquet files, and small files of flights.

A few shops have most of the sales (Zipf, exponent 1.2), so a batch of 500,000 has about 67,000 of 300,000 shops.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rows import ALL_KEYS

SCHEMA = "shop string, x double"
EXPONENT = 1.2
FLIGHTS_PER_FILE = 20
DISTINCT = 20_000  # flights; larger files repeat them

CARRIERS = ("AA", "B6", "DL", "UA", "WN")
AIRPORTS = ("ATL", "BOS", "DEN", "LAX", "MIA", "ORD", "SEA", "SFO")


@dataclass(frozen=True)
class Totals:
    """The aggregates of all events."""

    shops: int
    n: int
    total: float


def lay_out_sales(folder: Path, events: int, files: int) -> Totals:
    """Write `events` sales into `files` Parquet files of equal size; the same arguments give the same events."""
    folder.mkdir(parents=True)
    shops: Counter[str] = Counter()
    total = 0.0
    for number in range(files):
        sales = _sales(seed=number, count=events // files)
        pq.write_table(sales, folder / f"part-{number:04}.parquet", row_group_size=100_000)
        shops.update(sales["shop"].to_pylist())
        total += sum(sales["x"].to_pylist())
    return Totals(len(shops), shops.total(), total)


def flights_file(number: int) -> str:
    """Return a file of 20 flights as JSON lines; the same number gives the same flights."""
    chance = random.Random(number)
    return "".join(json.dumps(flight(chance)) + "\n" for _ in range(FLIGHTS_PER_FILE))


def lay_out_flights(folder: Path, flights: int, files: int) -> None:
    """Write `files` JSON lines files of `flights` flights, with increasing times; the same numbers give the same."""
    for number in range(files):
        chance = random.Random(number)
        lines = [json.dumps(flight(chance)) + "\n" for _ in range(min(flights, DISTINCT))]
        path = folder / f"{number:03}.json"
        with path.open("w") as file:
            for first in range(0, flights, DISTINCT):
                file.writelines(lines[: flights - first])
        os.utime(path, (1_700_000_000 + number,) * 2)


def _sales(seed: int, count: int) -> pa.Table:
    chance = random.Random(seed)
    names, weights = _shops()
    # Quarters, because their sum is exact in floating point, in any order.
    prices = [quarters / 4 for quarters in chance.choices(range(1, 400), k=count)]
    return pa.table({"shop": chance.choices(names, cum_weights=weights, k=count), "x": prices})


@cache
def _shops() -> tuple[list[str], list[float]]:
    """Return the shops in random order, and their cumulative weights."""
    names = [f"shop-{number:07}" for number in range(ALL_KEYS)]
    random.Random(0).shuffle(names)
    # The weight of all further ranks, the integral of rank ** -EXPONENT, is spread evenly over the shops.
    beyond = ALL_KEYS ** (1 - EXPONENT) / (EXPONENT - 1)
    return names, list(accumulate(rank**-EXPONENT + beyond / ALL_KEYS for rank in range(1, ALL_KEYS + 1)))


def flight(chance: random.Random) -> dict[str, object]:
    return {
        "time_hour": f"2013-07-01T{chance.randrange(24):02}:00:00Z",
        "origin": chance.choice(AIRPORTS),
        "dest": chance.choice(AIRPORTS),
        "carrier": chance.choice(CARRIERS),
        "flight": chance.randrange(1, 5_000),
        "tailnum": f"N{chance.randrange(10_000):05}",
        "dep_time": chance.randrange(2_400),
        "dep_delay": chance.randrange(-20, 200),
        "arr_delay": chance.randrange(-40, 200),
        "distance": chance.randrange(100, 3_000),
    }
