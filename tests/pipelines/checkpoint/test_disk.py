"""A checkpoint on disk: written before the ledger counts on it, and opened again after a power cut."""

import os
import re
from pathlib import Path

import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines.checkpoint import disk as checkpoint_disk
from tidegauge.pipelines.checkpoint.disk import CheckpointDisk, set_aside_torn
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import BatchLedger
from tidegauge.state_backends.errors import CheckpointTornError

pytestmark = pytest.mark.spark


@pytest.fixture
def synced(monkeypatch):
    """The paths that were written to disk, in order."""
    paths = []
    fsync = os.fsync

    def note(descriptor):
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(checkpoint_disk.os, "fsync", note)
    return paths


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def plan(checkpoint, batch_id):
    """Return the files that a batch is planned by, and their folders."""
    folders = [checkpoint.parent, checkpoint, *(checkpoint / name for name in ("offsets", "sources", "sources/0"))]
    files = [f"offsets/{batch_id}", f"sources/0/{batch_id}"]
    sums = [f"{Path(name).parent}/.{Path(name).name}.crc" for name in files]
    return {*folders, *(checkpoint / name for name in ("metadata", *files, *sums))}


def test_a_batch_is_on_disk_before_the_ledger_counts_on_it(workspace, synced, monkeypatch):
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    workspace.land("2.txt", "cat")
    at_begin = []
    begin = BatchLedger.begin
    monkeypatch.setattr(
        BatchLedger, "begin", lambda *args, **options: at_begin.append({*synced}) or begin(*args, **options)
    )

    workspace.run(word_count(workspace.input))

    assert plan(workspace.checkpoint, 1) - at_begin[0] == set()


def test_what_is_on_disk_is_not_written_again(tmp_path, synced):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    disk = CheckpointDisk(tmp_path)
    disk.sync()
    synced.clear()

    (tmp_path / "offsets" / "1").touch()
    disk.sync()

    assert synced == [tmp_path / "offsets" / "1", tmp_path / "offsets"]


def cut_off(path, left):
    """Leave so many bytes of a file; return whether it had more."""
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    return len(whole) > left


@pytest.mark.parametrize("left", [0, 3, 40], ids=["empty", "format alone", "cut off"])
@pytest.mark.parametrize("name", ["offsets/1", "sources/0/1", "commits/1", "commits/.1.crc"])
def test_a_pipeline_goes_on_after_a_power_cut_took_the_end_of_its_newest_files(workspace, name, left, caplog):
    """Spark by itself refuses each of these until somebody removes the file by hand."""
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    workspace.land("2.txt", "dog cat")
    workspace.run(word_count(workspace.input))
    was_cut = cut_off(workspace.checkpoint / name, left)
    workspace.land("3.txt", "cow")

    workspace.run(word_count(workspace.input))

    assert counts(workspace) == {"dog": 2, "cat": 1, "cow": 1}
    assert bool(re.search(message_of("A power cut has torn the checkpoint", 1), caplog.text)) is was_cut


def test_a_driver_that_was_killed_while_its_first_plan_was_written_starts_again(workspace):
    """Spark by itself refuses a folder of plans that has files but no plan."""
    workspace.land("1.txt", "dog")
    plans = workspace.checkpoint / "offsets"
    plans.mkdir(parents=True)
    (plans / ".0.5e24ae1b.tmp").write_text("v1")  # as a kill leaves it
    (plans / "0").write_text("v1")  # as a power cut does

    workspace.run(word_count(workspace.input))

    assert counts(workspace) == {"dog": 1}


@pytest.mark.parametrize("lost", [("offsets/1", "sources/0/1"), ("offsets/1",), ("sources/0/1",)], ids=" and ".join)
def test_a_pipeline_goes_on_after_a_power_cut_took_the_newest_plan_or_its_files_and_left_the_note(workspace, lost):
    """Spark by itself runs the batch before again, which the ledger refuses, or counts the last files twice."""
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    workspace.land("2.txt", "dog cat")
    workspace.run(word_count(workspace.input))
    for path in map(workspace.checkpoint.joinpath, lost):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
    workspace.land("3.txt", "cow")

    workspace.run(word_count(workspace.input))

    assert counts(workspace) == {"dog": 2, "cat": 1, "cow": 1}


def test_a_checkpoint_that_lost_the_files_of_several_batches_is_refused(workspace):
    for number in (1, 2, 3):
        workspace.land(f"{number}.txt", "dog")
        workspace.run(word_count(workspace.input))
    for number in (1, 2):
        (workspace.checkpoint / "sources" / "0" / str(number)).unlink()

    with pytest.raises(CheckpointTornError, match="lacks the files of more than the newest batch"):
        workspace.run(word_count(workspace.input))

    assert counts(workspace) == {"dog": 3}


@pytest.mark.parametrize("name", ["offsets/0", "sources/0/0", "metadata"])
def test_a_torn_file_that_is_not_the_newest_is_refused_by_name(workspace, name):
    for number in (1, 2):
        workspace.land(f"{number}.txt", "dog")
        workspace.run(word_count(workspace.input))
    cut_off(workspace.checkpoint / name, 0)

    with pytest.raises(CheckpointTornError, match=rf"checkpoint file '\S+{name}' is empty or cut off, and "):
        workspace.run(word_count(workspace.input))

    assert counts(workspace) == {"dog": 2}


def test_a_log_entry_without_files_and_checksum_is_whole(tmp_path):
    """As a checkpoint has it that was made from the ledger."""
    for name, lines in (("offsets/0", ["v1", "{}", '{"logOffset":0}']), ("sources/0/0", ["v1"])):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("\n".join(lines))

    set_aside_torn(tmp_path)

    assert (tmp_path / "offsets" / "0").exists()
    assert (tmp_path / "sources" / "0" / "0").exists()


def test_a_folder_that_is_no_checkpoint_yet_is_left_alone(tmp_path):
    set_aside_torn(tmp_path / "absent")
    set_aside_torn(tmp_path)

    assert list(tmp_path.iterdir()) == []
