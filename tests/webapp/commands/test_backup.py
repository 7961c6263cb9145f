"""Backup and restore: the drill after which a pipeline continues exactly, and what a restore refuses."""

import json
import shutil
import tarfile
import time
from collections import Counter
from contextlib import closing
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tests.harness.process_tree import family, is_alive
from tests.harness.waiting import eventually
from tests.state_backends.backends.own_redis import own_cluster
from tests.webapp.flights import SPECS
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.state_backends import BatchLedger, Catalog, state_reader
from tidegauge.state_backends.schema.swap import Swap
from tidegauge.webapp.commands.management.backup import load, programs
from tidegauge.webapp.commands.management.backup.manifest import BackupError

TWO_STORES = '''
from pathlib import Path

from tidegauge import Count, Pipeline, StateSpec, Stream, Sum, TextFiles

ORDERED = StateSpec("ordered", {"article": "text"}, {"orders": Count(), "articles": Sum("number", type="bigint")})
BOUGHT = StateSpec(
    "bought", {"article": "text"}, {"articles": Sum("number", type="bigint")}, backend="redis", partitions=8
)


def orders(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """Orders per article, in PostgreSQL and in Redis, there spread over buckets."""
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    sold = lines.each(article="split(line, ' ')[0]", number="cast(split(line, ' ')[1] AS bigint)").group_by("article")
    return Pipeline("orders", [sold.persistent_aggregate(ORDERED), sold.persistent_aggregate(BOUGHT)])
'''
FILES = 24
COMMITTED = "SELECT committed_txid FROM tidegauge.pipeline WHERE name = 'orders'"


class Shop:
    """A user's project whose pipeline feeds a state in PostgreSQL and one in Redis."""

    def __init__(self, project):
        self.project = project
        project.write("acme/orders.py", TWO_STORES)
        for file in (project.folder / "home" / "input" / "orders").iterdir():
            file.unlink()
        self.articles, self.orders = Counter(), Counter()

    def order(self, first, last):
        for number in range(first, last):
            lines = [(f"article-{(number * step) % 17}", number + step) for step in range(1, 40)]
            self.project.write(f"home/input/orders/{number:03}.txt", "".join(f"{name} {n}\n" for name, n in lines))
            for name, n in lines:
                self.articles[name] += n
                self.orders[name] += 1

    def held(self, dsn):
        """Return the two states as a reader sees them."""
        with closing(psycopg.connect(dsn, autocommit=True)) as conn:
            keys, catalog = [(name,) for name in self.articles], Catalog(conn)
            found = {state: state_reader(conn, catalog.get(state)).multi_get(keys) for state in ("ordered", "bought")}
            return {
                state: {entry["key"][0]: entry["value"] for entry in snapshot.parsed()}
                for state, snapshot in found.items()
            }

    @property
    def counted(self):
        ordered = {name: {"orders": self.orders[name], "articles": n} for name, n in self.articles.items()}
        return {"ordered": ordered, "bought": {name: {"articles": n} for name, n in self.articles.items()}}


@pytest.fixture
def stored(tmp_path):
    """A Redis Cluster, which the states of the test are in."""
    with own_cluster(tmp_path / "servers") as cluster:
        yield cluster


def await_batch(dsn, txid, driver):
    deadline = time.monotonic() + 200
    with closing(psycopg.connect(dsn, autocommit=True)) as conn:
        while True:
            assert driver.poll() is None, driver.communicate()[1][-3000:]
            assert time.monotonic() < deadline
            if conn.execute("SELECT to_regclass('tidegauge.pipeline')").fetchone() != (None,):
                row = conn.execute(COMMITTED).fetchone()
                if row and row[0] >= txid:
                    return
            time.sleep(0.02)


