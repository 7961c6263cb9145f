import psycopg
import pytest

from state_backends.schema import install as installer
from state_backends.schema.install import install


def versions(conn):
    return conn.execute("SELECT version FROM tidemark.schema_version ORDER BY version").fetchall()


@pytest.fixture
def installed(conn):
    install(conn)
    return conn


def test_installing_again_waits_for_nobody_who_reads_or_writes(installed, database_url):
    with psycopg.connect(database_url) as busy:
        busy.execute("LOCK TABLE tidemark.batch, tidemark.pipeline, tidemark.driver IN ROW EXCLUSIVE MODE")
        installed.execute("SET lock_timeout = '1s'")

        install(installed)

    assert versions(installed) == [(4,)]


def test_another_page_than_the_one_installed_is_installed(installed, monkeypatch, tmp_path):
    page = tmp_path / "schema.sql"
    page.write_bytes(installer.SCHEMA.read_bytes() + b"CREATE TABLE IF NOT EXISTS tidemark.newcomer ();")
    monkeypatch.setattr(installer, "SCHEMA", page)

    install(installed)

    assert installed.execute("SELECT to_regclass('tidemark.newcomer') IS NOT NULL").fetchone() == (True,)


def test_tables_of_version_2_gain_what_later_ones_have(installed):
    installed.execute("INSERT INTO tidemark.pipeline (name) VALUES ('old')")
    installed.execute(
        "INSERT INTO tidemark.batch (pipeline, txid, attempt, batch_id, fence, batch_time, started_at, dead_letters) "
        "VALUES ('old', 1, 1, 0, 1, now(), now(), 2)"
    )
    installed.execute("ALTER TABLE tidemark.schema_version DROP COLUMN digest")
    installed.execute("UPDATE tidemark.schema_version SET version = 2")
    installed.execute("DROP TABLE tidemark.pipeline_wish")
    installed.execute("ALTER TABLE tidemark.batch DROP COLUMN late, DROP COLUMN tasks, DROP COLUMN metrics")
    installed.execute("ALTER TABLE tidemark.driver DROP COLUMN failures, DROP COLUMN next_try_at")

    install(installed)

    assert versions(installed) == [(2,), (4,)]
    assert installed.execute("SELECT dead_letters, late, tasks, metrics FROM tidemark.batch").fetchall() == [
        (2, 0, None, {})
    ]
    assert installed.execute("SELECT count(*) FROM tidemark.pipeline_wish").fetchone() == (0,)
