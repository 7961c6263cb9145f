"""What a role's own settings would change, and do not."""

import re
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.recovery_page import message_of
from tests.state_backends.feed import Feed
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.pipelines.embedded.postgres import server_user
from tidegauge.state_backends import Catalog, StateReader, StateSpec, Sum
from tidegauge.state_backends.errors import ServerVersionError
from tidegauge.state_backends.session import check_version, prepare

THIRD = 0.1 + 0.2  # all 17 digits count
SUMS = StateSpec(
    "sums",
    key={"at": "timestamptz", "page": "text"},
    measures={"n": Sum("x", "double precision")},
    ttl=timedelta(days=400, hours=3),
    changelog=True,
)
KEY = ("2013-01-02T10:00:00.250000+00:00", 'a\\b "Δ"')

# Each would change what is stored, or what is answered, or stop it.
HOSTILE = {
    "default_transaction_isolation": "serializable",
    "extra_float_digits": "-3",
    "intervalstyle": "iso_8601",
    "datestyle": "SQL, DMY",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "search_path": "nowhere",
    "synchronous_commit": "off",
    "client_encoding": "LATIN1",
}
OLD_PROGRAMS = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def hostile(conn):
    """The role's own settings in every session that begins; `conn` began before."""
    for name, value in HOSTILE.items():
        conn.execute(sql.SQL("ALTER ROLE CURRENT_USER SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    yield
    conn.execute("ALTER ROLE CURRENT_USER RESET ALL")


@pytest.fixture
def spec(fresh):
    return fresh(SUMS)


def fed(conn, spec):
    """Feed a state by two batches, of which one comes twice, and return what is answered."""
    at, page = KEY
    feed = Feed(conn, [spec], pipeline=spec.name)
    feed.run([{"at": at, "page": page, "n": THIRD}])
    feed.begin(1)
    feed.run([{"at": at, "page": page, "n": THIRD}])
    return answered(conn, spec)


def answered(conn, spec):
    reader = StateReader(conn, Catalog(conn).get(spec.name))
    now = reader.multi_get([KEY])
    versions = [version["value"] for version in reader.history(KEY).parsed()]
    return [now.parsed()[0]["value"], versions, [entry["value"] for entry in reader.page().parsed()]], now.until


class TestTheRolesSettings:
    def test_what_a_pipeline_stores_and_reads_is_as_without_them(self, installed_url, spec, hostile):
        with connect(installed_url, "test") as conn:
            values, until = fed(conn, spec)

        assert values == [{"n": THIRD + THIRD}, [{"n": THIRD + THIRD}, {"n": THIRD}], [{"n": THIRD + THIRD}]]
        assert until is not None

    def test_a_session_that_is_not_prepared_has_them(self, installed_url, hostile):
        with psycopg.connect(installed_url) as conn:
            assert conn.execute(f"SELECT {THIRD!r}::float8::text").fetchone() != (repr(THIRD),)

    def test_a_connection_of_ones_own_reads_as_without_them_once_it_is_prepared(
        self, installed_url, conn, spec, hostile
    ):
        expected = fed(conn, spec)
        with psycopg.connect(installed_url, autocommit=True) as own:
            prepare(own)

            assert answered(own, spec) == expected
            assert own.execute("SHOW synchronous_commit").fetchone() == ("on",)


class TestVersion:
    @pytest.mark.parametrize("version", [160000, 160014, 180004])
    def test_from_16_on_it_is_taken(self, version):
        check_version(version)

    def test_an_older_one_is_refused_with_what_to_do(self):
        with pytest.raises(ServerVersionError) as caught:
            check_version(150018)

        assert str(caught.value) == (
            "PostgreSQL 15.18: Tidegauge needs 16 or later; upgrade the server with pg_upgrade, or restore a dump of "
            "the database into a newer one"
        )
        assert re.search(message_of("PostgreSQL is too old"), str(caught.value))

    @pytest.mark.skipif(not OLD_PROGRAMS.exists(), reason="this machine has no PostgreSQL 15")
    def test_nothing_is_installed_into_a_server_of_15(self):
        with OldServer() as url, psycopg.connect(url, autocommit=True) as conn:
            with pytest.raises(ServerVersionError, match=r"PostgreSQL 15\.\d+: Tidegauge needs 16"):
                Catalog(conn).install()

            assert conn.execute("SELECT to_regnamespace('tidegauge')").fetchone() == (None,)


class OldServer:
    """A PostgreSQL 15 in a folder of its own, until the end of the context."""

    def __enter__(self) -> str:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegauge-old-"))
        self._user = server_user(self._folder / "data", OLD_PROGRAMS / "postgres")
        self._user.own(self._folder)
        port = free_port()
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync")
        self._run(
            "pg_ctl", "start", "-w", "-o", f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        )
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def __exit__(self, *error: object) -> None:
        self._run("pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        log = ["-l", str(self._folder / "log")] if program == "pg_ctl" else []
        done = self._user.run(OLD_PROGRAMS / program, "-D", self._folder / "data", *log, *arguments)
        assert done.returncode == 0, done.stderr
