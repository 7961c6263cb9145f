"""Checks: computes the expected states of a run in ways that do not share its code, and lists the differences.

- One fold: Spark runs the stateless verbs over all counted rows at once, and plain Python folds the rows of each key.
  Because it has no batches, it finds rows that are lost or counted twice, and errors of merges.
- The test: what it expects, as values or as a function of the counted rows.
- A run without faults, for the states that are left: the same batches with the rows that count, without crashes,
  replays, restarts and maintenance. It does not check the verbs themselves, but covers every state, even of updaters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegauge.pipelines.batch.key_filter import KeyFilter
from tidegauge.pipelines.batch.misfits import misfit
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.keys import key_columns
from tidegauge.pipelines.declare.pipeline import Pipeline, upstream
from tidegauge.pipelines.declare.stream import PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import RecountError
from tidegauge.pipelines.repair.recountable import check_steps
from tidegauge.pipelines.sources.source import SIGN
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.repair.audit import are_close, are_same
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.testing.given import by_source, give, given_pipeline, names_of
from tidegauge.testing.plain_folds import PlainFold, plain_fold
from tidegauge.testing.state import State
from tidegauge.testing.steps import BatchRows, Rows

ONE_FOLD, NO_FAULTS, BY_TEST = "one fold of all rows", "a run without faults", "the test"

SHOWN_DIFFERENCES = 10


@dataclass(frozen=True)
class Difference:
    """A value that differs from the expected one. measure: empty for a whole key, or a JSON value.

    by: the check that expects it. batches: the txids of the batches that wrote the key.
    """

    state: str
    key: Key
    measure: str
    got: Any
    expected: Any
    by: str
    batches: Sequence[int] = ()

    def __str__(self) -> str:
        measure = f", measure {self.measure!r}" if self.measure else ""
        wrote = f"batches {', '.join(map(str, self.batches))}" if self.batches else "no batch"
        return (
            f"state {self.state!r}, key {self.key!r}{measure}: got {self.got!r}, expected "
            f"{self.expected!r} by {self.by}; written by {wrote}"
        )


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


# Stands for the value of an absent key.
NOTHING = _Nothing()


class DifferenceError(AssertionError):
    """States differ from what is expected. differences: all of them; the message shows the first ones."""

    def __init__(self, differences: Sequence[Difference]) -> None:
        self.differences = differences
        shown = [str(each) for each in differences[:SHOWN_DIFFERENCES]]
        more = len(differences) - len(shown)
        super().__init__("\n".join([*shown, *([f"and {more} more differences"] if more else [])]))


class OneFold:
    """The expected states of a pipeline: its verbs run over all rows at once, and plain Python folds each key.

    batches: the rows that count, batch by batch. unchecked: by state, what this check cannot cover, and why.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, folder: Path, batches: Sequence[BatchRows]) -> None:
        self.unchecked: dict[str, list[str]] = {}
        self._pipeline = given_pipeline(pipeline, folder)
        self._spark = spark
        self._batches = len(batches)
        give(self._pipeline, all_rows(self._pipeline, batches))
        frame = self._pipeline.source.load(spark)
        parts = self._pipeline.source.split(frame)
        own = frozenset(spec.name for spec in self._pipeline.specs)
        self._context = BatchContext(Batch(self._pipeline.name, 0, 0, 0, datetime.now(UTC)), "", own)
        good = {source: part.good() for source, part in zip(self._pipeline.sources, parts, strict=True)}
        self._frames = Frames(self._pipeline, self._context, good)  # type: ignore[arg-type]

    def states(self, leave_out: Mapping[str, str]) -> Iterator[tuple[StateSpec, dict[Key, dict[str, Any]]]]:
        """Yield each state that this check covers, with the expected values of the measures that have a plain fold.

        leave_out: states that need not equal one fold of all rows, and why.
        """
        for fed in self._pipeline.ordered:
            why = leave_out.get(fed.name) or self._why_not(fed)
            if why:
                self.unchecked[fed.name] = [why]
                continue
            assert isinstance(fed, PersistentAggregate)
            folds = {name: plain_fold(measure) for name, measure in fed.spec.measures.items()}
            without = [f"measure {name!r} has no plain fold" for name, fold in folds.items() if fold is None]
            if without:
                self.unchecked[fed.name] = without
            yield fed.spec, self._folded(fed, {name: fold for name, fold in folds.items() if fold})

    def _why_not(self, fed: Any) -> str:
        if not isinstance(fed, PersistentAggregate):
            return "its updater gets the tuples batch by batch"
        for node in upstream(fed.stream):
            if isinstance(node, PersistentAggregate | PartitionPersist):
                return f"it is fed with the new values of state {node.name!r}"
            if isinstance(node, Stream) and node.scope == "state":
                return "its stream looks up a state, whose values differ by batch"
        try:
            check_steps(fed, self._spark, self._context)
        except RecountError as error:
            return str(error).partition(": ")[2]
        return ""

    def _folded(self, fed: PersistentAggregate, folds: Mapping[str, PlainFold]) -> dict[Key, dict[str, Any]]:
        spec = fed.spec
        groups: dict[Key, list[dict[str, Any]]] = {} if spec.key or not self._batches else {(): []}
        taken_away = []
        for row in self._rows(fed, folds):
            key = spec.check_key(tuple(row[name] for name in spec.key))
            if row.pop(SIGN) < 0:
                taken_away.append((key, row))
            else:
                groups.setdefault(key, []).append(row)
        for key, row in taken_away:
            alike = (each for each in groups.get(key, []) if are_same(each, row))
            if (taken := next(alike, None)) is not None:
                groups[key].remove(taken)
        return {
            key: {name: fold.fold(spec.measures[name], _columns(rows, name)) for name, fold in folds.items()}
            for key, rows in groups.items()
            if rows or not fed.stream.retracts or not spec.key
        }

    def _rows(self, fed: PersistentAggregate, folds: Mapping[str, PlainFold]) -> Iterator[dict[str, Any]]:
        """Yield the rows that the state accepts: the key columns, and for each measure what its fold reads."""
        spec, events = fed.spec, self._frames.of(fed.stream)
        unfit = misfit(fed, events)
        reads = [
            F.struct(*(F.expr(text).alias(f"_{place}") for place, text in enumerate(fold.reads(spec.measures[name]))))
            .alias(f"_read_{name}")
            for name, fold in folds.items()
        ]  # fmt: skip
        taken = events if unfit is None else events.where(~unfit)
        sign = F.coalesce(F.col(SIGN), F.lit(1)) if fed.stream.retracts else F.lit(1)
        read = (quoted(f"_read_{name}") for name in folds)
        keys = map(F.expr, key_columns(spec, fed.keys))
        rows = taken.select(*keys, *reads, sign.alias(SIGN)).selectExpr(*map(quoted, spec.key), *read, SIGN)
        for batch in KeyFilter(spec, partials=False).filter_invalid(rows.toArrow().to_batches()):
            yield from batch.to_pylist()


