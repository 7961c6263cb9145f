"""Cases are timed side by side, round by round, so that a noisy machine affects all of them alike."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ROUNDS = 9


@dataclass(frozen=True)
class Case:
    """One figure. value: the median of its rounds, in `unit`. spread: half of them lie within this fraction of it.

    ratio: reference to this case's value divided by the reference's, the median over rounds.
    """

    name: str
    value: float
    unit: str
    spread: float = 0.0
    ratio: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> str:
        ratio = {reference: round(ratio, 3) for reference, ratio in self.ratio.items()}
        return json.dumps(
            {"name": self.name, "value": round(self.value, 3), "unit": self.unit, "spread": round(self.spread, 3)}
            | {"ratio": ratio}
        )

    def as_text(self) -> str:
        ratios = "".join(f", {ratio:.2f} of {reference}" for reference, ratio in self.ratio.items())
        return f"{self.name}: {self.value:,.{0 if self.value >= 100 else 3}f} {self.unit} (±{self.spread:.0%}){ratios}"


def side_by_side(
    work: Mapping[str, Callable[[int], int]], unit: str, references: Sequence[str], rounds: int = ROUNDS
) -> list[Case]:
    """Run each function once per round, in turn, and return a case for each; the first round warms up.

    work: name to a function of the round's number that returns how many units it did.
    """
    rates: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, do in work.items():
            started = time.perf_counter()
            done = do(number)
            rates[name].append(done / (time.perf_counter() - started))
    return compared({name: each[1:] for name, each in rates.items()}, unit, references)


def compared(warm: Mapping[str, list[float]], unit: str, references: Sequence[str]) -> list[Case]:
    """Return a case per name from its rates by round; ratios are taken within a round."""
    return [
        Case(
            name,
            statistics.median(rate),
            unit,
            spread_of(rate),
            {r: ratio_of(rate, warm[r]) for r in references if r != name},
        )
        for name, rate in warm.items()
    ]


def ratio_of(rates: list[float], references: list[float]) -> float:
    return statistics.median(rate / other for rate, other in zip(rates, references, strict=True))


def spread_of(rates: list[float]) -> float:
    low, middle, high = statistics.quantiles(rates, n=4)
    return (high - low) / 2 / middle
