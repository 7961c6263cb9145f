"""The commands of docs/recovery.md that begin, accept, abort and roll back a reprocess, typed as they stand there."""

import shlex
import signal
import threading

import django
import pytest
from django.core.management import CommandError, call_command

from pipelines.embedded.data_dir import REPOSITORY
from pipelines.jobs.word_count import word_count
from pipelines.reprocess import Reprocess

pytestmark = pytest.mark.spark

django.setup()


@pytest.fixture
def type_command(workspace, monkeypatch):
    """Types a command of the document for the pipeline word_count; a driver that it starts ends with the input."""
    monkeypatch.setenv("DATABASE_URL", workspace.dsn)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    document = (REPOSITORY / "docs" / "recovery.md").read_text()

    def type_command(command):
        assert f"    python manage.py {command}\n" in document
        words = shlex.split(command.replace("NAME", "word_count").replace("STATE", "words"))
        call_command(*words, input=workspace.input, checkpoint=workspace.checkpoint, files_per_batch=1, once=True)

    return type_command


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

    with pytest.raises(CommandError, match="would count less than the states have counted"):
        type_command("run_pipeline NAME --reprocess")
    before = counts(counted)
    type_command("run_pipeline NAME --reprocess --accept-shorter")

    assert (before, counts(counted)) == ({"dog": 2, "cat": 1}, {"dog": 1, "cat": 1})


def test_a_reprocess_was_interrupted(counted, type_command):
    interrupt(counted)

    type_command("run_pipeline NAME --reprocess")

    assert counts(counted) == {"dog": 2, "cat": 1}
    assert counted.rows("SELECT phase FROM tidemark.reprocess") == [("settled",)]


def test_a_reprocess_is_given_up(counted, type_command):
    interrupt(counted)

    type_command("run_pipeline NAME --abort-reprocess")
    counted.land("3.txt", "cow")
    type_command("run_pipeline NAME")

    assert counts(counted) == {"dog": 2, "cat": 1, "cow": 1}
    assert counted.rows("SELECT phase FROM tidemark.reprocess") == [("aborted",)]


def test_a_reprocess_is_rolled_back(counted, type_command):
    type_command("run_pipeline NAME --reprocess --keep-old 7d")
    counted.land("3.txt", "cow")
    type_command("run_pipeline NAME")

    type_command("run_pipeline NAME --roll-back")
    back = counts(counted)
    type_command("run_pipeline NAME")

    assert back == {"dog": 2, "cat": 1}
    assert counts(counted) == {"dog": 2, "cat": 1, "cow": 1}


def test_one_state_is_reprocessed(counted, type_command):
    counted.rows("UPDATE tidemark_state.words SET count = 7 RETURNING word")

    type_command("run_pipeline NAME --reprocess --state STATE")

    assert counts(counted) == {"dog": 2, "cat": 1}
    assert counted.rows("SELECT phase FROM tidemark.reprocess") == [("settled",)]


def test_one_state_without_a_reprocess_is_a_wrong_command(counted, type_command):
    with pytest.raises(CommandError, match="--state goes with --reprocess"):
        call_command("run_pipeline", "word_count", states=["words"])


def test_a_span_that_is_none_is_refused_before_anything_is_begun(counted, type_command):
    with pytest.raises(CommandError, match="--keep-old 'a week' is not a time span"):
        call_command("run_pipeline", "word_count", reprocess=True, keep_old="a week")
