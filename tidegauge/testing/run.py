"""run(): runs a pipeline over given batches and faults, on a real database and Spark, and checks its states."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from psycopg.rows import class_row
from pyspark.sql import SparkSession

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.embedded.temporary import server_url, temporary_database
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.recountable import refused_keys
from tidegauge.pipelines.sources.guarantee import EXACTLY_ONCE
from tidegauge.testing.checks import (
    BY_TEST,
    NO_FAULTS,
    ONE_FOLD,
    Difference,
    DifferenceError,
    OneFold,
    all_rows,
    differences_to,
    differences_to_fold,
)
from tidegauge.testing.drivers import Drivers
from tidegauge.testing.session import spark_session
from tidegauge.testing.state import State
from tidegauge.testing.steps import Advance, Step, actions, final_batches, has_faults, without_faults

# Values by key, or a function that returns them from the counted rows: a list, or with several sources a dict of lists.
Expected = Mapping[Any, Any] | Callable[[Any], Mapping[Any, Any]]

BATCHES = "SELECT txid, attempt AS attempts, rows_in, dead_letters, late, dropped, watermark, batch_time AS time " \
    "FROM tidegauge.batch WHERE pipeline = %s ORDER BY txid"  # fmt: skip

DEAD_LETTERS = "SELECT txid, state, source, line_number, line, reason FROM tidegauge.dead_letter " \
    "WHERE pipeline = %s ORDER BY txid, state, id"  # fmt: skip


@dataclass(frozen=True)
class BatchFigures:
    """The ledger's figures of a batch. attempts: how many began. late, dropped: tuples behind the watermark."""

    txid: int
    attempts: int
    rows_in: int
    dead_letters: int
    late: int
    dropped: int
    watermark: datetime | None
    time: datetime


@dataclass(frozen=True)
class RefusedInput:
    """A dead letter. state: the state that refused it; empty if the source did."""

    txid: int
    state: str
    source: str
    line_number: int | None
    line: str
    reason: str


@dataclass(frozen=True)
class Result:
    """A run's states, batches and dead letters, and the checks of the states.

    checked: by state, the checks that it passed. unchecked: by state, what has not been compared with a plain fold, and
    why. conn: the run's database, open until the test ends if a fixture made the run, else closed.
    """

    states: Mapping[str, State]
    batches: Sequence[BatchFigures]
    dead_letters: Sequence[RefusedInput]
    conn: psycopg.Connection = field(repr=False)
    checked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unchecked: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __getitem__(self, state: str) -> State:
        return self.states[state]


# The type of the fixture `tidegauge_run`: `run` with servers and a session already given.
Run = Callable[..., Result]


def run(
    pipeline: Pipeline,
    batches: Sequence[Step],
    *,
    expected: Mapping[str, Expected] | None = None,
    at: datetime | None = None,
    spark: SparkSession | None = None,
    dsn: str | None = None,
) -> Result:
    """Run a pipeline over batches of rows, with the events between and within them, and check its states.

    pipeline: unchanged; its sources are not opened, because the rows replace their input.
    batches: lists of rows, or dicts of lists by source if there are several, with steps such as Crash and Replay in
    between. A row is a dict by column, a dataclass, a tuple in the order of the schema, or text for a source of lines.
    expected: by state, what the test expects: a dict from key to measures (only those that it names are compared), or a
    function that returns such a dict from the counted rows: a list, or with several sources a dict of lists.
    at: the time of the first batch; None: now. Each batch is one second later than the one before.
    spark: a session; None: the active one, or a new one. dsn: a server where databases may be created; None: the one of
    DATABASE_URL, or a temporary one.

    Raises DifferenceError, an AssertionError, if a state differs from one fold of all rows in plain Python, from the
    same batches without faults, or from `expected`; what a batch raises for another reason than the given faults; and
    PipelineError for rows and steps that do not fit the pipeline.
    """
    with ExitStack() as resources:
        return run_within(resources, pipeline, batches, expected=expected, at=at, spark=spark, dsn=dsn)


def run_within(
    resources: ExitStack,
    pipeline: Pipeline,
    batches: Sequence[Step],
    *,
    expected: Mapping[str, Expected] | None = None,
    at: datetime | None = None,
    spark: SparkSession | None = None,
    dsn: str | None = None,
) -> Result:
    """Do the same as `run`, but keep the result's connection and database until `resources` are closed."""
    test = _Test(resources, pipeline, batches, at or datetime.now(UTC), dsn or server_url(), spark or spark_session())
    if unknown := set(expected or ()) - {spec.name for spec in pipeline.specs}:
        raise PipelineError(f"`expected` names {min(unknown)!r}, which is not a state of pipeline {pipeline.name!r}")
    check(pipeline, test.spark)
    drivers = test.played(batches)
    result = Result(drivers.states(), *_ledger(drivers), drivers.conn)
    found = [*test.differences_to_fold(drivers, result), *test.differences_to_expected(result, expected or {})]
    found += test.differences_to_faultless(drivers, result)
    if found:
        raise DifferenceError([_with_batches(each, drivers) for each in found])
    return replace(result, checked=test.checked, unchecked=test.unchecked)


