"""Every verb, window and operator on random rows, in batches and with a replay, against Spark's answer for all rows.

Only a lookup in a state has no such answer, as it depends on what was committed before.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.pipelines.fault_injection import InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, GroupedStream, Stream
from tidegauge.pipelines.declare.windows import calendar, sliding, tumbling
from tidegauge.pipelines.operators.counts import RunningTotal, distinct
from tidegauge.pipelines.operators.join import join
from tidegauge.pipelines.operators.reorder import in_order
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import BatchLedger, StateSpec
from tidegauge.state_backends.aggregators import (
    Count,
    DistinctSet,
    First,
    Last,
    Max,
    Mean,
    Min,
    RowCount,
    StdDev,
    Sum,
    Variance,
)
from tidegauge.state_backends.ledger.batch import Batch

pytestmark = pytest.mark.spark

SCHEMA = "place int, person string, words string, n bigint, m decimal(12, 2), x double, at timestamp"
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
ROWS, BATCHES = 240, 2

# Measure to what folds it and to Spark's own aggregate. Of the sketch, so few values are an exact number.
MEASURES: dict[str, tuple[Any, str]] = {
    "rows": (Count(), "count(1)"),
    "positive": (Count("n > 0"), "count_if(n > 0)"),
    "total": (Sum("m", type="numeric(20, 2)"), "coalesce(sum(m), 0)"),
    "least": (Min("n", type="bigint"), "min(n)"),
    "most": (Max("x"), "max(x)"),
    "mean": (Mean("x"), "avg(x)"),
    "spread": (Variance("x"), "var_samp(x)"),
    "deviation": (StdDev("x", of="population"), "stddev_pop(x)"),
    "first": (First("n", by="at", type="bigint"), "min_by(n, at) FILTER (WHERE n IS NOT NULL)"),
    "last": (Last("n", by="at", type="bigint"), "max_by(n, at) FILTER (WHERE n IS NOT NULL)"),
    "kinds": (DistinctSet("words", type="text"), "count(DISTINCT words)"),
}


def measured(name: str) -> list[str]:
    """Return the measures of a state: all of one, and some of each other, because Spark compiles each of them anew."""
    names = list(MEASURES)
    start = sum(name.encode()) % len(names)
    return names if name == "kept" else [*names, *names][start : start + 3]


def split(text: str) -> list[tuple[str]]:
    return [(word,) for word in text.split()]


def without_low(events: DataFrame) -> DataFrame:
    return events.where(F.col("x") > 5)


def held(name: str, **key: str) -> StateSpec:
    return StateSpec(name, key=key, value="jsonb")


def counted(name: str, **key: str) -> StateSpec:
    return StateSpec(name, key=key, measures={"total": Sum("total", type="bigint")})


def aggregated(key: str) -> Callable[[str, GroupedStream], FedState]:
    """Return what feeds a state of all measures by one key of that type."""

    def fed(name: str, grouped: GroupedStream) -> FedState:
        [column] = grouped.keys
        spec = StateSpec(name, key={column: key}, measures={each: MEASURES[each][0] for each in measured(name)})
        return grouped.persistent_aggregate(spec)

    return fed


def moved(events: Stream) -> FedState:
    """What changes in one state, added up in another."""
    counts = events.group_by("person").persistent_aggregate(
        StateSpec("moved_from", key={"person": "text"}, measures={"n": Count()})
    )
    changes = counts.new_values_stream().each(total="n - coalesce(prev_n, 0)")
    return changes.group_by("person").persistent_aggregate(counted("moved", person="text"))


def taken_away(events: Stream) -> FedState:
    """Each row, and half of the rows again with the opposite sign."""
    added = events.each(sign="1")
    signed = added.merge(added.where("place % 2 = 0").each(sign="-1")).retract("sign")
    spec = StateSpec("taken_away", key={"person": "text"}, measures={"rows": RowCount(), "total": Sum("n", "bigint")})
    return signed.group_by("person").persistent_aggregate(spec)


def paired(events: Stream) -> FedState:
    left = events.where("n > 0").project("person", "at", "place")
    right = events.where("n <= 0").each(then="at", other="place").project("person", "then", "other")
    pairs = join(left, right, held("waiting", person="text"), times=("at", "then"), within=timedelta(hours=9))
    spec = StateSpec(
        "paired",
        key={"person": "text"},
        measures={"pairs": Count("other IS NOT NULL"), "alone": Count("other IS NULL"), "sum": Sum("other", "bigint")},
    )
    return pairs.group_by("person").persistent_aggregate(spec)


def sessions(events: Stream) -> FedState:
    closed = closed_sessions(events, held("open", person="text"), "at", timedelta(hours=3))
    spec = counted("sessions", person="text", started="timestamptz")
    return closed.each(total="events").group_by("person", "started").persistent_aggregate(spec)


def running(events: Stream) -> FedState:
    spec = StateSpec("running", key={"person": "text"}, measures={"total": Sum("n", type="bigint")})
    return events.partition_persist(spec, RunningTotal(("person",), total="total", change="n"))


def closed_windows(events: Stream) -> FedState:
    spec = StateSpec("open_windows", key={"start": "timestamptz"}, measures={"total": Count()})
    opened = events.group_by(start=tumbling("at", "6 hours")).persistent_aggregate(spec, allowed_lateness="1 hour")
    return (
        opened.closed_windows().group_by("start").persistent_aggregate(counted("closed_windows", start="timestamptz"))
    )


BY_TEXT, BY_NUMBER, BY_TIME = aggregated("text"), aggregated("bigint"), aggregated("timestamptz")
COLUMNS = ["place", "person", "words", "n", "m", "x", "at"]
BERLIN = "to_utc_timestamp(date_trunc('month', from_utc_timestamp(at, 'Europe/Berlin')), 'Europe/Berlin')"

# Verb to what it feeds, and to the query over the table `events` that gives the same. ANSWER: the measures.
CASES: dict[str, tuple[Callable[[Stream], FedState], str]] = {
    "kept": (
        lambda events: BY_TEXT("kept", events.where("n > 0").group_by("person")),
        "SELECT person, ANSWER FROM events WHERE n > 0 GROUP BY person",
    ),
    "projected": (
        lambda events: BY_TEXT("projected", events.where("n IS NULL OR n < 9").project(*COLUMNS).group_by("person")),
        "SELECT person, ANSWER FROM events WHERE n IS NULL OR n < 9 GROUP BY person",
    ),
    "changed": (
        lambda events: BY_NUMBER("changed", events.each(part="n % 7", x="x * 2").group_by("part")),
        "SELECT part, ANSWER FROM (SELECT * EXCEPT (x), x * 2 AS x, n % 7 AS part FROM events) "
        "WHERE part IS NOT NULL GROUP BY part",
    ),
    "exploded": (
        lambda events: BY_TEXT("exploded", events.each(word="explode(split(words, ' '))").group_by("word")),
        "SELECT word, ANSWER FROM events LATERAL VIEW explode(split(words, ' ')) AS word GROUP BY word",
    ),
    "emitted": (
        lambda events: BY_TEXT("emitted", events.each(split, ["words"], word="string").group_by("word")),
        "SELECT word, ANSWER FROM events LATERAL VIEW explode(split(words, ' ')) AS word GROUP BY word",
    ),
    "transformed": (
        lambda events: BY_TEXT("transformed", events.transform(without_low).group_by("person")),
        "SELECT person, ANSWER FROM events WHERE x > 5 GROUP BY person",
    ),
    "merged": (
        lambda events: BY_TEXT("merged", events.where("n > 0").merge(events.where("n < 20")).group_by("person")),
        "SELECT person, ANSWER FROM (SELECT * FROM events WHERE n > 0 UNION ALL SELECT * FROM events WHERE n < 20) "
        "GROUP BY person",
    ),
    "by_batch": (
        lambda events: (
            events.group_by("person")
            .aggregate(total="count(1)")
            .group_by("person")
            .persistent_aggregate(counted("by_batch", person="text"))
        ),
        "SELECT person, count(1) AS total FROM events GROUP BY person",
    ),
    "tumbling": (
        lambda events: BY_TIME("tumbling", events.group_by(start=tumbling("at", "5 hours"))),
        "SELECT window.start, ANSWER FROM events GROUP BY window(at, '5 hours')",
    ),
    "sliding": (
        lambda events: BY_TIME("sliding", events.group_by(start=sliding("at", "60 minutes", "25 minutes"))),
        "SELECT window.start, ANSWER FROM events GROUP BY window(at, '60 minutes', '25 minutes')",
    ),
    "calendar": (
        lambda events: BY_TIME("calendar", events.group_by(start=calendar("at", "month", "Europe/Berlin"))),
        f"SELECT {BERLIN} AS start, ANSWER FROM events GROUP BY 1",
    ),
    "closed_windows": (
        closed_windows,
        "SELECT window.start, count(1) AS total FROM events WHERE place >= 0 GROUP BY window(at, '6 hours')",
    ),
    "sessions": (
        sessions,
        "SELECT person, session_window.start AS started, count(1) AS total FROM events WHERE place >= 0 "
        "GROUP BY person, session_window(at, '3 hours')",
    ),
    "moved": (moved, "SELECT person, count(1) AS total FROM events GROUP BY person"),
    "taken_away": (
        taken_away,
        "SELECT person, count(1) AS rows, coalesce(sum(n), 0) AS total FROM events WHERE place % 2 <> 0 GROUP BY 1",
    ),
    "running": (running, "SELECT person, sum(n) AS total FROM events GROUP BY person HAVING total <> 0"),
    "once": (
        lambda events: BY_TEXT(
            "once", distinct(events, held("seen", words="text"), first_by=["place"]).group_by("person")
        ),
        "SELECT person, ANSWER FROM (SELECT *, row_number() OVER (PARTITION BY words ORDER BY arrived, place) "
        "AS nth FROM events) WHERE nth = 1 GROUP BY person",
    ),
    "ordered": (
        lambda events: BY_TEXT("ordered", in_order(events, held("held", person="text"), "at").group_by("person")),
        "SELECT person, ANSWER FROM events WHERE place >= 0 GROUP BY person",
    ),
    "paired": (
        paired,
        """WITH pair AS (SELECT l.person, l.place, r.place AS other FROM events l LEFT JOIN events r
            ON l.person = r.person AND r.n <= 0 AND r.at BETWEEN l.at AND l.at + INTERVAL 9 HOURS
            WHERE l.n > 0 AND l.place >= 0)
        SELECT person, count(other) AS pairs, count_if(other IS NULL) AS alone, sum(other) AS sum
        FROM pair GROUP BY person""",
    ),
}


def random_rows(seed: int) -> list[dict[str, Any]]:
    """Return rows of one week in any order, all at different times."""
    chance = random.Random(seed)
    places = chance.sample(range(7 * 86_400_000_000), ROWS)
    return [
        {
            "place": place,
            "person": chance.choice(["ann", "bob", "cem", "é", ""]),
            "words": " ".join(chance.choices("abcd", k=chance.randint(1, 3))),
            "n": chance.choice([None, *range(-20, 20)]),
            "m": chance.choice([None, "0.01", "-3.50", "1234567.89"]),
            "x": chance.uniform(0, 10),
            "at": (BEGAN + timedelta(microseconds=at)).isoformat(),
        }
        for place, at in enumerate(places)
    ]


def dies_before(txid: int, commit: Callable[..., Any]) -> Callable[..., Any]:
    def commit_or_die(ledger: BatchLedger, batch: Batch, *args: Any, **figures: Any) -> Any:
        if batch.txid == txid:
            raise InjectedFault
        return commit(ledger, batch, *args, **figures)

    return commit_or_die


@pytest.mark.parametrize("seed", [12])
def test_the_states_are_what_spark_answers_for_all_rows(request, workspace, monkeypatch, seed):
    events = Stream.read(JsonFiles(workspace.input, schema=SCHEMA, files_per_batch=1)).with_watermark("at", "9 days")
    pipeline = Pipeline("verbs", [made(events) for made, _ in CASES.values()])
    rows = random_rows(seed)
    files = [rows[number::BATCHES] for number in range(BATCHES)]
    # They let the watermark pass all that came before, so that what waits for it is there.
    files += [
        [{"place": -day, "person": "end", "words": "a", "at": (BEGAN + timedelta(days=99 + day)).isoformat()}]
        for day in (1, 2)
    ]
    for number, lines in enumerate(files):
        workspace.land(f"{number}.json", *lines)
    with monkeypatch.context() as patch:
        patch.setattr(BatchLedger, "commit", dies_before(2, BatchLedger.commit))
        with pytest.raises(InjectedFault):
            workspace.run(pipeline)
    batches = workspace.run(pipeline)

    table = workspace.spark.read.schema(SCHEMA).json(str(workspace.input))
    arrived = F.regexp_extract(F.input_file_name(), r"(\d+)\.json$", 1).cast("int")
    table.withColumn("arrived", arrived).createOrReplaceTempView("events")
    request.addfinalizer(lambda: workspace.spark.catalog.dropTempView("events"))
    specs = {spec.name: spec for spec in pipeline.specs}
    assert batches[:2] == [(2, 2), (3, 1)]
    for name, (_, query) in CASES.items():
        answers = ", ".join(f"{answer} AS {each}" for each, (_, answer) in MEASURES.items() if each in measured(name))
        key, measures = specs[name].key, specs[name].measures
        answer = {
            tuple(_key(row[column]) for column in key): {measure: _figure(row[measure]) for measure in measures}
            for row in workspace.spark.sql(query.replace("ANSWER", answers)).collect()
        }
        stored = {
            tuple(map(_key, found if len(key) > 1 else (found,))): {
                measure: _figure(value) for measure, value in values.items()
            }
            for found, values in workspace.values(name).items()
        }
        assert len(answer) > 1, name
        assert stored == {each: pytest.approx(value, rel=1e-9) for each, value in answer.items()}, name


def _key(part: Any) -> Any:
    """Times as texts in UTC: a state's come with their zone, and Spark's in that of this process."""
    if isinstance(part, str) and part[:2] == "20":
        part = datetime.fromisoformat(part)
    return part.astimezone(UTC).isoformat() if isinstance(part, datetime) else part


def _figure(value: Any) -> float | None:
    return None if value is None else float(value)
