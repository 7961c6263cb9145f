"""The commands of docs/recovery.md, each typed as it stands there; afterwards every total is exact."""

import re
import shutil

import pytest
from django.core.management import CommandError

from tests.recovery_page import commands, message_of
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.errors import (
    BatchOrderError,
    CheckpointMismatchError,
    CheckpointTornError,
    InputChangedError,
    SourceReplacedError,
)

pytestmark = pytest.mark.spark


def run(workspace, *files):
    for name, line in files:
        workspace.land(name, line)
    return workspace.run(word_count(workspace.input, files_per_batch=1))


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def test_the_checkpoint_is_lost(workspace, type_command):
    run(workspace, ("1.txt", "dog"), ("2.txt", "cat"))
    shutil.rmtree(workspace.checkpoint)

    look, restore = commands("The checkpoint is lost")
    skip, _reprocess = commands("Kafka no longer has messages that were not read")

    with pytest.raises(CheckpointMismatchError, match=message_of("The checkpoint is lost")) as caught:
        run(workspace)
    type_command(look)
    type_command(restore)
    run(workspace, ("3.txt", "dog"))

    assert "`tidegauge pipelines restore-checkpoint word_count`" in str(caught.value)
    assert counts(workspace) == {"dog": 2, "cat": 1}
    assert type_command(skip) == ["word_count: no input is lost, nothing to skip"]


def test_the_checkpoint_is_behind(workspace, type_command):
    run(workspace, ("1.txt", "dog"))
    Catalog(workspace.conn).edit("words", changelog=True)
    shutil.copytree(workspace.checkpoint, workspace.checkpoint.with_name("backup"))
    run(workspace, ("2.txt", "dog"), ("3.txt", "cat"))
    restore, rewind = commands("The checkpoint is behind the ledger")
    whole, has_everything = {"dog": 2, "cat": 1}, f"folder {str(workspace.input)!r}: has everything after that batch"

    for command, said, at_once, read_again in [
        (
            restore,
            [
                "word_count: the ledger is at batch 3, the checkpoint is 2 batches behind",
                has_everything,
                f"word_count: {workspace.checkpoint} resumes after batch 3",
            ],
            whole,
            [],
        ),
        (
            rewind,
            [
                "word_count: from batch 3 back to batch 1",
                "state 'words': is rewound with its changelog",
                has_everything,
                "word_count: is at batch 1",
            ],
            {"dog": 1},
            [2, 3],
        ),
    ]:
        shutil.rmtree(workspace.checkpoint)
        shutil.copytree(workspace.checkpoint.with_name("backup"), workspace.checkpoint)
        with pytest.raises(BatchOrderError, match=message_of("The checkpoint is behind the ledger")) as caught:
            run(workspace)

        assert f"`{command.replace('NAME', 'word_count')}`" in str(caught.value)
        assert set(said) <= set(type_command(command))
        assert counts(workspace) == at_once
        assert [txid for txid, _ in run(workspace)] == read_again
        assert counts(workspace) == whole


def test_the_ledger_is_behind_after_a_restore_of_the_database(workspace, type_command, dump):
    run(workspace, ("1.txt", "dog"))
    epoch = workspace.rows("SELECT epoch FROM tidegauge.pipeline")
    dump.take()
    run(workspace, ("2.txt", "dog cat"), ("3.txt", "cat"))
    dump.restore()
    restored = counts(workspace)
    [restore] = commands("The ledger is behind the checkpoint: the database was restored")
    seen = message_of("The ledger is behind the checkpoint: the database was restored")

    with pytest.raises(BatchOrderError, match=seen) as caught:
        run(workspace, ("4.txt", "cow"))
    said = type_command(restore)
    batches = run(workspace)

    assert restored == {"dog": 1}
    assert "`tidegauge pipelines restore-checkpoint word_count`" in str(caught.value)
    assert "the checkpoint is 2 batches ahead" in said[0]
    assert [txid for txid, _ in batches] == [2, 3, 4]
    assert counts(workspace) == {"dog": 2, "cat": 2, "cow": 1}
    assert workspace.rows("SELECT epoch FROM tidegauge.pipeline") != epoch


