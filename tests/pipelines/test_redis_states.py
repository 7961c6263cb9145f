"""States in Redis: a pipeline feeds one there and one in PostgreSQL, and the two are at the same batch, exactly."""

import os
from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from tests.pipelines.basket_updater import FillBaskets
from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tests.redis_without import redis_without
from tidegauge.pipelines.batch import sink
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import JsonFiles, TextFiles
from tidegauge.state_backends import (
    BatchLedger,
    Catalog,
    Changelog,
    Count,
    DistinctCount,
    Max,
    Mean,
    RedisBackingMap,
    Replace,
    StateReader,
    StateSpec,
    Sum,
    Versioned,
)
from tidegauge.state_backends.backends.external_session import ExternalSession
from tidegauge.state_backends.errors import BackendSetupError, FencedError, LostBatchesError, SpecMismatchError

pytestmark = pytest.mark.spark

WORDS = StateSpec(
    "redis_words", key={"word": "text"}, measures={"count": Count(), "length": Mean("length")}, backend="redis"
)
LINES = StateSpec("redis_lines", measures={"count": Count()})
NAMES = ("redis_words", "redis_lengths", "redis_baskets", "redis_profiles", "redis_moved")


@pytest.fixture(autouse=True)
def client():
    """Redis, without what earlier tests have left of these states."""
    with redis_without(*NAMES) as client:
        yield client


class EditedFiles(TextFiles):
    """Files that somebody rewrites: a replay may bring other lines."""

    spout = "opaque"


def words_and_lines(folder, source=EditedFiles, accident=None, words=WORDS):
    """Words in Redis, lines in PostgreSQL; the second fails while `accident` has something, behind the first."""

    def strike(lines):
        if accident:
            raise InjectedFault(accident.pop())
        return lines

    lines = Stream.read(source(folder, files_per_batch=1))
    split = lines.each(word="explode(split(line, ' '))").each(length="length(word)")
    counted = split.group_by("word").persistent_aggregate(words)
    behind = counted.new_values_stream().where("false").transform(strike)
    return Pipeline("redis_words", [lines.merge(behind).persistent_aggregate(LINES)])


def seen(client, spec=WORDS):
    """Return the published txid and what its readers see, key to finished value."""
    backing = RedisBackingMap(client, spec)
    batch, rows = backing.multi_get_committed([key for key, _ in backing.scan()])
    keys = [key[0] for key, _ in backing.scan()]
    return batch.txid, {
        key: spec.finish(row.value) for key, row in zip(keys, rows, strict=True) if row.status == "found"
    }


def counts(client, spec=WORDS):
    return {word: value["count"] for word, value in seen(client, spec)[1].items()}


def lines_at(workspace):
    snapshot = StateReader(workspace.conn, LINES).multi_get([()])
    return snapshot.txid, snapshot.parsed()[0]["value"]


def test_a_state_in_redis_and_one_in_postgres_are_exact_and_at_one_txid(workspace, client):
    chance = Random(7)
    batches = [[chance.choice(["ant", "bee", "cat", "dog"]) for _ in range(200)] for _ in range(3)]
    for number, words in enumerate(batches):
        workspace.land(f"{number}.txt", *(" ".join(words[at : at + 5]) for at in range(0, 200, 5)))

    workspace.run(words_and_lines(workspace.input))

    expected = Counter(word for words in batches for word in words)
    assert seen(client) == (3, {word: {"count": count, "length": 3.0} for word, count in expected.items()})
    assert lines_at(workspace) == (3, {"count": 120})
    assert workspace.rows("SELECT to_regclass('tidegauge_state.redis_words')") == [(None,)]
    assert Catalog(workspace.conn).get("redis_words").backend == "redis"


