"""The file of results: one section per benchmark, each with its cases and what they were measured on.

A run replaces only the sections of its benchmarks, so a long run can be done in parts, on other days or machines.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.cases import Case
from benchmarks.environment import machine, versions
from benchmarks.registry import Benchmark


@dataclass(frozen=True)
class Section:
    """One benchmark's results. options: as given, else the defaults. seconds: the duration of the run."""

    date: str
    seconds: int
    options: Mapping[str, int]
    seeds: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    cases: list[Case]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Section":
        return cls(**{**stored, "cases": [Case.from_dict(case) for case in stored["cases"]]})


def measure(benchmark: Benchmark, given: Mapping[str, int], say: Callable[[Case], None]) -> Section:
    """Run a benchmark. say: called with each case as soon as it is measured."""
    measured_on, measured_with, started = machine(), {**versions(), **benchmark.versions}, perf_counter()
    date, cases = datetime.now(UTC).isoformat(timespec="seconds"), []
    for case in benchmark.run(given):
        cases.append(case)
        say(case)
    options = {name: given.get(name, default) for name, default in benchmark.options.items()}
    seconds = round(perf_counter() - started)
    return Section(date, seconds, options, benchmark.seeds, measured_on, measured_with, cases)


def read(path: Path) -> dict[str, Section]:
    """Return the sections by the benchmark's name; empty if there is no file."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    return {name: Section.from_dict(section) for name, section in stored.items()}


def replace_section(path: Path, name: str, section: Section) -> None:
    """Replace one section, and keep the others."""
    sections = {**read(path), name: section}
    path.write_text("{\n" + ",\n".join(_as_text(name, each) for name, each in sorted(sections.items())) + "\n}\n")


def _as_text(name: str, section: Section) -> str:
    """Return a section as JSON with a line for each fact and case, so that `git diff` shows what changed."""
    facts = [f"{json.dumps(fact)}: {json.dumps(value)}" for fact, value in vars(section).items() if fact != "cases"]
    cases = ",\n  ".join(case.as_json() for case in section.cases)
    return f'"{name}": {{\n ' + ",\n ".join(facts) + f',\n "cases": [\n  {cases}\n ]\n}}'
