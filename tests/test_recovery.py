"""The commands that docs/recovery.md shows do what it says, each after its finding."""

import os
import re
import subprocess
import sys

import psycopg
import pytest

from pipelines.embedded.data_dir import REPOSITORY

TIMEOUT_SECONDS = 240.0  # includes Spark's start on a busy machine

pytestmark = pytest.mark.spark


def shown(finding):
    """Return the commands of a section, in order."""
    _before, section = (REPOSITORY / "docs" / "recovery.md").read_text().split(f"\n## {finding}\n")
    return re.findall(r"^    python (manage\.py .+)$", section.partition("\n## ")[0], re.MULTILINE)


class Site:
    """One machine's folders and database, with the pipeline `word_count`, one file per batch."""

    def __init__(self, folder, database_url):
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.input.mkdir()
        self.conn = psycopg.connect(database_url, autocommit=True)
        self.url = database_url

    def land(self, name, text):
        (self.input.parent / name).write_text(text)
        (self.input.parent / name).replace(self.input / name)

    def run(self, command="manage.py run_pipeline NAME", **values):
        """Run a command as shown, its placeholders filled in; return what it said if it failed."""
        line = command.replace("NAME", "word_count").split()
        words = [values.get(word, word) for word in line]
        if "--checkpoint" not in words:
            words += ["--checkpoint", str(self.checkpoint)]
        places = ["--input", str(self.input), "--files-per-batch", "1", "--once"]
        ran = subprocess.run(
            [sys.executable, *words, *places],
            cwd=REPOSITORY,
            env=os.environ | {"DATABASE_URL": self.url},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return ran.stderr if ran.returncode else ""

    def counts(self):
        return dict(self.conn.execute("SELECT word, count FROM tidemark_live.words").fetchall())


@pytest.fixture
def site(tmp_path, database_url):
    """A site that has counted a dog and a cat in two batches."""
    site = Site(tmp_path, database_url)
    for schema in ("tidemark", "tidemark_state", "tidemark_live", "tidemark_changelog"):
        site.conn.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    site.land("1.txt", "dog\n")
    site.land("2.txt", "cat\n")
    assert site.run() == ""
    yield site
    site.conn.close()


def test_a_batch_comes_again_with_other_input(site):
    for name in ("offsets/1", "offsets/.1.crc", "commits/1", "commits/.1.crc", "sources/0/1", "sources/0/.1.crc"):
        (site.checkpoint / name).unlink()
    site.conn.execute("UPDATE tidemark.pipeline SET open_txid = 3, open_attempt = 1, open_batch_id = 2")
    (site.input / "2.txt").touch()
    [reprocess] = shown("A batch comes again with other input")

    refused = site.run()
    ran = site.run(reprocess)

    assert "batch 2 comes again with other input (1 files then, 1 now, changed: '2.txt')" in refused
    assert (ran, site.counts()) == ("", {"dog": 1, "cat": 1})


def test_a_folder_was_replaced(site):
    site.input = site.input.with_name("other")
    site.input.mkdir()
    site.land("1.txt", "owl\n")
    reprocess, rebind = shown("A topic, folder or database was replaced")

    refused = site.run()
    added = site.run(rebind, FOLDER=str(site.checkpoint.with_name("new")))
    both = site.counts()
    ran = site.run(reprocess)

    assert "pipeline 'word_count': its source 'folder' is " in refused
    assert (added, both) == ("", {"dog": 1, "cat": 1, "owl": 1})
    assert (ran, site.counts()) == ("", {"owl": 1})


def test_a_power_cut_has_torn_the_checkpoint(site):
    (site.checkpoint / "offsets" / "0").write_text("")
    [reprocess] = shown("A power cut has torn the checkpoint")

    refused = site.run()
    ran = site.run(reprocess)

    assert "offsets/0' is empty or cut off, and is not the newest of its folder; restore a whole copy" in refused
    assert (ran, site.counts()) == ("", {"dog": 1, "cat": 1})