@pytest.mark.spark
def test_after_everything_was_lost_the_restored_pipeline_continues_exactly(project, conn, database_url, stored):
    shop, folder = Shop(project), project.folder / "backups" / "monday"
    shop.order(0, FILES)
    project.command("migrate", "-v0")
    driver = project.start("run_pipeline", "orders")
    try:
        await_batch(database_url, 3, driver)
        said, _ = project.command("backup", str(folder))
        saved_at = json.loads((folder / "manifest.json").read_text())["pipelines"][0]["committed_txid"]
        await_batch(database_url, saved_at + 3, driver)
    finally:
        started = family(driver.pid)
        driver.kill()
        driver.communicate()
    # Java ends a moment after the driver that started it, and until then it may write into the checkpoint.
    eventually(lambda: not any(map(is_alive, started)))

    assert all(master.client.dbsize() for master in stored.masters)
    for master in stored.masters:
        master.client.flushall()
    shutil.rmtree(project.folder / "home" / "checkpoints")
    shop.order(FILES, FILES + 2)
    with temporary_database(database_url) as restored:
        project._dsn = restored
        steps, _ = project.command("restore", str(folder))
        assert shop.held(restored) != shop.counted
        _, log = project.command("run_pipeline", "orders", "--once")

        assert shop.held(restored) == shop.counted
        with psycopg.connect(restored) as after:
            reasons = after.execute("SELECT reason FROM tidegauge.epoch ORDER BY number").fetchall()
    assert f"orders continues after batch {saved_at}: `tidegauge run orders`" in steps
    assert f"batch {saved_at + 1} committed" in log
    assert len(reasons) == 2
    assert "state bought in Redis" in said


def test_an_archive_with_a_link_in_it_is_not_unpacked(tmp_path):
    link = tarfile.TarInfo("own/offsets")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    with tarfile.open(tmp_path / "orders.tar", "w") as archive:
        archive.addfile(link)

    with pytest.raises(BackupError, match=r"orders.tar: 'own/offsets' is not part of a checkpoint"):
        load._unpack_one(tmp_path / "orders.tar", tmp_path / "orders")

    assert not (tmp_path / "orders.restoring" / "own").exists()


def called(*words):
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


@pytest.fixture
def backup(lasting, working_directory):
    """A backup of the flights pipeline, whose checkpoint was not found."""
    called("backup", "saved")
    return working_directory / "saved"


def test_a_backup_says_what_it_has_and_only_its_owner_may_read_it(backup):
    manifest = json.loads((backup / "manifest.json").read_text())

    assert [(each["name"], each["committed_txid"]) for each in manifest["pipelines"]] == [("flights", 2)]
    assert manifest["files"].keys() == {"database.dump"} == {file.name for file in backup.iterdir()} - {"manifest.json"}
    assert backup.stat().st_mode & 0o077 == 0


def test_a_backup_is_taken_during_a_reprocess(lasting, working_directory):
    Swap(lasting.conn, "flights").begin(SPECS, spout="transactional")
    BatchLedger(lasting.conn, "flights@reprocess").acquire()

    assert called("backup", "saved").startswith("pipeline flights: no checkpoint in ")


def test_a_checkpoint_of_an_unknown_pipeline_is_refused(lasting, working_directory):
    with pytest.raises(CommandError, match=r"--checkpoint fligths=..: there is no such pipeline; there are flights"):
        called("backup", "saved", "--checkpoint", "fligths=elsewhere")


def test_a_backup_is_not_written_over_another_or_where_nothing_can_be(backup):
    (backup.parent / "killed.partial").mkdir()

    for folder, said in {
        "saved": "saved' exists; name a folder that does not exist yet",
        "killed": "killed.partial' exists: another backup to this folder runs, or was killed",
        "pyproject.toml/saved": "cannot be created .File exists.; name another folder",
    }.items():
        with pytest.raises(CommandError, match=said):
            called("backup", folder)


def damage(backup):
    file = backup / "database.dump"
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def edit(backup, **changes):
    manifest = json.loads((backup / "manifest.json").read_text())
    (backup / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, "database.dump is not as it was written; take another backup"),
        (lambda backup: (backup / "database.dump").unlink(), "database.dump is missing"),
        (lambda backup: (backup / "manifest.json").write_text("{"), "no manifest.json that can be read"),
        (lambda backup: edit(backup, format=9), "its format is 9, and this version reads 1"),
        (lambda backup: edit(backup, schema="9999_later"), "of a later version .migration '9999_later'"),
        (lambda backup: edit(backup, server_version=990000), "is of PostgreSQL 99, and the server is"),
        (lambda backup: None, "is not empty .tidegauge.batch, .*createdb"),
    ],
)
def test_a_restore_refuses_what_is_damaged_or_does_not_fit(backup, change, said):
    change(backup)

    with pytest.raises(CommandError, match=said):
        called("restore", "saved")


def test_a_program_of_an_older_version_than_the_server_is_not_taken(monkeypatch):
    monkeypatch.setattr(programs, "_version", lambda path: 15)

    with pytest.raises(
        programs.ProgramError, match=r"no pg_dump for PostgreSQL 16: found 15 in .*postgresql-client-16"
    ):
        programs.find("pg_dump", 160004)