@pytest.mark.parametrize("measures", ["folded in Lua", "folded in Python", "logged", "spread"])
def test_a_replay_of_a_failed_batch_counts_what_it_brings(workspace, client, measures):
    """It brings one key no more, one more often, one less often, and one new."""
    extra = {"distinct": DistinctCount("word")} if measures == "folded in Python" else {}
    spec = StateSpec(
        "redis_words",
        key=WORDS.key,
        measures={**WORDS.measures, **extra},
        backend="redis",
        changelog=measures == "logged",
        partitions=16 if measures == "spread" else 1,
    )
    workspace.land("1.txt", "dog cat emu")
    workspace.run(words_and_lines(workspace.input, words=spec))
    second = workspace.land("2.txt", "dog cat emu emu gnu")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, accident=FaultAfterCheck(skip=1), words=spec))
    meanwhile = counts(client, spec)

    second.write_text("cat cat emu fox\n")
    replayed = workspace.run(words_and_lines(workspace.input, words=spec))

    expected = {"dog": 1, "cat": 3, "emu": 2, "fox": 1}
    assert meanwhile == {"dog": 1, "cat": 1, "emu": 1}
    assert replayed == [(2, 2)]
    assert counts(client, spec) == expected
    assert lines_at(workspace) == (2, {"count": 2})
    if spec.changelog:
        keys = [(word,) for word in expected]
        logged = Changelog(workspace.conn, spec).at_txid(2, keys)
        assert [change.value["count"] for change in logged] == list(expected.values())
        assert Changelog(workspace.conn, spec).at_txid(2, [("gnu",)]) == [None]


def test_an_opaque_batch_that_was_committed_and_comes_again_counts_as_it_comes_this_time(workspace, client):
    workspace.land("1.txt", "dog cat")
    last = workspace.land("2.txt", "dog cow")
    workspace.run(words_and_lines(workspace.input))
    workspace.forget_last_commit()

    last.write_text("cat\ncat\n")
    batches = workspace.run(words_and_lines(workspace.input))

    assert batches == [(2, 2)]
    assert counts(client) == {"dog": 1, "cat": 3}
    assert seen(client)[0] == lines_at(workspace)[0] == 2


def dies_before_publishing(monkeypatch, workspace, pipeline):
    def die(self, keys):
        raise InjectedFault("between commit and publish")

    with monkeypatch.context() as patch:
        patch.setattr(ExternalSession, "publish", die)
        with pytest.raises(InjectedFault):
            workspace.run(pipeline)


@pytest.mark.parametrize("source", [TextFiles, EditedFiles])
def test_a_driver_killed_between_commit_and_publish_is_made_good_by_the_next(workspace, client, monkeypatch, source):
    workspace.land("1.txt", "dog")
    workspace.run(words_and_lines(workspace.input, source=source))
    workspace.land("2.txt", "dog cat")
    dies_before_publishing(monkeypatch, workspace, words_and_lines(workspace.input, source=source))
    meanwhile = seen(client)[0], counts(client)

    # Spark has no note of it, so the batch comes again: the transactional one is skipped, the other one counted anew.
    batches = workspace.run(words_and_lines(workspace.input, source=source))

    assert meanwhile == (1, {"dog": 1})
    assert batches == ([] if source is TextFiles else [(2, 2)])
    assert seen(client)[0] == lines_at(workspace)[0] == 2
    assert counts(client) == {"dog": 2, "cat": 1}


def test_a_batch_that_was_not_published_is_shown_before_the_next_one_begins(workspace, client, monkeypatch):
    workspace.land("1.txt", "dog")
    dies_before_publishing(monkeypatch, workspace, words_and_lines(workspace.input, source=TextFiles))
    workspace.land("2.txt", "cat")
    begun = []
    begin = BatchLedger.begin
    monkeypatch.setattr(
        BatchLedger, "begin", lambda *args, **options: begun.append(seen(client)[0]) or begin(*args, **options)
    )

    workspace.run(words_and_lines(workspace.input, source=TextFiles))

    assert begun == [1, 1]
    assert counts(client) == {"dog": 1, "cat": 1}


def test_a_task_of_a_driver_that_was_replaced_is_refused_by_redis_itself(workspace, client, monkeypatch):
    """The old driver's task has passed the ledger's check when the new driver begins; only Redis can stop it then."""
    workspace.land("1.txt", "dog")
    pipeline = words_and_lines(workspace.input)
    workspace.run(pipeline)
    catalog, stale = Catalog(workspace.conn), BatchLedger(workspace.conn, "redis_words")
    stale.acquire(patience_ms=3_000)
    old = stale.begin(1)
    session = BatchContext(old, workspace.dsn).session(workspace.conn, catalog.get("redis_words"))
    session.admit()
    attempt = RedisBackingMap(client, catalog.get("redis_words")).under(old.fence, old.txid, old.attempt)
    stale.release()

    workspace.land("2.txt", "cat")
    workspace.run(pipeline)

    with pytest.raises(FencedError, match="attempt 1 at batch 2 under fence 2 may not write"):
        attempt.multi_remove([("dog",)])
    with pytest.raises(FencedError):
        session.publish(None)
    assert counts(client) == {"dog": 1, "cat": 1}


