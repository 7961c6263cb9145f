"""Recovery with Spark: a checkpoint that is lost, behind or ahead is made good, and every total is exact afterwards."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tests.recovery_page import message_of
from tests.redis_without import redis_without
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import BACKENDS, Catalog, Changelog, Count, RedisBackingMap, StateSpec, rebuild
from tidegauge.state_backends.errors import (
    RewindError,
    StoreAheadError,
)
from tidegauge.state_backends.repair.rewind import Rewind

pytestmark = pytest.mark.spark

REDIS = "recovered_words"
WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)


def words(workspace, fault=None, files_per_batch=1, changelog=True):
    def fail(lines):
        if fault:
            raise InjectedFault(fault.pop())
        return lines

    lines = Stream.read(TextFiles(workspace.input, files_per_batch=files_per_batch)).transform(fail)
    spec = replace(WORDS, changelog=changelog)
    by_word = lines.each(word="explode(split(line, ' '))").group_by("word")
    return Pipeline("words", [by_word.persistent_aggregate(spec)])


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def recovery(workspace, pipeline):
    return Recovery(pipeline, workspace.dsn, workspace.checkpoint, lambda: workspace.spark)


def restore(workspace, pipeline):
    return list(recovery(workspace, pipeline).restore_checkpoint())


def lose(checkpoint):
    shutil.rmtree(checkpoint)


@pytest.fixture
def client():
    with redis_without(REDIS) as client:
        yield client


class TestFiles:
    def test_a_lost_checkpoint_resumes_exactly_whatever_the_files_are_called(self, workspace):
        names = [
            "a b.txt",
            "ü%41.txt",
            "c+d#e?.txt",
            "[f]{g}.txt",
            "q'\"&=;,@~^`|.txt",
            *(f"{n}.txt" for n in range(8)),
        ]
        for name in names:
            workspace.land(name, "dog")
        workspace.run(words(workspace))
        logged = read_log(workspace.checkpoint)
        lose(workspace.checkpoint)

        said = restore(workspace, words(workspace))
        written = read_log(workspace.checkpoint)
        nothing = workspace.run(words(workspace))
        workspace.land("more.txt", "dog cat")
        batches = workspace.run(words(workspace))

        assert said == [
            "words: the ledger is at batch 13, the checkpoint is lost",
            f"folder {str(workspace.input)!r}: has everything after that batch",
            f"words: {workspace.checkpoint} resumes after batch 13",
        ]
        assert written == logged
        assert (nothing, batches) == ([], [(14, 1)])
        assert counts(workspace) == {"dog": 14, "cat": 1}

    @pytest.mark.core
    def test_a_batch_that_was_open_comes_again_as_it_was(self, workspace):
        workspace.land("1.txt", "dog")
        workspace.run(words(workspace))
        workspace.land("2.txt", "dog cat")
        with pytest.raises(InjectedFault):
            workspace.run(words(workspace, fault=FaultAfterCheck(skip=1)))
        lose(workspace.checkpoint)
        workspace.land("3.txt", "dog")

        restore(workspace, words(workspace, files_per_batch=100))
        batches = workspace.run(words(workspace, files_per_batch=100))

        assert batches == [(2, 2), (3, 1)]
        assert workspace.rows("SELECT rows_in FROM tidegauge.batch ORDER BY txid") == [(1,), (1,), (1,)]
        assert counts(workspace) == {"dog": 3, "cat": 1}

    def test_what_a_state_cannot_mend_is_said_before_anything_is_touched(self, workspace):
        for number in range(1, 4):
            workspace.land(f"{number}.txt", "dog")
        pipeline = words(workspace, changelog=False)
        workspace.run(pipeline)

        with pytest.raises(RewindError, match="has no changelog, and its rows reach back only to batch 2") as caught:
            list(recovery(workspace, pipeline).rewind(1))
        assert re.search(message_of("A recovery that cannot be done", 1), str(caught.value))
        refused = counts(workspace)
        list(recovery(workspace, pipeline).rewind(2))
        workspace.run(pipeline)

        assert refused == {"dog": 3}
        assert counts(workspace) == {"dog": 3}


class TestRedis:
    @pytest.mark.parametrize(("changelog", "to"), [(True, 1), (False, 2)])
    def test_a_state_in_redis_goes_back_with_those_in_the_database(self, workspace, client, changelog, to):
        for number in range(1, 4):
            workspace.land(f"{number}.txt", f"dog cat{number}")
        pipeline = in_both(workspace, changelog)
        workspace.run(pipeline)

        said = list(recovery(workspace, pipeline).rewind(to))
        at_once = in_redis(workspace, client, changelog), counts(workspace)
        batches = workspace.run(pipeline)

        way = "its changelog" if changelog else "the previous versions in its rows"
        assert f"state 'recovered_words': is rewound with {way}" in said
        expected = {"dog": to} | {f"cat{number}": 1 for number in range(1, to + 1)}
        assert at_once == ((to, expected), expected)
        assert [txid for txid, _ in batches] == list(range(to + 1, 4))
        whole = {"dog": 3} | {f"cat{number}": 1 for number in range(1, 4)}
        assert in_redis(workspace, client, changelog) == (3, whole)
        assert counts(workspace) == whole

    def test_a_rewind_that_was_killed_between_the_stores_is_noticed_and_mended(self, workspace, client, monkeypatch):
        for number in range(1, 4):
            workspace.land(f"{number}.txt", "dog")
        pipeline = in_both(workspace, changelog=True)
        workspace.run(pipeline)
        monkeypatch.setattr(Rewind, "follow", kill)
        with pytest.raises(InjectedFault):
            list(recovery(workspace, pipeline).rewind(1))
        monkeypatch.undo()

        restore(workspace, pipeline)
        with pytest.raises(StoreAheadError, match=f"tidegauge rebuild {REDIS} --to redis"):
            workspace.run(pipeline)
        list(rebuild_state(workspace))
        workspace.run(pipeline)

        assert in_redis(workspace, client, changelog=True) == (3, {"dog": 3})
        assert counts(workspace) == {"dog": 3}

    def test_a_store_ahead_of_a_restored_ledger_is_refused_until_it_is_rebuilt(self, workspace, client, dump):
        pipeline = in_both(workspace, changelog=True)
        workspace.land("1.txt", "dog")
        workspace.run(pipeline)
        dump.take()
        for number in (2, 3):
            workspace.land(f"{number}.txt", f"dog cat{number}")
        workspace.run(pipeline)
        dump.restore()

        restore(workspace, pipeline)
        with pytest.raises(StoreAheadError, match=f"tidegauge rebuild {REDIS} --to redis"):
            workspace.run(pipeline)
        list(rebuild_state(workspace))
        workspace.run(pipeline)

        expected = {"dog": 3, "cat2": 1, "cat3": 1}
        assert (in_redis(workspace, client, changelog=True), counts(workspace)) == ((3, expected), expected)


def in_both(workspace, changelog):
    lines = Stream.read(TextFiles(workspace.input, files_per_batch=1))
    by_word = lines.each(word="explode(split(line, ' '))").group_by("word")
    specs = replace(WORDS, changelog=changelog), replace(WORDS, name=REDIS, changelog=changelog, backend="redis")
    return Pipeline("words", [by_word.persistent_aggregate(spec) for spec in specs])


def in_redis(workspace, client, changelog):
    """Return the published txid, and each word's count."""
    rows = RedisBackingMap(client, replace(WORDS, name=REDIS, changelog=changelog))
    keys = [key for key, _ in rows.scan()]
    batch, found = rows.multi_get_committed(keys)
    return batch.txid, {
        key[0]: row.value["count"] for key, row in zip(keys, found, strict=True) if row.status == "found"
    }


def rebuild_state(workspace):
    """As `tidegauge rebuild` does it."""
    spec = Catalog(workspace.conn).get(REDIS)
    BACKENDS["redis"].begin_rebuild(workspace.conn, spec, goes_on=False)
    yield from rebuild(Changelog(workspace.conn, spec), BACKENDS["redis"].rows(workspace.conn, spec))
    BACKENDS["redis"].end_rebuild(workspace.conn, spec, 1)


def kill(*_):
    raise InjectedFault("killed")


def read_log(checkpoint):
    """Return URI and time of every file in Spark's log."""
    entries = [path for path in (checkpoint / "sources" / "0").iterdir() if not path.name.startswith(".")]
    lines = [json.loads(line) for path in entries for line in path.read_text().splitlines()[1:]]
    return {(line["path"], line["timestamp"]) for line in lines}
