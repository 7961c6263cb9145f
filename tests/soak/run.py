"""Run: draws faults by a seed, injects one after the other, and notes how each ended."""

import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak import switches
from tests.soak.faults import REGISTERED
from tests.soak.faults.fault import Fault, fitting
from tests.soak.recovery import Outcome, recover
from tests.soak.remedies import REMEDIES
from tests.soak.transfers import VARIANTS
from tests.soak.world import Options, Servers, World

assert REGISTERED

# Of one pipeline; then another kind begins, with an empty ledger row and a new checkpoint.
FAULTS_PER_PIPELINE = 12


@dataclass
class Record:
    """One fault and how it ended."""

    pipeline: str
    number: int
    name: str
    group: str
    note: str
    seconds: float
    refusals: list[tuple[str, str]]
    deviation: str | None
    unexplained: str | None
    last_error: str

    @property
    def is_explained(self) -> bool:
        return self.deviation is None and self.unexplained is None


@dataclass
class Result:
    """All faults of a run, and what the checkers saw."""

    seed: int
    records: list[Record] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    unavailable: int = 0
    transfers: int = 0
    upkeep_runs: int = 0
    seconds: float = 0.0

    @property
    def deviations(self) -> list[Record]:
        return [record for record in self.records if record.deviation]

    @property
    def unexplained(self) -> list[Record]:
        return [record for record in self.records if record.unexplained]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def soak(
    folder: Path,
    options: Options,
    *,
    faults: int | None = None,
    seconds: float | None = None,
    variants: Iterable[str] = tuple(VARIANTS),
    names: Iterable[str] = (),
    first: int = 1,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Result:
    """Inject faults until there are so many, the time is over or it is interrupted.

    A pipeline ends with its first deviation.

    variants: kinds of pipelines, in turn. names: only these faults. first: the number of the first pipeline.
    """
    result, started, order = Result(options.seed), time.monotonic(), list(variants)
    switches.turn_off_for_readers(options.off)
    servers = Servers(folder, served=options.served)

    def goes_on() -> bool:
        enough = faults is not None and len(result.records) >= faults
        return not enough and (seconds is None or time.monotonic() - started < seconds)

    try:
        number = first
        with suppress(KeyboardInterrupt):
            while goes_on():
                world = World(servers, options, number, order[(number - 1) % len(order)])
                _soak_pipeline(world, result, names, goes_on, on_record)
                number += 1
    finally:
        result.seconds = time.monotonic() - started
        servers.close()
    return result


def _soak_pipeline(
    world: World,
    result: Result,
    names: Iterable[str],
    goes_on: Callable[[], bool],
    on_record: Callable[[Record], None],
) -> None:
    candidates = fitting(world, names)
    with world.running():
        try:
            for number in range(1, FAULTS_PER_PIPELINE + 1):
                if not goes_on():
                    break
                [fault] = world.chance.choices(candidates, [each.weight for each in candidates])
                record = _inject(world, fault, number)
                result.records.append(record)
                on_record(record)
                if not record.is_explained:
                    break
        finally:
            _add_findings(world, result)


def _inject(world: World, fault: Fault, number: int) -> Record:
    try:
        pause = world.checkers.paused() if fault.never_whole else nullcontext()
        with world.checkers.loosened(fault.goes_back), pause:
            note = fault.inject(world) or ""
            outcome = recover(world, REMEDIES)
    except Exception:
        note, outcome = "", Outcome(unexplained=traceback.format_exc()[-1500:])
    return Record(world.pipeline, number, fault.name, fault.group, note, **vars(outcome))


def _add_findings(world: World, result: Result) -> None:
    findings = world.checkers.findings
    for name, count in findings.answers.items():
        result.answers[name] = result.answers.get(name, 0) + count
    for name, count in findings.refused.items():
        result.refused[name] = result.refused.get(name, 0) + count
    result.unavailable += findings.unavailable
    result.transfers += world.feeder.model.transfers
    result.upkeep_runs += world.background.upkeep_runs
