"""A recount finds what was lost in the rows, in the changelog and on the way to both, and nothing else."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

from tests.recovery_page import arguments, commands, message_of
from tests.redis_without import redis_without
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.session import PATIENCE_MS
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.errors import RecountError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.repair.recount import Recount
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, TextFiles
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.state_backends import (
    BatchLedger,
    Count,
    DistinctCount,
    DistinctSet,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    PostgresBackingMap,
    Quantiles,
    RedisBackingMap,
    StateSpec,
    StdDev,
    Sum,
    TopK,
    Variance,
)
from tidegauge.state_backends.ledger import batch_ledger as ledger

pytestmark = pytest.mark.spark

COMMAND_SECONDS = 240.0  # includes Spark's start on a busy machine

SCHEMA = "shop string, item string, price decimal(18,2), weight double, at timestamp, n bigint"
SOLD = StateSpec(
    "sold",
    key={"shop": "text", "hour": "timestamptz"},
    measures={
        "events": Count(),
        "dear": Count(where="price > 10"),
        "total": Sum("price", type="numeric(20,2)"),
        "whole": Sum("n", type="bigint"),
        "weight": Sum("weight", "double precision"),
        "mean": Mean("weight"),
        "variance": Variance("weight"),
        "deviation": StdDev("weight"),
        "least": Min("price", type="numeric"),
        "most": Max("weight"),
        "first": First("item", by="at", type="text"),
        "last": Last("price", by="at", type="numeric"),
        "latest": Latest("item", by="at", n="bigint"),
        "items": DistinctCount("item", lg_k=4),
        "set": DistinctSet("item", lg_k=5),
        "quantiles": Quantiles("weight", k=8),
        "top": TopK("item", k=3, max_items=8),
    },
    changelog=True,
)
WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)


def sale(number):
    return {
        "shop": f"s{number % 5}",
        "item": f"i{number % 97}",
        "price": f"{number % 41}.{number % 100:02}",
        "weight": number / 7,
        "at": f"2024-01-01T{number % 3:02}:00:{number % 60:02}Z",
        "n": number,
    }


def words(folder, spec=WORDS, files_per_batch=1):
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    return Pipeline("p", [lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(spec)])


def recount(workspace, pipeline, state="words", sample=100):
    return Recount(pipeline, state, workspace.conn, lambda: workspace.spark, workspace.checkpoint).audit(sample)


def found(audit, place="row"):
    """Return key to (stored, counted) of the measure `count`, where that deviates."""
    return {
        each.key[0]: tuple(value and value["count"] for value in (each.stored, each.counted))
        for each in audit.deviations
        if each.place == place
    }


@pytest.fixture
def counted(workspace):
    """Three batches of words."""
    for name, line in {"1.txt": "dog cat", "2.txt": "dog", "3.txt": "emu dog"}.items():
        workspace.land(name, line)
    workspace.run(words(workspace.input))
    return workspace


def test_a_pipeline_of_several_sources_and_all_aggregators_deviates_nowhere(workspace):
    def pipeline():
        hour = "date_trunc('hour', at)"
        json_files = Stream.read(JsonFiles(workspace.input, schema=SCHEMA, files_per_batch=1))
        csv_files = Stream.read(CsvFiles(workspace.input, schema=SCHEMA, files_per_batch=1))
        events = json_files.where("n is not null").merge(csv_files)
        return Pipeline("p", [events.group_by("shop", hour=hour).persistent_aggregate(SOLD)])

    for batch in range(4):
        workspace.land(f"{batch}.json", *map(sale, range(batch * 300, batch * 300 + 300)), "no json")
        lines = [",".join(map(str, sale(number).values())) for number in range(batch * 200, batch * 200 + 200)]
        workspace.land(
            f"{batch}.csv",
            SCHEMA.replace(" string", "")
            .replace(" decimal(18,2)", "")
            .replace(" double", "")
            .replace(" timestamp", "")
            .replace(" bigint", "")
            .replace(" ", ""),
            *lines,
            "s1,too,few",
        )
    assert len(workspace.run(pipeline())) >= 4

    audit = recount(workspace, pipeline(), "sold")

    assert (audit.keys, list(audit.deviations), list(audit.losses), list(audit.remarks)) == (15, [], [], [])


def test_rows_and_entries_that_are_lost_or_changed_are_found(counted):
    counted.conn.execute("DELETE FROM tidegauge_state.words WHERE word = 'dog'")
    counted.conn.execute("UPDATE tidegauge_state.words SET count = 7 WHERE word = 'cat'")
    counted.conn.execute("UPDATE tidegauge_state.words SET word = 'gnu' WHERE word = 'emu'")
    counted.conn.execute("DELETE FROM tidegauge_changelog.words WHERE word = 'dog' AND txid = 3")

    audit = recount(counted, words(counted.input))

    assert found(audit) == {"dog": (None, 3), "cat": (7, 1), "gnu": (1, None), "emu": (None, 1)}
    assert found(audit, "changelog") == {"dog": (2, 3)}


def test_a_batch_that_was_skipped_by_its_number_is_found(workspace, monkeypatch):
    """As the last batch of a checkpoint that went back: it is planned again, with a file more."""
    workspace.land("1.txt", "dog")
    workspace.run(words(workspace.input, files_per_batch=2))
    for folder in ("offsets", "commits", "sources/0"):
        for file in (workspace.checkpoint / folder).iterdir():
            file.unlink()
    workspace.land("2.txt", "cat dog")
    monkeypatch.setattr(ledger, "input_difference", lambda *_: "")
    workspace.run(words(workspace.input, files_per_batch=2))
    assert workspace.values("words") == {"dog": {"count": 1}}

    audit = recount(workspace, words(workspace.input))

    assert found(audit) == {"dog": (1, 2), "cat": (None, 1)}
    assert [*audit.losses] == [f"folder {str(workspace.input)!r}: 1 files were never counted: '2.txt'"]
    assert re.search(message_of("An audit found a deviation", 2), audit.losses[0])


def test_batches_that_are_open_or_committed_meanwhile_make_no_deviation(counted, database_url):
    def run_more():
        counted.land("4.txt", "dog gnu")
        counted.run(words(counted.input))
        driver = BatchLedger(counted.conn, "p")
        driver.acquire(patience_ms=PATIENCE_MS)
        batch = driver.begin(4)
        with counted.conn.transaction():
            rows = pa.RecordBatch.from_pydict({"word": ["cat", "yak"], "count": [5, 5]})
            PostgresBackingMap(counted.conn, WORDS).merge([rows], batch.txid, batch.batch_time)
        return counted.spark

    with psycopg.connect(database_url, autocommit=True) as conn:
        audit = Recount(words(counted.input), "words", conn, run_more, counted.checkpoint).audit(100)

    assert (audit.txid, [*audit.deviations]) == (4, [])
    assert audit.keys >= 3


def test_keys_that_redis_has_lost_are_found(workspace):
    spec = replace(WORDS, name="recounted_words", backend="redis", changelog=False)
    with redis_without(spec.name) as client:
        workspace.land("1.txt", "dog cat dog")
        workspace.run(words(workspace.input, spec))
        assert recount(workspace, words(workspace.input, spec), spec.name).is_exact

        RedisBackingMap(client, spec).multi_remove([("dog",)])

        assert found(recount(workspace, words(workspace.input, spec), spec.name)) == {"dog": (None, 2)}


def test_what_cannot_be_recounted_is_refused_with_the_reason(counted):
    lines = Stream.read(TextFiles(counted.input)).each(word="explode(split(line, ' '))")
    others = {
        "(Deduplicate) looks at a batch as a whole": lines.transform(lambda rows: rows.distinct()),
        "(Window) looks at a batch as a whole": lines.each(n="row_number() over (partition by word order by line)"),
        "its stream looks up a state, whose values differ by batch": lines.state_query(WORDS, ["word"], count="bigint"),
        "source Rate cannot give its input again": Stream.read(Rate(1)).each(word="cast(value as string)"),
    }
    for reason, stream in others.items():
        with pytest.raises(RecountError, match=re.escape(reason)):
            recount(counted, Pipeline("p", [stream.group_by("word").persistent_aggregate(WORDS)]))

    changes = {
        "it was added after batch 2": "UPDATE tidegauge.state SET since_txid = 2",
        "it has not been fed since batch 2": "UPDATE tidegauge.state SET last_fed_txid = 2",
        "bound to another checkpoint by --rebind": "UPDATE tidegauge.batch SET batch_id = 0 WHERE txid = 3",
        "4 events came after the watermark and were left out": "UPDATE tidegauge.batch SET total_dropped = 4",
        "its keys end 0:00:00.000001 after their last update": "UPDATE tidegauge.state SET ttl = '1 microsecond'",
        "measure 'count' is not compared: it is not fed now": (
            "UPDATE tidegauge.state SET measures_last_fed = '{\"count\": 2}'"
        ),
    }
    for reason, change in changes.items():
        with counted.conn.transaction(force_rollback=True):
            counted.conn.execute(change)
            with pytest.raises(RecountError, match=re.escape(reason)):
                recount(counted, words(counted.input))

    (counted.input / "2.txt").write_text("dog dog")
    with pytest.raises(RecountError, match="1 of the 3 files that were counted are gone or have changed since"):
        recount(counted, words(counted.input))


def test_keys_of_which_a_share_was_refused_are_left_out(workspace):
    spec = replace(WORDS, measures={"total": Sum("n", type="bigint")})
    numbers = Stream.read(JsonFiles(workspace.input, schema="word string, n bigint", files_per_batch=1))
    pipeline = Pipeline("p", [numbers.group_by("word").persistent_aggregate(spec)])
    for name, number in {"1.json": 2**63 - 1, "2.json": 1, "3.json": -5}.items():
        workspace.land(name, {"word": "dog", "n": number}, {"word": "cat", "n": 1})
    workspace.run(pipeline)

    audit = recount(workspace, pipeline)

    assert (audit.keys, [*audit.deviations]) == (1, [])
    assert [*audit.remarks] == ["1 keys are not compared: a batch left out some input"]


def test_the_command_reads_the_source_again_and_fails_where_a_row_is_lost(workspace):
    workspace.land("1.txt", "dog cat dog")
    workspace.run(word_count(workspace.input))
    workspace.conn.execute("DELETE FROM tidegauge_state.words WHERE word = 'dog'")

    audit = arguments(commands("An audit found a deviation")[0], STATE="words")
    places = ["--input", str(workspace.input), "--checkpoint", str(workspace.checkpoint), "--from", "source"]
    ran = subprocess.run(
        [sys.executable, "manage.py", *audit, *places],
        cwd=REPOSITORY,
        env=os.environ | {"DATABASE_URL": workspace.dsn},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )

    assert ran.returncode == 1
    assert "words: row of key ('dog',) holds None, counted {'count': 2}" in ran.stderr
    assert re.search(message_of("An audit found a deviation", 1), ran.stderr)