def test_a_file_that_is_gone_since_the_backup_is_named_before_anything_is_touched(workspace, type_command, dump):
    run(workspace, ("1.txt", "dog"))
    dump.take()
    run(workspace, ("2.txt", "cat"), ("3.txt", "cat"))
    dump.restore()
    gone = workspace.input / "3.txt"
    gone.unlink()
    before = sorted(path.name for path in workspace.checkpoint.rglob("*"))
    [restore] = commands("The ledger is behind the checkpoint: the database was restored")

    with pytest.raises(CommandError, match=r"1 of the files that were counted .* are gone, the first is '3.txt'"):
        type_command(restore)

    assert sorted(path.name for path in workspace.checkpoint.rglob("*")) == before
    gone.write_text("cat\n")
    type_command(restore)
    run(workspace)
    assert counts(workspace) == {"dog": 1, "cat": 2}


def test_states_go_back_to_an_earlier_batch_and_nothing_is_touched_before(workspace, type_command):
    """Neither by a dry run, nor where a file that must be read again is gone."""
    run(workspace, ("1.txt", "dog"), ("2.txt", "wrong"))
    (workspace.input / "2.txt").unlink()
    look, rewind = commands("The states have counted wrong input")

    with pytest.raises(CommandError, match=message_of("A recovery that cannot be done", 2)) as caught:
        type_command(rewind, TXID="1")
    workspace.land("2.txt", "right")
    planned = type_command(look, TXID="1")
    untouched = run(workspace), counts(workspace)
    type_command(rewind, TXID="1")
    batches = run(workspace)

    assert re.search(r"1 of the files .* are gone, the first is '2.txt'", str(caught.value))
    assert planned[0] == "word_count: from batch 2 back to batch 1"
    assert untouched == ([], {"dog": 1, "wrong": 1})
    assert [txid for txid, _ in batches] == [2]
    assert counts(workspace) == {"dog": 1, "right": 1}


def test_a_batch_comes_again_with_other_input(workspace, type_command):
    run(workspace, ("1.txt", "dog"), ("2.txt", "cat"))
    for name in ("offsets/1", "offsets/.1.crc", "commits/1", "commits/.1.crc", "sources/0/1", "sources/0/.1.crc"):
        (workspace.checkpoint / name).unlink()
    workspace.conn.execute("UPDATE tidegauge.pipeline SET open_txid = 3, open_attempt = 1, open_batch_id = 2")
    (workspace.input / "2.txt").touch()
    [restore] = commands("A batch comes again with other input")

    with pytest.raises(InputChangedError, match=message_of("A batch comes again with other input", 2)) as caught:
        run(workspace)
    type_command(restore)
    run(workspace)

    assert "(1 files then, 1 now, changed: '2.txt')" in str(caught.value)
    assert counts(workspace) == {"dog": 1, "cat": 1}


def test_a_folder_was_replaced(workspace, type_command):
    run(workspace, ("1.txt", "dog"), ("2.txt", "cat"))
    workspace.input = workspace.input.with_name("other")
    workspace.input.mkdir()
    reprocess, rebind = commands("A topic, folder or database was replaced")

    with pytest.raises(SourceReplacedError, match=message_of("A topic, folder or database was replaced")):
        run(workspace, ("1.txt", "owl"))
    type_command(rebind, FOLDER=str(workspace.checkpoint.with_name("new")))
    both = counts(workspace)
    type_command(reprocess)

    assert both == {"dog": 1, "cat": 1, "owl": 1}
    assert counts(workspace) == {"owl": 1}


def test_a_power_cut_has_torn_the_checkpoint(workspace, type_command):
    run(workspace, ("1.txt", "dog"), ("2.txt", "cat"))
    (workspace.checkpoint / "offsets" / "0").write_text("")
    [reprocess] = commands("A power cut has torn the checkpoint")

    with pytest.raises(CheckpointTornError, match=message_of("A power cut has torn the checkpoint", 2)):
        run(workspace)
    type_command(reprocess)

    assert counts(workspace) == {"dog": 1, "cat": 1}
