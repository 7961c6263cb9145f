"""The commands of docs/recovery.md that begin, accept, abort and roll back a reprocess, typed as they stand there."""

import shutil
import threading

import pytest
from django.core.management import CommandError, call_command

from tests.recovery_page import commands, message_of
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Catalog, StateSpec, Sum
from tidegauge.state_backends.repair.audit import audit

pytestmark = pytest.mark.spark


@pytest.fixture
def counted(workspace):
    workspace.land("1.txt", "dog cat")
    workspace.land("2.txt", "dog")
    workspace.run(word_count(workspace.input, files_per_batch=1))
    return workspace


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def interrupt(workspace):
    """Begin a reprocess and stop it after its first batch."""
    stopping = threading.Event()
    pipeline = word_count(workspace.input, files_per_batch=1)
    place = workspace.spark, workspace.dsn, workspace.checkpoint
    assert not Reprocess(pipeline, *place, lambda batch: stopping.set(), stopping).run()


def test_a_reprocess_would_be_shorter(counted, type_command):
    (counted.input / "2.txt").unlink()
    again, accept = commands("A reprocess would count less than the states have counted")

    with pytest.raises(CommandError, match=r"would count less .* 1 files that were counted are missing: '2\.txt'"):
        type_command(again)
    before, begun = counts(counted), counted.rows("SELECT FROM tidegauge.reprocess")
    type_command(accept)

    assert (before, begun) == ({"dog": 2, "cat": 1}, [])
    assert counts(counted) == {"dog": 1, "cat": 1}
    assert counted.rows("SELECT accepted FROM tidegauge.reprocess") == [
        ("1 files that were counted are missing: '2.txt'; 2 rows were counted, but only 1 by the reprocess",)
    ]


def test_a_reprocess_was_interrupted_and_is_given_up_or_gone_on_with(counted, type_command):
    again, abort, run = commands("A reprocess was interrupted")

    interrupt(counted)
    type_command(abort)
    counted.land("3.txt", "cow")
    type_command(run)
    given_up = counts(counted), counted.rows("SELECT phase FROM tidegauge.reprocess")
    interrupt(counted)
    type_command(again)

    whole = {"dog": 2, "cat": 1, "cow": 1}
    assert given_up == (whole, [("aborted",)])
    assert counts(counted) == whole
    assert counted.rows("SELECT phase FROM tidegauge.reprocess ORDER BY id") == [("aborted",), ("settled",)]


def test_a_reprocess_is_rolled_back(counted, type_command):
    reprocess, roll_back, run = commands("The states are wrong after a reprocess")
    type_command(reprocess)
    counted.land("3.txt", "cow")
    type_command(run)

    type_command(roll_back)
    back = counts(counted)
    type_command(run)

    assert back == {"dog": 2, "cat": 1}
    assert counts(counted) == {"dog": 2, "cat": 1, "cow": 1}
    assert counted.rows("SELECT max(txid) FROM tidegauge.batch") == [(3,)]
    assert counted.rows("SELECT phase FROM tidegauge.reprocess") == [("rolled_back",)]
    assert [path.name for path in counted.checkpoint.parent.glob("checkpoint*")] == ["checkpoint"]


def test_a_reprocess_gives_other_results(counted, type_command):
    abort, accept = commands("A reprocess gives other results")
    interrupt(counted)
    type_command(abort)
    counted.conn.execute("UPDATE tidegauge.state SET ttl = '1 day'")
    counted.conn.execute("UPDATE tidegauge.batch SET batch_time = batch_time - interval '2 days'")

    with pytest.raises(CommandError, match=message_of("A reprocess gives other results", 1)):
        type_command("tidegauge run NAME --reprocess")
    type_command(accept)

    assert counts(counted) == {"dog": 2, "cat": 1}
    assert counted.rows("SELECT phase FROM tidegauge.reprocess ORDER BY id") == [("aborted",), ("settled",)]


def test_one_state_is_reprocessed(counted, type_command):
    counted.rows("UPDATE tidegauge_state.words SET count = 7 RETURNING word")
    [again] = commands("One state of a pipeline is wrong")

    type_command(again)

    assert counts(counted) == {"dog": 2, "cat": 1}
    assert counted.rows("SELECT phase FROM tidegauge.reprocess") == [("settled",)]


