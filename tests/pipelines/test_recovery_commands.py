"""The commands of docs/recovery.md, each typed as it stands there; afterwards every total is exact."""

import shlex
import shutil
import subprocess
from io import StringIO

import django
import pytest
from django.core.management import CommandError, call_command

from pipelines.embedded.data_dir import REPOSITORY
from pipelines.embedded.postgres import server_programs
from pipelines.jobs.word_count import word_count
from state_backends import Catalog
from state_backends.errors import BatchOrderError, CheckpointMismatchError

pytestmark = pytest.mark.spark

django.setup()


@pytest.fixture
def shell(workspace, monkeypatch):
    """Types a command of the document for the pipeline word_count, and returns what it prints."""
    monkeypatch.setenv("DATABASE_URL", workspace.dsn)
    document = (REPOSITORY / "docs" / "recovery.md").read_text()

    def shell(command):
        assert f"    python manage.py {command}\n" in document
        _pipelines, action, name, *options = shlex.split(command.replace("NAME", "word_count").replace("TXID", "1"))
        out = StringIO()
        places = {"input": workspace.input, "checkpoint": workspace.checkpoint}
        call_command("pipelines", action, name, *options, stdout=out, **places)
        # Without Django's notice that its own tables are not in this database.
        return [line for line in out.getvalue().splitlines() if line.startswith(("word_count: ", "state ", "folder "))]

    return shell


@pytest.fixture
def dump(workspace, tmp_path):
    """Dumps the database, and restores it over itself."""
    file = tmp_path / "dump"

    def run(program, *arguments):
        subprocess.run([server_programs() / program, f"--dbname={workspace.dsn}", *arguments], check=True)

    class Dump:
        def take(self):
            run("pg_dump", "--format=custom", f"--file={file}")

        def restore(self):
            run("pg_restore", "--clean", file)

    return Dump()


def run(workspace, *files):
    for name, line in files:
        workspace.land(name, line)
    return workspace.run(word_count(workspace.input, files_per_batch=1))


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def test_the_checkpoint_is_lost(workspace, shell):
    run(workspace, ("1.txt", "dog"), ("2.txt", "cat"))
    shutil.rmtree(workspace.checkpoint)

    with pytest.raises(CheckpointMismatchError, match=r"`manage\.py pipelines restore-checkpoint word_count`"):
        run(workspace)
    shell("pipelines restore-checkpoint NAME --dry-run")
    shell("pipelines restore-checkpoint NAME")
    run(workspace, ("3.txt", "dog"))

    assert counts(workspace) == {"dog": 2, "cat": 1}
    assert shell("pipelines skip-lost NAME") == ["word_count: no input is lost, nothing to skip"]


def test_the_checkpoint_is_behind(workspace, shell):
    run(workspace, ("1.txt", "dog"))
    Catalog(workspace.conn).edit("words", changelog=True)
    shutil.copytree(workspace.checkpoint, workspace.checkpoint.with_name("backup"))
    run(workspace, ("2.txt", "dog"), ("3.txt", "cat"))
    for command in ("pipelines restore-checkpoint NAME", "pipelines rewind NAME --to-checkpoint"):
        shutil.rmtree(workspace.checkpoint)
        shutil.copytree(workspace.checkpoint.with_name("backup"), workspace.checkpoint)

        with pytest.raises(BatchOrderError) as caught:
            run(workspace)
        shell(command)
        run(workspace)

        assert f"`manage.py {command.replace('NAME', 'word_count')}`" in str(caught.value)
        assert counts(workspace) == {"dog": 2, "cat": 1}


def test_the_ledger_is_behind_after_a_restore_of_the_database(workspace, shell, dump):
    run(workspace, ("1.txt", "dog"))
    epoch = workspace.rows("SELECT epoch FROM tidemark.pipeline")
    dump.take()
    run(workspace, ("2.txt", "dog cat"), ("3.txt", "cat"))
    dump.restore()
    restored = counts(workspace)

    with pytest.raises(BatchOrderError) as caught:
        run(workspace, ("4.txt", "cow"))
    said = shell("pipelines restore-checkpoint NAME")
    batches = run(workspace)

    assert restored == {"dog": 1}
    assert "`manage.py pipelines restore-checkpoint word_count`" in str(caught.value)
    assert "the checkpoint is 2 batches ahead" in said[0]
    assert [txid for txid, _ in batches] == [2, 3, 4]
    assert counts(workspace) == {"dog": 2, "cat": 2, "cow": 1}
    assert workspace.rows("SELECT epoch FROM tidemark.pipeline") != epoch


def test_a_file_that_is_gone_since_the_backup_is_named_before_anything_is_touched(workspace, shell, dump):
    run(workspace, ("1.txt", "dog"))
    dump.take()
    run(workspace, ("2.txt", "cat"), ("3.txt", "cat"))
    dump.restore()
    gone = workspace.input / "3.txt"
    gone.unlink()
    before = sorted(path.name for path in workspace.checkpoint.rglob("*"))

    with pytest.raises(CommandError, match=r"1 of the files that were counted .* are gone, the first is '3.txt'"):
        shell("pipelines restore-checkpoint NAME")

    assert sorted(path.name for path in workspace.checkpoint.rglob("*")) == before
    gone.write_text("cat\n")
    shell("pipelines restore-checkpoint NAME")
    run(workspace)
    assert counts(workspace) == {"dog": 1, "cat": 2}


def test_states_go_back_to_an_earlier_batch(workspace, shell):
    run(workspace, ("1.txt", "dog"), ("2.txt", "wrong"))
    (workspace.input / "2.txt").write_text("right\n")

    planned = shell("pipelines rewind NAME --to TXID --dry-run")
    untouched = counts(workspace)
    shell("pipelines rewind NAME --to TXID")
    run(workspace)

    assert planned[0] == "word_count: from batch 2 back to batch 1"
    assert untouched == {"dog": 1, "wrong": 1}
    assert counts(workspace) == {"dog": 1, "right": 1}