@dataclass
class _Test:
    """One call of `run`: the pipeline, its steps, and the resources that it needs."""

    resources: ExitStack
    pipeline: Pipeline
    steps: Sequence[Step]
    at: datetime
    server: str
    spark: SparkSession

    def __post_init__(self) -> None:
        self.checked: dict[str, list[str]] = {spec.name: [] for spec in self.pipeline.specs}
        self.unchecked: dict[str, list[str]] = {}
        self.batches = final_batches(self.steps)

    def played(self, steps: Sequence[Step]) -> Drivers:
        """Return the drivers of a new database, after these steps."""
        planned = actions(steps)
        dsn = self.resources.enter_context(temporary_database(self.server))
        drivers = Drivers(self.pipeline, self.spark, dsn, self._folder(), self.at)
        self.resources.enter_context(drivers)
        drivers.play(planned)
        return drivers

    def differences_to_fold(self, drivers: Drivers, result: Result) -> Iterator[Difference]:
        one_fold = OneFold(self.pipeline, self.spark, self._folder(), self.batches)
        for spec, expected in one_fold.states(self._left_out(result)):
            self.checked[spec.name].append(ONE_FOLD)
            refused = refused_keys(drivers.conn, self.pipeline.name, spec)
            found = differences_to_fold(result.states[spec.name], expected)
            yield from (each for each in found if each.key not in refused)
        self.unchecked = one_fold.unchecked

    def differences_to_faultless(self, drivers: Drivers, result: Result) -> Iterator[Difference]:
        # States that one fold or the test has compared completely are left out, because a second run takes time.
        left = [name for name, by in self.checked.items() if (name in self.unchecked or not by) and BY_TEST not in by]
        left = [name for name in left if self._is_exact(name)]
        # Not with stores of the user's own, because the second run would write them again.
        if not has_faults(self.steps) or self.pipeline.stores or not left:
            return
        drivers.forget_stores()  # because the other run has states with the same names there
        with ExitStack() as resources:
            clean = replace(self, resources=resources).played(without_faults(self.steps)).states()
        for name in left:
            self.checked[name].append(NO_FAULTS)
            yield from differences_to(result.states[name], clean[name], NO_FAULTS)

    def differences_to_expected(self, result: Result, expected: Mapping[str, Expected]) -> Iterator[Difference]:
        rows = all_rows(self.pipeline, self.batches)
        counted = rows if len(rows) > 1 else next(iter(rows.values()))
        for name, wanted in expected.items():
            self.checked[name].append(BY_TEST)
            values = wanted(counted) if callable(wanted) else wanted
            yield from differences_to(result.states[name], values, BY_TEST)

    def _left_out(self, result: Result) -> dict[str, str]:
        """Return the states that need not equal one fold of all rows, and why."""
        passed = sum((step.by for step in self.steps if isinstance(step, Advance)), timedelta())
        passed += timedelta(seconds=len(self.batches))
        left = {}
        for spec in self.pipeline.specs:
            if has_faults(self.steps) and not self._is_exact(spec.name):
                left[spec.name] = f"its guarantee is {self.pipeline.guarantees[spec.name]!r}"
            elif spec.ttl is not None and spec.ttl <= passed:
                left[spec.name] = f"its keys end {spec.ttl} after their last update, and {passed} have passed"
            elif any(batch.dropped for batch in result.batches):
                left[spec.name] = "late tuples were dropped, which depends on the batches"
        return left

    def _is_exact(self, state: str) -> bool:
        return self.pipeline.guarantees[state] == EXACTLY_ONCE

    def _folder(self) -> Path:
        return Path(self.resources.enter_context(TemporaryDirectory(prefix="tidegauge-run-"))) / "run"


def _ledger(drivers: Drivers) -> tuple[list[BatchFigures], list[RefusedInput]]:
    name = drivers.pipeline.name
    with drivers.conn.cursor(row_factory=class_row(BatchFigures)) as batches:
        figures = batches.execute(BATCHES, [name]).fetchall()
    with drivers.conn.cursor(row_factory=class_row(RefusedInput)) as letters:
        return figures, letters.execute(DEAD_LETTERS, [name]).fetchall()


def _with_batches(difference: Difference, drivers: Drivers) -> Difference:
    written = drivers.written.get(difference.state, {})
    return replace(difference, batches=sorted(txid for txid, keys in written.items() if difference.key in keys))