def all_rows(pipeline: Pipeline, batches: Iterable[BatchRows]) -> dict[str, Rows]:
    """Return the rows of all batches together, by source."""
    names = names_of(pipeline)
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for batch in batches:
        for name, part in zip(names, by_source(pipeline, batch), strict=True):
            rows[name].extend(part)
    return rows  # type: ignore[return-value]


def differences_to_fold(state: State, expected: Mapping[Key, Mapping[str, Any]]) -> Iterator[Difference]:
    """Yield the differences between a state and the values of plain folds."""
    folds = {name: plain_fold(measure) for name, measure in state.spec.measures.items()}

    def alike(measure: str, got: Any, wanted: Any) -> bool:
        fold = folds[measure]
        return fold is None or fold.is_alike(state.spec.measures[measure], got, wanted)

    yield from _differences(state, expected, ONE_FOLD, alike)


def differences_to(state: State, expected: Mapping[Any, Any], by: str) -> Iterator[Difference]:
    """Yield the differences between a state and expected values; only the measures in `expected` are compared."""
    yield from _differences(state, state.typed(expected), by, lambda measure, got, wanted: are_close(got, wanted))


def _differences(
    state: State, expected: Mapping[Key, Any], by: str, alike: Callable[[str, Any, Any], bool]
) -> Iterator[Difference]:
    name, is_json = state.spec.name, not state.spec.measures
    for key in dict.fromkeys([*expected, *state]):
        if key not in expected or not dict.__contains__(state, key):
            yield Difference(name, key, "", dict.get(state, key, NOTHING), expected.get(key, NOTHING), by)
        elif is_json:
            if not are_close(state[key], expected[key]):
                yield Difference(name, key, "", state[key], expected[key], by)
        else:
            for measure, wanted in expected[key].items():
                got = state[key].get(measure, NOTHING)
                if got is NOTHING or not alike(measure, got, wanted):
                    yield Difference(name, key, measure, got, wanted, by)


def _columns(rows: Sequence[Mapping[str, Any]], measure: str) -> list[tuple[Any, ...]]:
    return [tuple(row[f"_read_{measure}"].values()) for row in rows]