def test_an_entry_of_a_driver_that_was_replaced_never_reaches_the_changelog(workspace, client):
    spec = StateSpec("redis_words", key=WORDS.key, measures=WORDS.measures, backend="redis", changelog=True)
    workspace.land("1.txt", "dog")
    workspace.run(words_and_lines(workspace.input, words=spec))
    ledger = BatchLedger(workspace.conn, "redis_words")
    ledger.acquire(patience_ms=3_000)
    old = ledger.begin(1)
    stale = BatchContext(old, workspace.dsn).session(workspace.conn, spec)
    stale.admit()
    row = Versioned({"count": 9, "length_sum": 9.0, "length_count": 9}, old.txid)

    def write_late():
        with stale.writing(), stale.updating() as rows:
            rows.multi_put([("dog",)], [row])
            # Another driver takes over, between the task's look at the ledger and its writes.
            workspace.conn.execute("UPDATE tidegauge.pipeline SET fence = fence + 1")

    with pytest.raises(FencedError):
        write_late()
    ledger.release()
    assert workspace.rows("SELECT count(*) FROM tidegauge_changelog.redis_words WHERE txid > 1") == [(0,)]
    assert counts(client, spec) == {"dog": 1}


class Breaks(FillBaskets):
    """Stumbles over the last tuple, having updated all others."""

    def update_state(self, state, tuples, collector):
        super().update_state(state, tuples[:-1], collector)
        raise InjectedFault("an updater's own")


def baskets(folder, spec, updater=None):
    events = Stream.read(JsonFiles(folder, schema="user string, item string, at bigint", files_per_batch=1))
    filled = events.partition_persist(
        spec, updater or FillBaskets(), order_by=["at"], emits={"user": "string", "items": "bigint"}
    )
    lengths = StateSpec(
        "redis_lengths", key={"items": "bigint"}, measures={"n": Count()}, backend="redis", kind="transactional"
    )
    counted = filled.new_values_stream().where("items > 0").group_by("items").persistent_aggregate(lengths)
    return Pipeline("redis_baskets", [counted]), lengths


@pytest.mark.parametrize(("kind", "changelog"), [("opaque", True), ("transactional", False)])
def test_an_updater_over_redis_sees_what_it_wrote_and_leaves_nothing_half_done(workspace, client, kind, changelog):
    spec = StateSpec(
        "redis_baskets", key={"user": "text"}, value="jsonb", backend="redis", kind=kind, changelog=changelog
    )
    event = lambda user, item, at: {"user": user, "item": item, "at": at}  # noqa: E731
    workspace.land("1.json", event("ann", "pear", 1), event("ann", "fig", 2), event("bob", "fig", 1))
    with pytest.raises(Exception, match="InjectedFault"):
        workspace.run(baskets(workspace.input, spec, Breaks())[0])
    workspace.land("2.json", event("ann", "done", 4), event("ann", "plum", 3), event("bob", "yam", 2))

    pipeline, lengths = baskets(workspace.input, spec)
    workspace.run(pipeline)

    assert seen(client, spec) == (2, {"bob": {"value": ["fig", "yam"]}})
    assert seen(client, lengths) == (2, {3: {"n": 1}})
    if changelog:
        history = Changelog(workspace.conn, spec).history(("ann",))
        assert [(change.txid, change.value) for change in history] == [(2, None), (1, {"value": ["pear", "fig"]})]


