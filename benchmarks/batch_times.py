"""Measures how a query's batches spend their time: Spark's phases, its jobs and stages, and calls of given methods.

It does not depend on how pipelines run a batch, so that any query can be measured.
"""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from threading import Event
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

REPORT_SECONDS = 30.0  # how long to wait for Spark to report the end of a query
WHOLE = "triggerExecution"  # a batch with all of Spark's bookkeeping; Spark's own name
INSIDE = "addBatch"  # what foreachBatch runs, or one of Spark's sinks

Milliseconds = dict[str, float]


@dataclass(frozen=True)
class Span:
    """When something began and ended, in ms since 1970."""

    began: float
    ended: float

    @property
    def took(self) -> float:
        return self.ended - self.began


@dataclass
class BatchTimes:
    """The phases of each batch of one query, as Spark reports them: name to ms, in the order of the batches.

    It is a Java listener, because PySpark's own asks Java for every part of a progress: some 500 messages per batch,
    which compete with the next batch.
    """

    batches: list[Milliseconds] = field(default_factory=list)
    run_id: str = ""
    ended: Event = field(default_factory=Event)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self.run_id = str(event.runId())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        durations = json.loads(event.progress().json())["durationMs"]
        if INSIDE in durations:  # absent if the query has only checked for input
            self.batches.append({name: float(ms) for name, ms in durations.items()})

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.ended.set()

    @cached_property
    def _jlistener(self) -> Any:
        """What PySpark registers. Made once, when it has prepared Java's calls of Python."""
        assert SparkContext._jvm is not None
        return getattr(SparkContext._jvm, "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper")(self)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


@contextmanager
def batch_times(spark: SparkSession) -> Iterator[BatchTimes]:
    """Record the batches of the only query that runs in the block.

    Raises TimeoutError if Spark does not report the query's end.
    """
    times = BatchTimes()
    spark.streams.addListener(times)  # type: ignore[arg-type]
    try:
        yield times
        if not times.ended.wait(REPORT_SECONDS):
            raise TimeoutError(f"Spark has not reported the query's end after {REPORT_SECONDS} s")
    finally:
        spark.streams.removeListener(times)  # type: ignore[arg-type]


@contextmanager
def call_spans(owner: type, *methods: str) -> Iterator[dict[str, list[Span]]]:
    """Record each call of a class's methods in the block: method to its calls, in order."""
    recorded: dict[str, list[Span]] = {method: [] for method in methods}
    originals = {method: getattr(owner, method) for method in methods}
    for method, original in originals.items():
        setattr(owner, method, _recording(original, recorded[method]))
    try:
        yield recorded
    finally:
        for method, original in originals.items():
            setattr(owner, method, original)


def job_spans(spark: SparkSession, run_id: str) -> list[dict[str, Span]]:
    """Return the jobs of each batch and their stages, in order: `job_1`, `job_1_stage_1` ..

    Stages that Spark skipped are left out. Spark keeps the last 1,000 jobs.
    """
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # because listeners update the store only after a job has ended
    store = context.statusStore()
    jobs = [job for job in _items(store.jobsList(None)) if _or(job.jobGroup(), "") == run_id]
    per_batch: dict[int, list[Any]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.jobId()):
        per_batch[_batch_id(job)].append(job)
    return [dict(_spans(store, per_batch[batch_id])) for batch_id in sorted(per_batch)]


def timeline(spans: Mapping[str, Span], inside: float) -> Milliseconds:
    """Return the duration of each span, the pause before it, and under `around` the rest of `inside`; all in ms.

    A stage is part of its job and has no pause.
    """
    parts: Milliseconds = {}
    outer = {name: span for name, span in spans.items() if "stage" not in name}
    reached = first = min(span.began for span in outer.values())
    for name, span in sorted(outer.items(), key=lambda each: each[1].began):
        if span.began > first:
            parts[f"before_{name}"] = max(span.began - reached, 0.0)
        parts[name] = span.took
        reached = max(reached, span.ended)
    return parts | {name: span.took for name, span in spans.items()} | {"around": inside - (reached - first)}


def medians(batches: Iterable[Milliseconds]) -> Milliseconds:
    """Return the median of each part over the batches; a batch without the part counts as 0."""
    every = list(batches)
    names = dict.fromkeys(name for batch in every for name in batch)
    return {name: statistics.median(batch.get(name, 0.0) for batch in every) for name in names}


def _recording(call: Callable[..., Any], recorded: list[Span]) -> Callable[..., Any]:
    @wraps(call)
    def timed(*positional: Any, **named: Any) -> Any:
        began = time.time()
        try:
            return call(*positional, **named)
        finally:
            recorded.append(Span(1000 * began, 1000 * time.time()))

    return timed


def _spans(store: Any, jobs: list[Any]) -> Iterator[tuple[str, Span]]:
    for number, job in enumerate(jobs, start=1):
        yield f"job_{number}", _span(job)
        stages = [store.lastStageAttempt(stage) for stage in sorted(_items(job.stageIds()))]
        ran = [stage for stage in stages if stage.submissionTime().isDefined()]
        for place, stage in enumerate(ran, start=1):
            yield f"job_{number}_stage_{place}", _span(stage)


def _span(timed: Any) -> Span:
    return Span(timed.submissionTime().get().getTime(), timed.completionTime().get().getTime())


def _batch_id(job: Any) -> int:
    # Spark describes the jobs of a query as `id = .. runId = .. batch = 7`.
    _, _, number = _or(job.description(), "batch = -1").rpartition("batch = ")
    return int(number) if number.isdecimal() else -1


def _items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(place) for place in range(sequence.size())]


def _or(option: Any, default: str) -> str:
    return str(option.get()) if option.isDefined() else default