def test_a_run_that_ends_with_dead_letters_says_so_and_has_an_exit_code_of_its_own(counted, type_command):
    counted.land("3.txt", f"cow {'x' * 2049}")
    run = "tidegauge run NAME"

    with pytest.raises(CommandError) as refused:
        type_command(run)
    type_command(run)  # no dead letters of this run

    assert refused.value.returncode == 3
    assert str(refused.value) == (
        "ended, but input became dead letters:\n"
        "  word_count: 1 dead letters, the first: the key's text is over the limit of 2048 bytes"
    )
    assert counts(counted) == {"dog": 2, "cat": 1, "cow": 1}


def test_one_state_without_a_reprocess_is_a_wrong_command(type_command):
    with pytest.raises(CommandError, match="--state requires --reprocess"):
        call_command("run_pipeline", "word_count", states=["words"])


def test_a_roll_back_that_cannot_be_done(counted, type_command):
    _keep, roll_back, _run = commands("The states are wrong after a reprocess")
    [again] = commands("A roll-back that cannot be done")

    with pytest.raises(CommandError, match=message_of("A roll-back that cannot be done", 1)):
        type_command(roll_back)
    type_command(again)

    assert counts(counted) == {"dog": 2, "cat": 1}


def test_a_recovery_that_cannot_be_done(counted, type_command):
    shutil.rmtree(counted.checkpoint)
    [again] = commands("A recovery that cannot be done")
    [_look, restore] = commands("The checkpoint is lost")

    counted.conn.execute("UPDATE tidegauge.pipeline SET files_since = 1")  # as in a database of version 0.1
    with pytest.raises(CommandError, match="the names of all files that were read up to batch 1; restore"):
        type_command(restore)
    counted.conn.execute("UPDATE tidegauge.batch SET offsets = 'null'")
    with pytest.raises(CommandError, match=message_of("A recovery that cannot be done", 3)):
        type_command(restore)
    type_command(again)

    assert counts(counted) == {"dog": 2, "cat": 1}


def test_a_state_was_not_fed_for_a_while(counted, type_command):
    again, accept = commands("A state or a measure was not fed for a while")

    for command, since in [(accept, 2), (again, 0)]:
        counted.conn.execute("UPDATE tidegauge.state SET last_fed_txid = 1")  # as a release without the state leaves it
        with pytest.raises(CommandError, match=message_of("A state or a measure was not fed for a while", 1)):
            type_command("tidegauge run NAME")
        type_command(command)

        assert counts(counted) == {"dog": 2, "cat": 1}
        assert counted.rows("SELECT since_txid, last_fed_txid FROM tidegauge.state") == [(since, None)]


def test_values_that_cannot_be_counted(workspace, type_command, monkeypatch):
    def job_with(kind):
        def totals(folder, files_per_batch=None) -> Pipeline:
            """Totals of numbers."""
            state = StateSpec("totals", key={}, measures={"total": Sum("n", type=kind)})
            numbers = Stream.read(JsonFiles(folder, schema="n bigint"))
            return Pipeline("word_count", [numbers.group_by().persistent_aggregate(state)])

        monkeypatch.setattr("tidegauge.pipelines.jobs.word_count.word_count", totals)
        return totals(workspace.input)

    workspace.land("1.json", {"n": 2**63 - 1}, {"n": 1})
    workspace.run(job_with("bigint"))
    refused = workspace.values("totals")
    [again] = commands("Values that cannot be counted")

    job_with("numeric")
    type_command(again)

    assert (refused, workspace.values("totals")) == ({}, {(): {"total": 2**63}})


def test_an_audit_found_that_the_changelog_was_lost(counted, type_command):
    Catalog(counted.conn).edit("words", changelog=True)
    _audit, _rebuild, again = commands("An audit found a deviation")
    type_command(again)
    counted.conn.execute("UPDATE tidegauge_changelog.words SET count = 1 WHERE word = 'dog'")
    spec = Catalog(counted.conn).get("words")
    before = audit(counted.conn, spec, sample=10)

    type_command(again)

    assert len(before.deviations) == 1
    assert (audit(counted.conn, spec, sample=10).deviations, counts(counted)) == ([], {"dog": 2, "cat": 1})


def test_a_span_that_is_none_is_refused_before_anything_is_begun(type_command):
    with pytest.raises(CommandError, match="--keep-old 'a week' is not a time span"):
        call_command("run_pipeline", "word_count", reprocess=True, keep_old="a week")