def test_new_values_and_those_before_come_from_redis_as_from_postgres(workspace, client):
    """How many words occur how often: each word that moves up leaves one place and enters another."""
    by_count = StateSpec("redis_lengths", key={"times": "bigint"}, measures={"n": Sum("step", type="bigint")})
    lines = Stream.read(EditedFiles(workspace.input, files_per_batch=1))
    words = lines.each(word="explode(split(line, ' '))").each(length="length(word)")
    counted = words.group_by("word").persistent_aggregate(WORDS)
    moves = counted.new_values_stream().each(
        move="explode(array(struct(count AS times, 1 AS step), struct(prev_count AS times, -1 AS step)))"
    )
    steps = moves.each(times="move.times", step="move.step").where("times is not null")
    pipeline = Pipeline("redis_words", [steps.group_by("times").persistent_aggregate(by_count)])
    workspace.land("1.txt", "dog cat dog")
    workspace.land("2.txt", "dog cow")
    workspace.run(pipeline)
    workspace.forget_last_commit()

    workspace.run(pipeline)

    assert {times: value["n"] for times, value in workspace.values("redis_lengths").items()} == {1: 2, 2: 0, 3: 1}


PROFILES = StateSpec(
    "redis_profiles", key={"user": "text"}, measures={"region": Max("region", type="text")}, backend="redis"
)


def test_a_stream_finds_in_redis_what_was_committed_before_its_batch(workspace, client):
    def views():
        events = Stream.read(JsonFiles(workspace.input, schema="user string, region string", files_per_batch=1))
        known = events.where("region is not null").group_by("user").persistent_aggregate(PROFILES)
        views = events.where("region is null").project("user").state_query(PROFILES, ["user"], region="string")
        by_region = StateSpec("redis_lengths", key={"region": "text"}, measures={"views": Count()})
        named = views.each(region="coalesce(region, 'unknown')").group_by("region").persistent_aggregate(by_region)
        pipeline = Pipeline("redis_views", [known, named])
        pipeline.sources[0].spout = "opaque"
        return pipeline

    workspace.land("1.json", {"user": "ann", "region": "north"}, {"user": "ann"})
    workspace.land("2.json", {"user": "ann"}, {"user": "bob"}, {"user": "ann", "region": "south"})
    workspace.run(views())
    workspace.forget_last_commit()

    again = workspace.run(views())

    assert again == [(2, 2)]
    assert workspace.values("redis_lengths") == {"north": {"views": 1}, "unknown": {"views": 2}}


def test_another_pipeline_finds_in_redis_what_is_published(workspace, client, tmp_path):
    workspace.land("1.txt", "dog dog cat")
    workspace.run(words_and_lines(workspace.input))
    events = Stream.read(TextFiles(workspace.input))
    words = events.each(word="explode(split(line, ' '))").state_query(WORDS, ["word"], count="bigint")
    looked_up = StateSpec("redis_lengths", key={"word": "text"}, measures={"most": Max("count", type="bigint")})
    other = Pipeline("redis_other", [words.group_by("word").persistent_aggregate(looked_up)])

    Driver(other, workspace.spark, workspace.dsn, RunOptions(tmp_path / "other", once=True)).run()

    assert workspace.values("redis_lengths") == {"dog": {"most": 2}, "cat": {"most": 1}}


class Sleeps:
    """Notes when each user is to be woken, and says when that was."""

    def update_state(self, state, tuples, collector):
        for row in tuples:
            key = (row["user"],)
            if row["woken"]:
                collector.emit(row["user"])
                state.multi_remove([key])
            else:
                state.multi_update([key], [Replace({"due": row["due"]})])


def test_a_timer_of_a_state_in_redis_wakes_its_key(workspace, client):
    spec = StateSpec("redis_baskets", key={"user": "text"}, value="jsonb", backend="redis")
    woken = StateSpec("redis_lengths", key={"user": "text"}, measures={"n": Count()})
    events = Stream.read(JsonFiles(workspace.input, schema="user string, at timestamp, due string", files_per_batch=1))
    slept = events.with_watermark("at", "0 seconds").partition_persist(
        spec, Sleeps(), due="due", emits={"user": "string"}
    )
    pipeline = Pipeline("redis_timers", [slept.new_values_stream().group_by("user").persistent_aggregate(woken)])
    at = lambda minute: f"2024-01-01T00:{minute:02}:00Z"  # noqa: E731
    workspace.land("1.json", {"user": "ann", "at": at(1), "due": at(5)}, {"user": "bob", "at": at(1), "due": at(9)})
    workspace.land("2.json", {"user": "cid", "at": at(6), "due": at(30)})

    workspace.run(pipeline)

    assert workspace.values("redis_lengths") == {"ann": {"n": 1}}
    assert sorted(seen(client, spec)[1]) == ["bob", "cid"]


