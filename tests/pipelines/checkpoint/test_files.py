"""Checkpoints in stores: the local disk under the scheme of a store that renames at once, and of one that copies.

Both are served by Hadoop's own classes in Spark's jars: `viewfs:`, and the same class under a scheme of our own.
"""

import re
from pathlib import Path

import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines.checkpoint.disk import set_aside_torn
from tidegauge.pipelines.checkpoint.files import StorePath, checkpoint_folder, move
from tidegauge.pipelines.checkpoint.folder import batch_offsets, checkpoint_id, last_committed
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import CheckpointUnreachableError, PipelineError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.repair.reprocess import Reprocess, roll_back
from tidegauge.pipelines.sources.sources import Sources
from tidegauge.pipelines.spark.conf import FILE_MANAGER, SETTINGS, manage_files_of_stores
from tidegauge.state_backends import BatchLedger
from tidegauge.state_backends.errors import CheckpointMismatchError, CheckpointTornError

pytestmark = pytest.mark.spark

STORES = ["viewfs", "objects"]


@pytest.fixture(autouse=True)
def local_files_again(request):
    """Let the tests after these write files of checkpoints as on a local disk, in a tenth of the time."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").conf.set(FILE_MANAGER, SETTINGS[FILE_MANAGER])


@pytest.fixture(params=STORES)
def store(request, spark, tmp_path):
    """The URI of a folder in a store, and the folder of this machine that it is."""
    folder, name = tmp_path / "store", tmp_path.name.lower().replace("_", "-")
    folder.mkdir()
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.objects.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    conf.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    conf.set(f"fs.viewfs.mounttable.{name}.link./data", folder.as_uri())
    return f"{request.param}://{name}/data", folder


@pytest.fixture
def stored(workspace, store):
    """A workspace whose checkpoint is in a store, and that folder of this machine."""
    uri, folder = store
    workspace.checkpoint = checkpoint_folder(f"{uri}/checkpoint")
    return workspace, folder / "checkpoint"


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def run(workspace):
    return workspace.run(word_count(workspace.input, files_per_batch=1))


def recovery(workspace):
    return Recovery(word_count(workspace.input), workspace.dsn, workspace.checkpoint, lambda: workspace.spark)


def test_batches_are_counted_once_and_the_ledger_has_their_offsets(stored):
    workspace, folder = stored
    workspace.land("1.txt", "dog")
    workspace.land("2.txt", "dog cat")

    assert run(workspace) == [(1, 1), (2, 1)]
    for name in ("1", ".1.crc"):
        (folder / "commits" / name).unlink()
    workspace.land("3.txt", "cat")

    assert run(workspace) == [(3, 1)]  # files are transactional: the batch that came again was skipped
    assert counts(workspace) == {"dog": 2, "cat": 2}
    assert [offsets for (offsets,) in workspace.rows("SELECT offsets FROM tidegauge.batch ORDER BY txid")] == [
        [{"logOffset": number}] for number in range(3)
    ]
    assert sorted(path.name for path in (folder / "offsets").iterdir() if path.name.isdecimal()) == ["0", "1", "2"]


def test_another_checkpoint_is_refused(stored):
    workspace, folder = stored
    workspace.land("1.txt", "dog")
    run(workspace)
    folder.rename(folder.with_name("elsewhere"))

    with pytest.raises(CheckpointMismatchError):
        run(workspace)


def test_a_lost_checkpoint_is_written_again_from_the_ledger(stored):
    workspace, folder = stored
    workspace.land("1.txt", "dog")
    run(workspace)
    (folder / "metadata").unlink()

    assert list(recovery(workspace).restore_checkpoint())[-2:] == [
        f"word_count: {workspace.checkpoint} resumes after batch 1",
        f"word_count: the former checkpoint is in {workspace.checkpoint}.before-restore",
    ]
    workspace.land("2.txt", "dog")
    assert run(workspace) == [(2, 1)]
    assert counts(workspace) == {"dog": 2}


def test_a_reprocess_moves_its_checkpoint_and_can_be_rolled_back(stored):
    workspace, folder = stored
    workspace.land("1.txt", "dog")
    run(workspace)
    first = checkpoint_id(workspace.checkpoint)

    assert Reprocess(word_count(workspace.input), workspace.spark, workspace.dsn, workspace.checkpoint).run()
    assert BatchLedger(workspace.conn, "word_count").checkpoint_id() == checkpoint_id(workspace.checkpoint) != first
    assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoint", "checkpoint.kept"]
    roll_back("word_count", workspace.dsn, workspace.checkpoint)

    assert checkpoint_id(workspace.checkpoint) == first
    workspace.land("2.txt", "dog")
    assert run(workspace) == [(2, 1)]
    assert counts(workspace) == {"dog": 2}


def test_an_empty_plan_is_set_aside_and_an_older_one_refused(stored):
    workspace, folder = stored
    for name in "12":
        workspace.land(f"{name}.txt", "dog")
    run(workspace)
    for number in "10":
        (folder / "offsets" / number).write_bytes(b"")
        (folder / "offsets" / f".{number}.crc").unlink()
        if number == "1":
            set_aside_torn(workspace.checkpoint)
            assert batch_offsets(workspace.checkpoint, 1) is None
            assert (folder / "offsets" / "1.torn").exists()
            assert last_committed(workspace.checkpoint) == 0
            (folder / "offsets" / "1.torn").rename(folder / "offsets" / "1")

    with pytest.raises(CheckpointTornError):
        set_aside_torn(workspace.checkpoint)


@pytest.mark.parametrize("store", ["objects"], indirect=True)
@pytest.mark.parametrize(
    ("step", "done"), [("copy", 0), ("copy", 3), ("copy", 6), ("copy", 7), ("remove", 2), ("remove", 5)]
)
def test_a_move_that_was_killed_is_finished_by_the_next_one(store, monkeypatch, step, done):
    uri, _folder = store
    source, target, kept = (StorePath(f"{uri}/{name}") for name in ("source", "target", "kept"))
    for folder, text in ((source, "new"), (target, "old")):
        (folder / "metadata").write_text(text)
        for name in "abc":
            (folder / name).write_text(text)

    def replace_checkpoint():
        move(target, kept)
        move(source, target)

    original, left = getattr(StorePath, step), done

    def killed(self, *args, **options):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        original(self, *args, **options)

    monkeypatch.setattr(StorePath, step, killed)
    with pytest.raises(KeyboardInterrupt):
        replace_checkpoint()
    monkeypatch.undo()
    if (source / "metadata").exists():  # else both moves are done, but for what is left of the last one
        replace_checkpoint()

    assert {name: (target / name).read_text() for name in ("metadata", *"abc")} == dict.fromkeys(
        ("metadata", *"abc"), "new"
    )
    assert (kept / "metadata").read_text() == (kept / "c").read_text() == "old"


def test_spark_chooses_how_the_files_of_a_store_are_written(spark):
    session = spark.newSession()
    manage_files_of_stores(session)
    assert session.conf.get(FILE_MANAGER, None) is None

    session.conf.set(FILE_MANAGER, "org.example.OwnFileManager")
    manage_files_of_stores(session)
    assert session.conf.get(FILE_MANAGER, None) == "org.example.OwnFileManager"


def test_a_store_that_spark_does_not_know_is_refused_by_name(workspace):
    workspace.checkpoint = StorePath("s3a://bucket/ck")

    with pytest.raises(PipelineError) as caught:
        run(workspace)

    assert re.search(message_of("A checkpoint that cannot be reached", 1), str(caught.value))
    assert "org.apache.hadoop:hadoop-aws:3." in str(caught.value)


def test_a_store_that_does_not_answer_is_tried_again(workspace):
    with pytest.raises(CheckpointUnreachableError) as caught:
        last_committed(StorePath("hdfs://127.0.0.1:1/ck"))

    assert re.search(message_of("A checkpoint that cannot be reached", 2), str(caught.value))
    assert caught.value.retryable


@pytest.mark.parametrize("given", ["s3a://bucket", "s3a://bucket/", Path("s3a://bucket/ck"), "hdfs:/"])
def test_a_uri_without_a_folder_is_refused(given):
    with pytest.raises(PipelineError, match=message_of("A checkpoint that cannot be reached", 3)):
        RunOptions(given)


def test_a_uri_is_kept_as_it_is_given():
    assert RunOptions("hdfs:///data/ck/").checkpoint == StorePath("hdfs:///data/ck")
    assert RunOptions("dbfs:/data/ck").checkpoint == StorePath("dbfs:/data/ck")
    assert str(checkpoint_folder("abfss://c@account.example/a b/ck")) == "abfss://c@account.example/a b/ck"


def test_a_store_is_asked_for_the_lag_less_often_while_batches_run(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Sources, "pending", lambda self, checkpoint: asked.append(checkpoint))
    stored, local = StorePath("s3a://bucket/ck"), tmp_path / "ck"

    for checkpoint in (stored, local):
        driver = Driver(word_count(tmp_path), None, "", RunOptions(checkpoint))
        for status in ("running", "running", "finished"):
            driver._pending(status)

    assert [asked.count(each) for each in (stored, local)] == [2, 3]
