"""Cases: figures of a benchmark, timed in turn round by round, so that a noisy machine affects all of them alike."""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ROUNDS = 9


@dataclass(frozen=True)
class Case:
    """One figure. value: the median of its rounds, in `unit`. spread: half of them lie within this fraction of it.

    ratio: for each reference, this case's value divided by the reference's, as the median over rounds.
    quartiles: for each reference, the two ratios between which half of the rounds lie.
    rounds: the number of measurements that the value is the median of.
    """

    name: str
    value: float
    unit: str
    spread: float = 0.0
    ratio: Mapping[str, float] = field(default_factory=dict)
    quartiles: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rounds: int = 1

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Case":
        return cls(**{**stored, "quartiles": {r: (low, high) for r, (low, high) in stored["quartiles"].items()}})

    def as_json(self) -> str:
        rounded = {
            "value": round(self.value, 3),
            "spread": round(self.spread, 3),
            "ratio": {reference: round(ratio, 3) for reference, ratio in self.ratio.items()},
            "quartiles": {r: [round(low, 3), round(high, 3)] for r, (low, high) in self.quartiles.items()},
        }
        return json.dumps({**vars(self), **rounded})

    def as_text(self) -> str:
        ratios = "".join(f", {ratio:.2f} of {reference}" for reference, ratio in self.ratio.items())
        return f"{self.name}: {self.value_as_text()} {self.unit} (±{self.spread:.0%}){ratios}"

    def value_as_text(self) -> str:
        # A count has no decimals.
        return f"{self.value:,.{0 if self.value >= 100 or isinstance(self.value, int) else 3}f}"


class Timed(NamedTuple):
    """Work that has measured its own time, without the time that it takes to start."""

    done: int
    seconds: float


Work = Callable[[int], int | Timed]  # takes the round's number; returns how many units of work it did


def side_by_side(work: Mapping[str, Work], unit: str, references: Sequence[str], rounds: int = ROUNDS) -> list[Case]:
    """Run each function once per round, in turn, and return a case for each; the first round warms up."""
    rates: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, do in work.items():
            started = time.perf_counter()
            done = do(number)
            measured = done if isinstance(done, Timed) else Timed(done, time.perf_counter() - started)
            rates[name].append(measured.done / measured.seconds)
    return compared({name: each[1:] for name, each in rates.items()}, unit, references)


def compared(warm: Mapping[str, list[float]], unit: str, references: Sequence[str]) -> list[Case]:
    """Return a case per name from its rates by round; ratios are taken within a round."""
    return [
        median_case(name, rates, unit, {r: warm[r] for r in references if r != name}) for name, rates in warm.items()
    ]


def median_case(
    name: str, measured: Sequence[float], unit: str, references: Mapping[str, Sequence[float]] | None = None
) -> Case:
    """Return the case of a figure that was measured once per round. references: their figures by round, by name."""
    ratios = {
        reference: [one / other for one, other in zip(measured, others, strict=True)]
        for reference, others in (references or {}).items()
    }
    return Case(
        name,
        statistics.median(measured),
        unit,
        spread_of(measured),
        {reference: statistics.median(each) for reference, each in ratios.items()},
        {reference: (quartiles(each)[0], quartiles(each)[2]) for reference, each in ratios.items()},
        rounds=len(measured),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` percent of the values do not exceed (nearest rank)."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def quartiles(measured: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile; if there is one figure, it is all three."""
    if len(measured) == 1:
        return (measured[0],) * 3
    low, _, high = statistics.quantiles(measured, n=4)
    return low, statistics.median(measured), high


def spread_of(rates: Sequence[float]) -> float:
    low, middle, high = quartiles(rates)
    return (high - low) / 2 / middle if middle else 0.0
