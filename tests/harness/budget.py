"""Compares what a tier of tests costs with tests/budget.toml, so that it cannot grow unseen.

The number of tests has to be that of its line, and another count may be above it by one per process of the run: where
one has to grow further, the changed line shows it to a reviewer. CPU may be 30 % above its line, where all lines are
first multiplied by the pace of the run (see `pace`). A folder above that is printed, and the run fails if all of them
together are above by two percent of the tier. Wall clock is printed and never checked. Only a run of a whole
tier is compared; `make test BUDGET=write` and `make check BUDGET=write` replace the lines.
"""

import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.harness.costs import COLUMNS, Recorder

FILE = Path(__file__).parents[1] / "budget.toml"
HEAD = """\
# What the tests may cost per folder (see tests/harness/budget.py). `cpu` is in units of a loop of a million steps.
# Written by `make check BUDGET=write`.
"""

TOLERANCE = 1.3
# In units of the loop, some four seconds: a server that each process starts once takes 45, and it counts for the folder
# whose test came first. Below that, the noise of a measurement is larger than the tolerance, too.
FEW = 80
# The same tests took up to 1.5 times the units beside busy neighbours, because what they do needs more of the caches
# than the loop does. A run that is slower still has become slower itself.
SLOWEST = 1.6
# Of the tier's CPU. In a quiet run a single folder was once at twice its line, which was half a percent of the tier.
NOISE = 0.02

Line = dict[str, int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-budget", action="store_true", help="replace the lines of the tier in tests/budget.toml")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.tier:
        config.pluginmanager.register(Budget(config), "budget")


class Budget:
    """Collects the costs of all processes of a run. Only the first process compares and prints them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workeroutput") or hasattr(config, "workerinput")
        self._results: list[dict[str, Any]] = []
        self._recorder: Recorder | None = None
        if self._is_worker or not config.option.numprocesses:
            self._recorder = Recorder(config.rootpath)
            config.pluginmanager.register(self._recorder, "costs")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._results.append(getattr(node, "workeroutput", {}).get("costs", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._recorder:
            result = self._recorder.result()
            if self._is_worker:
                self._config.workeroutput["costs"] = result  # type: ignore[attr-defined]
                return
            self._results.append(result)
        tier = self._config.option.tier
        self.lines = lines(self._results)
        self.problems: list[str] = []
        self.slower: list[str] = []
        if self._config.option.write_budget:
            write(FILE, tier, self.lines)
        elif is_whole(self._config):
            budget = read(FILE).get(tier, {})
            self.slower = [sentence for sentence, _ in slower(self.lines, budget)]
            self.problems = compared(self.lines, budget, self._config.option.numprocesses or 1)
            if self.problems and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._is_worker:
            return
        terminalreporter.section("costs")
        for line in table(self.lines):
            terminalreporter.write_line(line)
        for sentence in self.slower:
            if sentence not in self.problems:
                terminalreporter.write_line(f"more than usual: {sentence}")
        for problem in self.problems:
            terminalreporter.write_line(f"over budget: {problem}", red=True)


def is_whole(config: pytest.Config) -> bool:
    """Return whether the run has all tests of its tier."""
    options = config.option
    narrowed = options.keyword or getattr(options, "lf", False) or options.deselect or options.ignore or options.maxfail
    return not narrowed and config.args in ([str(config.rootpath / "tests")], ["tests"])


def lines(results: list[dict[str, Any]]) -> dict[str, Line]:
    """Return the costs of each folder: counts that are not 0, and CPU in units of the loop."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for place, what, number in result.get("counts", []):
            totals[place][what] += number
        for place, seconds in result.get("cpu", {}).items():
            totals[place]["cpu"] += round(seconds / result["loop"])
    return {
        place: {what: totals[place][what] for what in [*COLUMNS, "cpu"] if totals[place][what]}
        for place in sorted(totals)
    }


def compared(found: dict[str, Line], budget: dict[str, Line], processes: int) -> list[str]:
    """Return a sentence for each cost that is above its line, and for tests that are missing."""
    problems = [
        f"{place} has {found.get(place, {}).get(what, 0)} {what}, its line says {budget.get(place, {}).get(what, 0)}"
        for place in sorted({*found, *budget})
        for what in COLUMNS
        if not _fits(what, found.get(place, {}).get(what, 0), budget.get(place, {}).get(what, 0), processes)
    ]
    above = slower(found, budget)
    if sum(units for _, units in above) > NOISE * sum(line.get("cpu", 0) for line in budget.values()):
        problems += [sentence for sentence, _ in above]
    if problems:
        problems.append("if the growth is meant, run it again with BUDGET=write and commit tests/budget.toml")
    return problems


def slower(found: dict[str, Line], budget: dict[str, Line]) -> list[tuple[str, float]]:
    """Return a sentence for each folder that takes more CPU than this run allows it, and how many units more."""
    times = TOLERANCE * pace(found, budget)
    above = []
    for place, costs in sorted(found.items()):
        line = budget.get(place, {}).get("cpu", 0)
        units = costs.get("cpu", 0) - line * times - FEW
        if units > 0:
            sentence = f"{place} takes {costs['cpu']} units of CPU, its line says {line}, and in this run it may take"
            above.append((f"{sentence} {times:.2f} times that", units))
    return above


def pace(found: dict[str, Line], budget: dict[str, Line]) -> float:
    """Return how many times its line the middle folder takes, from 1 to SLOWEST.

    A busy machine makes every folder slower, and a change makes some of them slower.
    """
    ratios = [
        found[place]["cpu"] / line["cpu"]
        for place, line in budget.items()
        if line.get("cpu", 0) > FEW and found.get(place, {}).get("cpu")
    ]
    return min(max(median(ratios), 1.0), SLOWEST) if ratios else 1.0


def _fits(what: str, number: int, allowed: int, processes: int) -> bool:
    # What a process starts once, a Java for example, counts for the folder whose test came first: another in each run.
    return number == allowed if what == "tests" else number <= allowed + processes


def table(found: dict[str, Line]) -> list[str]:
    """Return the costs as lines of text, the most expensive folder first, with a total at the end."""
    width = max(map(len, [*found, "total"]))
    total = Counter[str]()
    for costs in found.values():
        total.update(costs)
    rows = [*sorted(found.items(), key=lambda row: -row[1].get("cpu", 0)), ("total", total)]
    columns = [*COLUMNS, "cpu"]
    head = " " * width + "".join(f"{name:>11}" for name in columns)
    return [
        head,
        *(f"{place:{width}}" + "".join(f"{costs.get(name) or '':>11}" for name in columns) for place, costs in rows),
    ]


def read(file: Path) -> dict[str, dict[str, Line]]:
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write(file: Path, tier: str, found: dict[str, Line]) -> None:
    tiers = read(file) | {tier: found}
    text = HEAD
    for name, budget in sorted(tiers.items()):
        text += f"\n[{name}]\n"
        for place, costs in budget.items():
            text += f'"{place}" = {{ {", ".join(f"{what} = {number}" for what, number in costs.items())} }}\n'
    file.write_text(text, encoding="utf-8")