def test_redis_that_has_lost_committed_batches_is_not_counted_on_from(workspace, client):
    workspace.land("1.txt", "dog")
    workspace.land("2.txt", "dog")
    pipeline = words_and_lines(workspace.input)
    workspace.run(pipeline)
    for key in client.scan_iter("tidegauge:{redis_words}:*"):
        client.unlink(key)
    workspace.land("3.txt", "dog")

    with pytest.raises(LostBatchesError) as caught:
        workspace.run(pipeline)

    assert str(caught.value) == (
        "state 'redis_words': batch 2 was committed, and Redis is at batch 0: it has lost the rest; restore its newest "
        "copy, or feed it again under another name, because it has no changelog to be rebuilt from"
    )
    assert lines_at(workspace) == (2, {"count": 2})


def test_keys_that_somebody_else_left_in_redis_are_not_built_upon(workspace, client):
    RedisBackingMap(client, WORDS).admit(90, 70, 1)
    workspace.land("1.txt", "dog")

    with pytest.raises(SpecMismatchError, match=r"Redis has keys of that name, tidegauge:\{redis_words\}:\*, already"):
        workspace.run(words_and_lines(workspace.input))

    assert Catalog(workspace.conn).names() == []


def test_without_an_address_of_redis_the_pipeline_does_not_start(workspace, monkeypatch):
    monkeypatch.delenv("REDIS_URL")
    with pytest.raises(BackendSetupError, match="a state lives in redis, but REDIS_URL is not set here"):
        workspace.run(words_and_lines(workspace.input))

    monkeypatch.setenv("REDIS_URL", "redis://:sec/ret@localhost:1/0")
    with pytest.raises(BackendSetupError) as caught:
        workspace.run(words_and_lines(workspace.input))
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_reprocess_into_redis_is_refused(workspace):
    with pytest.raises(PipelineError, match=r"state 'redis_words' lives in redis, .* feed it under another name"):
        Reprocess(words_and_lines(workspace.input), workspace.spark, workspace.dsn, workspace.checkpoint)


def test_a_state_moves_out_of_redis_by_a_reprocess_and_by_that_alone(workspace, client):
    moved = StateSpec("redis_words", key=WORDS.key, measures=WORDS.measures)
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input))
    workspace.land("2.txt", "dog")

    with pytest.raises(SpecMismatchError) as caught:
        workspace.run(words_and_lines(workspace.input, words=moved))
    Reprocess(words_and_lines(workspace.input, words=moved), workspace.spark, workspace.dsn, workspace.checkpoint).run()

    assert "backend was 'redis', is 'postgres'; restore the declaration, or move its rows with" in str(caught.value)
    assert {word: value["count"] for word, value in workspace.values("redis_words").items()} == {"dog": 2, "cat": 1}
    assert seen(client) == (1, {"dog": {"count": 1, "length": 3.0}, "cat": {"count": 1, "length": 3.0}})


def test_a_new_measure_of_a_state_in_redis_begins_at_nothing_and_wider_ones_are_refused(workspace, client):
    more = StateSpec(
        "redis_words",
        key=WORDS.key,
        measures={**WORDS.measures, "longest": Max("length", type="bigint")},
        backend="redis",
        ttl=timedelta(days=1),
    )
    logged = StateSpec("redis_words", key=WORDS.key, measures=WORDS.measures, backend="redis", changelog=True)
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input))
    with pytest.raises(SpecMismatchError, match="changelog was False, is True"):
        workspace.run(words_and_lines(workspace.input, words=logged))
    workspace.land("2.txt", "dog")

    workspace.run(words_and_lines(workspace.input, words=more))

    assert seen(client, more)[1] == {
        "dog": {"count": 2, "length": 3.0, "longest": 3},
        "cat": {"count": 1, "length": 3.0, "longest": None},
    }


def test_the_address_of_redis_is_in_no_task(workspace, client, monkeypatch):
    workspace.land("1.txt", "dog")
    shipped = []
    run_partition = sink.run_partition

    def noted(tasks, emits):
        shipped.append(repr(tasks))
        return run_partition(tasks, emits)

    monkeypatch.setattr(sink, "run_partition", noted)

    workspace.run(words_and_lines(workspace.input))

    assert shipped
    assert not any(os.environ["REDIS_URL"] in tasks for tasks in shipped)
