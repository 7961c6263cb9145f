import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import UndefinedTable

from tidegauge.state_backends.errors import SchemaVersionError, TablesBusyError
from tidegauge.state_backends.schema import install as installer
from tidegauge.state_backends.schema.install import install, migrations


@pytest.fixture
def conn(database_url):
    """A connection to a database without Tidegauge."""
    with psycopg.connect(database_url, autocommit=True, options="-c lock_timeout=5s") as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidegauge%'").fetchall()
        for (schema,) in schemas:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        yield connection


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the migrations, to which a test can add."""
    folder = shutil.copytree(installer.MIGRATIONS, tmp_path / "migrations")
    monkeypatch.setattr(installer, "MIGRATIONS", folder)
    return folder


@pytest.fixture
def installed(conn):
    install(conn)
    return conn


def next_file(folder):
    return folder / f"{len(migrations()) + 1:04}_next.sql"


def applied(conn):
    return conn.execute("SELECT number, name, digest FROM tidegauge.schema_version ORDER BY number").fetchall()


def rows_of(known):
    return [(migration.number, migration.name, migration.digest) for migration in known]


def lock_tables(busy, mode, but=()):
    """Lock all tables of Tidegauge, except those named, until the transaction of `busy` ends."""
    tables = busy.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'tidegauge' AND tablename <> ALL (%s)", [list(but)]
    ).fetchall()
    for (table,) in tables:
        busy.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(sql.Identifier("tidegauge", table), sql.SQL(mode)))


def test_the_files_are_numbered_from_1_without_gaps():
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))
    assert all(file.name[4] == "_" for file in installer.MIGRATIONS.iterdir())


def test_a_new_database_gets_all_migrations(conn):
    install(conn)

    assert applied(conn) == rows_of(migrations())
    assert conn.execute("SELECT count(*) FROM tidegauge.pipeline").fetchone() == (0,)


def test_an_up_to_date_database_is_read_without_waiting_for_locks(installed, database_url):
    with psycopg.connect(database_url) as busy:
        busy.execute("SELECT pg_advisory_xact_lock(%s)", [installer.INSTALL_LOCK])
        lock_tables(busy, "EXCLUSIVE", but=[])
        lock_tables(busy, "ACCESS EXCLUSIVE", but=["schema_version"])

        install(installed)

    assert applied(installed) == rows_of(migrations())


def test_readers_go_on_after_a_migration_has_met_one_that_stays(installed, folder, database_url, monkeypatch):
    monkeypatch.setattr(installer, "WAIT_SECONDS", 0.0)
    (folder / f"{len(migrations()) + 1:04}_more.sql").write_text("ALTER TABLE tidegauge.pipeline ADD COLUMN more text")

    with psycopg.connect(database_url) as export, psycopg.connect(database_url, options="-c lock_timeout=3s") as reader:
        export.execute("SELECT FROM tidegauge.pipeline")
        with pytest.raises(TablesBusyError, match="changes tables that other sessions have read for more than 0 s"):
            install(installed)
        reader.execute("SELECT FROM tidegauge.pipeline")
    install(installed)

    assert installed.execute("SELECT more FROM tidegauge.pipeline").fetchall() == []


def test_only_what_is_missing_is_applied(installed, folder):
    next_file(folder).write_text("CREATE TABLE tidegauge.added (n integer); INSERT INTO tidegauge.added VALUES (1);")

    install(installed)
    install(installed)

    assert applied(installed) == rows_of(migrations())
    assert installed.execute("SELECT n FROM tidegauge.added").fetchall() == [(1,)]


def test_a_callers_transaction_takes_the_schema_along(conn):
    with conn.transaction(force_rollback=True):
        install(conn)
        inside = applied(conn)

    assert inside == rows_of(migrations())
    with pytest.raises(UndefinedTable):
        applied(conn)


def test_concurrent_installers_apply_each_migration_once(conn, database_url, folder):
    next_file(folder).write_text("CREATE TABLE tidegauge.added (n integer);")
    barrier = Barrier(4)

    def start(_):
        with psycopg.connect(database_url, autocommit=True) as own:
            barrier.wait(timeout=30)
            install(own)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, range(4)))

    assert applied(conn) == rows_of(migrations())


class TestFailure:
    def test_a_failing_migration_leaves_nothing_behind(self, installed, folder):
        known = migrations()
        next_file(folder).write_text("CREATE TABLE tidegauge.added (); SELECT * FROM tidegauge.absent;")

        with pytest.raises(UndefinedTable, match=r"tidegauge\.absent"):
            install(installed)

        assert applied(installed) == rows_of(known)
        assert installed.execute("SELECT to_regclass('tidegauge.added')").fetchone() == (None,)

    def test_the_first_one_leaves_an_empty_database(self, conn, folder):
        with (folder / "0001_initial.sql").open("a") as file:
            file.write("SELECT * FROM tidegauge.absent;")

        with pytest.raises(UndefinedTable, match=r"tidegauge\.absent"):
            install(conn)

        assert conn.execute("SELECT to_regnamespace('tidegauge')").fetchone() == (None,)

    def test_a_file_that_has_changed_since_it_was_applied_is_refused(self, installed, folder):
        with (folder / "0001_initial.sql").open("a") as file:
            file.write("CREATE TABLE tidegauge.added ();")
        next_file(folder).write_text("CREATE TABLE tidegauge.added ();")

        with pytest.raises(SchemaVersionError) as refused:
            install(installed)

        assert str(refused.value) == (
            "database schema: '0001_initial.sql' has changed since it was applied; restore the file, and put the "
            "change into a new migration"
        )
        assert installed.execute("SELECT to_regclass('tidegauge.added')").fetchone() == (None,)

    def test_a_database_newer_than_the_code_is_refused(self, installed, folder):
        file = next_file(folder)
        file.write_text("CREATE TABLE tidegauge.added ();")
        install(installed)
        file.unlink()

        with pytest.raises(SchemaVersionError) as refused:
            install(installed)

        assert str(refused.value) == (
            f"database schema: migration {file.stem!r} is applied, which this version of Tidegauge does not have; run "
            "the version that applied it, or a later one"
        )
