"""Database roles: what each may do and may not, and that they may do it after every change of a state."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.state_backends.feed import Feed
from tidegauge.pipelines.embedded.postgres import server_programs
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.state_backends import BatchLedger, Catalog, Count, Max, StateReader, StateSpec
from tidegauge.state_backends.errors import RolesError, TablesBusyError
from tidegauge.state_backends.life.move import move_to_backend, move_to_pipeline
from tidegauge.state_backends.life.rename import rename_pipeline, rename_state
from tidegauge.state_backends.life.retire import Retirement
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.schema import role_setup, sql_role
from tidegauge.state_backends.schema.former import Fate
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import Phase, enter
from tidegauge.state_backends.schema.roles import PARTS, DjangoTables, Roles
from tidegauge.state_backends.schema.swap import Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
LOGGED = replace(VIEWS, changelog=True)
MORE = {"top": Max("x"), **VIEWS.measures}

PASSWORDS = {part: secrets.token_urlsafe(24) for part in PARTS}
SQL_PASSWORD = secrets.token_urlsafe(24)
DJANGO = DjangoTables(["of_django", "migrated", "log"], read_only=["migrated"], append_only=["log"])
# Where Django has them whose one user is called `tidegauge`; see DJANGO_SCHEMAS.
BY_OTHERS = """
CREATE TABLE public.of_django (id int); CREATE TABLE public.migrated (id int); CREATE TABLE tidegauge.log (id int)
"""


def drop_roles(server, names):
    with psycopg.connect(server, autocommit=True) as admin:
        for name in names:
            if admin.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone():
                admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture(scope="module", autouse=True)
def roles() -> Iterator[Roles]:
    """Names that no other run has; before the database, so that they are dropped after it."""
    roles = Roles(f"test_{secrets.token_hex(4)}")
    yield roles
    drop_roles(os.environ["DATABASE_URL"], [roles["sql"], *roles.names])


@pytest.fixture(scope="module")
def installed_url(own_url):
    """A database of its own: roles are granted on whole schemas."""
    return own_url


@pytest.fixture(scope="module", autouse=True)
def set_up(installed_url, roles):
    """An installation of one user, who is a superuser, with a state; then its roles."""
    with psycopg.connect(installed_url, autocommit=True) as conn:
        conn.execute(BY_OTHERS)
        Feed(conn, [replace(LOGGED, name="before", partitions=2)], pipeline="before").ledger.release()
        role_setup.set_up(conn, roles, DJANGO, PASSWORDS)


@pytest.fixture
def as_role(installed_url, roles):
    """Opens a connection as one of the roles."""

    @contextmanager
    def connect(part, url=installed_url):
        address = urlsplit(url)
        place = f"{roles[part]}:{quote(PASSWORDS.get(part, SQL_PASSWORD))}@{address.hostname}:{address.port}"
        with psycopg.connect(address._replace(netloc=place).geturl(), autocommit=True) as conn:
            yield conn

    return connect


@pytest.fixture
def pipeline(as_role):
    with as_role("pipeline") as conn:
        yield conn


@pytest.fixture
def feed(pipeline, fresh):
    def feed(declared, conn=pipeline):
        spec = fresh(declared)
        feed = Feed(conn, [spec], pipeline=f"of_{spec.name}")
        feed.run([{"page": "a", "n": 1}])
        return feed

    return feed


def register(feed, spec):
    Catalog(feed.conn).register_states(feed.pipeline, [spec], {spec.name: ""})


def end_changelog(feed, spec):
    Catalog(feed.conn).edit(spec.name, changelog=False)
    register(feed, replace(spec, changelog=True))


def reprocess(feed, spec, *, keep_old=timedelta(0)):
    shadow = Swap(feed.conn, feed.pipeline)
    shadow.begin([spec], spout=feed.spout)
    ledger = BatchLedger(feed.conn, shadow.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    ledger.commit(ledger.begin(0), rows_in=1, keys_written={spec.name: 0})
    ledger.release()
    shadow.swap([spec], {spec.name: ""}, keep_old=keep_old)
    enter(feed.conn, feed.pipeline, Phase.SWAPPED, Phase.SETTLED)


def roll_back(feed, spec):
    reprocess(feed, spec, keep_old=timedelta(days=1))
    feed.ledger.release()
    Kept(feed.conn, feed.pipeline).roll_back()


def rename(feed, spec):
    feed.ledger.release()
    rename_state(feed.conn, spec.name, f"{spec.name}_new")
    return f"{spec.name}_new"


def rename_its_pipeline(feed, spec):
    feed.ledger.release()
    rename_pipeline(feed.conn, feed.pipeline, f"{feed.pipeline}_new")


def to_redis_and_back(feed, spec):
    feed.ledger.release()
    for backend in ("redis", "postgres"):
        move_to_backend(feed.conn, spec.name, backend)


def to_another_pipeline(feed, spec):
    feed.ledger.release()
    move_to_pipeline(feed.conn, spec.name, f"{feed.pipeline}_other", spout="opaque")


def retire_and_keep(feed, spec):
    feed.ledger.release()
    list(Retirement("state", spec.name, Fate.KEPT).run(feed.conn))


def as_superuser(feed, spec):
    with psycopg.connect(feed.superuser, autocommit=True) as conn:
        Catalog(conn).register_states(feed.pipeline, [spec], {spec.name: ""})


CHANGES = {
    "a new state": (VIEWS, {}, lambda feed, spec: None),
    "a new measure": (VIEWS, {"measures": MORE}, register),
    "a migration that copies rows": (LOGGED, {"partitions": 3}, register),
    "a migration by a superuser": (VIEWS, {"partitions": 3, "changelog": True}, as_superuser),
    "a view with columns of other types": (VIEWS, {"measures": {"n": Max("n", type="bigint")}}, reprocess),
    "a changelog begins": (VIEWS, {"changelog": True}, register),
    "a changelog ends": (LOGGED, {"changelog": False}, end_changelog),
    "a reprocess": (LOGGED, {}, reprocess),
    "a reprocess with a new measure": (VIEWS, {"measures": MORE}, reprocess),
    "a reprocess that is rolled back": (LOGGED, {}, roll_back),
    "a state gets another name": (LOGGED, {}, rename),
    "a pipeline gets another name": (LOGGED, {}, rename_its_pipeline),
    "a move to another backend and back": (VIEWS, {}, to_redis_and_back),
    "a move to another pipeline": (LOGGED, {}, to_another_pipeline),
    "a state is retired and kept": (LOGGED, {}, retire_and_keep),
}


@pytest.mark.parametrize("change", CHANGES)
def test_reader_and_web_read_a_state_after(feed, as_role, conn, roles, installed_url, change):
    declared, changes, change = CHANGES[change]
    feed = feed(declared)
    feed.superuser = installed_url

    name = change(feed, replace(feed.specs[0], **changes)) or feed.specs[0].name

    with as_role("reader") as reader, as_role("web") as web:
        reader.execute(f"SELECT page, n, txid FROM tidegauge_live.{name}")
        StateReader(web, Catalog(web).get(name)).multi_get([("a",)])
        web.execute(f"SELECT * FROM tidegauge_live.{name}")
        with pytest.raises(InsufficientPrivilege):
            reader.execute(f"SELECT page FROM tidegauge_state.{name}")
    assert role_setup.findings(conn, roles, DJANGO) == []


def test_reader_and_web_read_a_state_after_a_restore(feed, as_role, conn, roles, installed_url, tmp_path):
    name = feed(LOGGED).specs[0].name
    if conn.info.server_version // 10_000 != 18:
        pytest.skip("pg_restore of the wheel is of another version than the server")

    with temporary_database(installed_url) as restored:
        for program, *words in (["pg_dump", "-Fc", "-f"], ["pg_restore", "-d", restored]):
            words = [f"--dbname={installed_url}", *words] if program == "pg_dump" else words
            subprocess.run([server_programs() / program, *words, tmp_path / "dump"], check=True)

        for part, query in {"reader": "tidegauge_live", "web": "tidegauge_changelog"}.items():
            with as_role(part, restored) as its:
                assert its.execute(f"SELECT page, n FROM {query}.{name}").fetchall() == [("a", 1)]
        with psycopg.connect(restored, autocommit=True) as admin:
            # What belongs to the database itself is not in a dump of it.
            assert role_setup.findings(admin, roles, DJANGO) == [
                f"{roles['owner']} lacks CREATE on database {admin.info.dbname}"
            ]
            role_setup.set_up(admin, roles, DJANGO, {})
            assert role_setup.findings(admin, roles, DJANGO) == []


def test_a_state_from_before_the_roles_is_fed_and_maintained_on(as_role, pipeline):
    feed = Feed(pipeline, [replace(LOGGED, name="before", partitions=2)], pipeline="before")
    feed.run([{"page": "a", "n": 1}])

    with as_role("worker") as worker:
        list(compact(worker, feed.specs[0], keep=timedelta(0)))

    assert feed.specs[0].partitions == 2


def test_the_worker_compacts_tiles(as_role, pipeline):
    tiles = {"minute": timedelta(hours=1), "hour": None}
    spec = StateSpec("tiled", key={"start": "timestamptz"}, measures={"n": Count()}, tiles=tiles)
    feed, start = Feed(pipeline, [spec], pipeline="tiled"), datetime(2026, 1, 5, tzinfo=UTC)
    for minutes in (1, 300, 301):
        feed.run([{"start": start + timedelta(minutes=minutes), "n": 1}])

    with as_role("worker") as worker:
        assert [step.removed for step in compact(worker, spec, keep=timedelta(0)) if step.removed] == [1]
    with as_role("reader") as reader:
        asked = "SELECT tidegauge.tile_start('tiled', %s)"
        assert reader.execute(asked, [start + timedelta(minutes=59)]).fetchone() == (start,)


def test_the_tables_of_django_are_found_in_either_schema(as_role):
    for part in ("owner", "web", "worker"):
        with as_role(part) as its:
            its.execute("SELECT FROM of_django, log")


LEDGER = {"read the ledger", "write the ledger", "edit a ttl", "request maintenance", "pause", "replay a dead letter"}
STATES = {
    "merge", "create a state table", "drop a state table", "vacuum", "read a state", "read a live view", "expire rows",
    "ask for a tile",
}  # fmt: skip
WEB = {
    "read the ledger", "read a state", "read a live view", "edit a ttl", "request maintenance", "pause",
    "replay a dead letter", "write Django's tables", "write the log", "read migrations", "ask for a tile",
}  # fmt: skip
ALLOWED = {
    "owner": {
        "migrate", "create in public", "create a schema", "drop a schema", "write Django's tables", "read migrations",
        "write the log", "change the log", "forget log entries", "write migrations", "ask for a tile", *LEDGER,
    },
    "pipeline": STATES | LEDGER,
    "web": WEB,
    "worker": STATES | LEDGER | WEB | {"forget log entries"},
    "reader": {"read a live view", "ask for a tile"},
}  # fmt: skip

STATEMENTS = {
    "merge": "INSERT INTO tidegauge_state.before (page, n, txid, updated_at) VALUES ('z', 1, 1, now()) "
    "ON CONFLICT (page) DO UPDATE SET n = 2",
    "create a state table": "CREATE TABLE tidegauge_state.other (page text); DROP TABLE tidegauge_state.other",
    "drop a state table": "DROP TABLE tidegauge_state.before CASCADE",
    "vacuum": "ALTER TABLE tidegauge_state.before_p0 SET (autovacuum_enabled = true)",  # a right of its owner, too
    "expire rows": "DELETE FROM tidegauge_state.before",
    "read a state": "SELECT FROM tidegauge_state.before",
    "read a live view": "SELECT FROM tidegauge_live.before",
    "ask for a tile": "SELECT tidegauge.tile_start('before', now())",
    "read the ledger": "SELECT FROM tidegauge.pipeline, tidegauge.batch",
    "write the ledger": "UPDATE tidegauge.pipeline SET fence = fence",
    "edit a ttl": "UPDATE tidegauge.state SET ttl = NULL, edits = '{}'",
    "request maintenance": "INSERT INTO tidegauge.maintenance_run (kind, state, requested_by) "
    "VALUES ('expiry', 'before', 'a test')",
    "pause": "INSERT INTO tidegauge.pipeline_wish VALUES ('before', true, 'a test')",
    "replay a dead letter": "UPDATE tidegauge.dead_letter SET replay_at = now(), replay_by = 'a test'",
    "migrate": "ALTER TABLE tidegauge.pipeline ADD COLUMN more int; ALTER TABLE public.of_django ADD COLUMN more int",
    "create in public": "CREATE TABLE public.more (x int)",
    "drop a schema": "DROP SCHEMA tidegauge CASCADE",
    "write Django's tables": "INSERT INTO public.of_django VALUES (1); UPDATE public.of_django SET id = 2; "
    "DELETE FROM public.of_django",
    "read migrations": "SELECT FROM public.migrated",
    "write the log": "INSERT INTO tidegauge.log VALUES (1)",
    "change the log": "UPDATE tidegauge.log SET id = 1",
    "forget log entries": "DELETE FROM tidegauge.log",
    "write migrations": "INSERT INTO public.migrated VALUES (1)",
    "read passwords": "SELECT rolpassword FROM pg_authid",
    "run a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "read a file of the server": "SELECT pg_read_file('postgresql.conf')",
    "create a role": "CREATE ROLE another",
    "take another role on": "SET LOCAL ROLE SUPERUSER",
    "create a slot": "SELECT pg_create_logical_replication_slot('a', 'pgoutput')",
    "create a schema": "CREATE SCHEMA more",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_role_may_do_what_it_needs_and_no_more(as_role, conn, part):
    may = set()
    with as_role(part) as its:
        for name, statement in STATEMENTS.items():
            with suppress(InsufficientPrivilege), its.transaction(force_rollback=True):
                its.execute(statement.replace("SUPERUSER", conn.info.user))
                may.add(name)

    assert may == ALLOWED[part]


class TestSetUp:
    def test_again_changes_nothing(self, conn, roles):
        role_setup.set_up(conn, roles, DJANGO, {})

        assert role_setup.findings(conn, roles, DJANGO) == []

    @pytest.mark.parametrize(
        ("harm", "found"),
        [
            ("REVOKE SELECT ON tidegauge.batch FROM {0}_web", ["{0}_web lacks SELECT on table tidegauge.batch"]),
            ("REVOKE UPDATE (ttl) ON tidegauge.state FROM {0}_web", ["{0}_web lacks UPDATE on table tidegauge.state"]),
            ("REVOKE SELECT ON tidegauge_live.before FROM {0}_reader",
             ["{0}_reader lacks SELECT on table tidegauge_live.before"]),
            ("REVOKE USAGE ON SCHEMA tidegauge_live FROM {0}_reader",
             ["{0}_reader lacks USAGE on schema tidegauge_live"]),
            ("ALTER TABLE tidegauge.batch OWNER TO CURRENT_USER",
             ["table tidegauge.batch belongs to {1}, not to {0}_owner"]),
            ("ALTER TABLE tidegauge_changelog.before OWNER TO CURRENT_USER",
             ["table tidegauge_changelog.before belongs to {1}, not to {0}_pipeline"]),
            ("ALTER FUNCTION tidegauge.clock() OWNER TO CURRENT_USER",
             ["function tidegauge.clock() belongs to {1}, not to {0}_owner"]),
            ("ALTER DEFAULT PRIVILEGES FOR ROLE {0}_pipeline REVOKE SELECT ON TABLES FROM {0}_web",
             ["{0}_web lacks SELECT on tables that {0}_pipeline will create"]),
            ("REVOKE {0}_pipeline FROM {0}_worker", ["{0}_worker is not a member of {0}_pipeline"]),
        ],
    )  # fmt: skip
    def test_what_is_missing_is_named_and_mended(self, conn, roles, harm, found):
        conn.execute(harm.format(roles.prefix))

        told = role_setup.findings(conn, roles, DJANGO)
        role_setup.set_up(conn, roles, DJANGO, {})

        assert [each.format(roles.prefix, conn.info.user) for each in found] == [
            line for line in told if "lacks" not in line or line in [f.format(roles.prefix) for f in found]
        ]
        assert role_setup.findings(conn, roles, DJANGO) == []

    def test_a_privilege_too_many_is_taken_back(self, conn, roles):
        conn.execute(f"GRANT ALL ON tidegauge.pipeline, tidegauge.log TO {roles['web']}")

        role_setup.set_up(conn, roles, DJANGO, {})

        held = "SELECT has_table_privilege(%s, t, 'DELETE') FROM unnest(ARRAY['tidegauge.pipeline', 'tidegauge.log']) t"
        assert conn.execute(held, [roles["web"]]).fetchall() == [(False,), (False,)]

    def test_roles_that_do_not_exist_are_named(self, conn):
        assert role_setup.findings(conn, Roles("nobody"), DJANGO)[0] == "role nobody_owner does not exist"

    def test_passwords_are_stored_hashed_and_never_sent(self, conn, roles):
        stored = conn.execute("SELECT rolpassword FROM pg_authid WHERE rolname = ANY(%s)", [roles.names]).fetchall()

        assert len(stored) == len(PARTS)
        assert all(password.startswith("SCRAM-SHA-256$") for (password,) in stored)

    def test_a_role_that_may_not_is_told_what_to_connect_as(self, as_role, roles):
        with as_role("owner") as owner, pytest.raises(RolesError, match=f"{roles['owner']}' may not create roles"):
            role_setup.set_up(owner, roles, DJANGO, {})

    def test_a_table_in_use_is_named_and_nothing_is_done(self, conn, connect, roles, monkeypatch):
        monkeypatch.setattr(role_setup, "LOCK_TIMEOUT", "100ms")
        conn.execute("ALTER TABLE tidegauge_state.before OWNER TO CURRENT_USER")
        reading = connect()
        with reading.transaction():
            reading.execute("SELECT FROM tidegauge_state.before")
            with pytest.raises(TablesBusyError, match="nothing was changed"):
                role_setup.set_up(conn, roles, DJANGO, {})

        role_setup.set_up(conn, roles, DJANGO, {})

    def test_pipelines_read_changes_of_tables_only_if_asked(self, conn, roles, as_role):
        may = "SELECT rolreplication FROM pg_roles WHERE rolname = %s"
        assert conn.execute(may, [roles["pipeline"]]).fetchone() == (False,)

        role_setup.set_up(conn, roles, DJANGO, {}, changes=True)

        assert conn.execute(may, [roles["pipeline"]]).fetchone() == (True,)
        with as_role("pipeline") as pipeline:
            pipeline.execute(
                "CREATE TABLE tidegauge_source.beginning (slot text); DROP TABLE tidegauge_source.beginning"
            )
        conn.execute(f"ALTER ROLE {roles['pipeline']} NOREPLICATION")


@pytest.fixture
def managed(roles):
    """A database that belongs to a role with CREATEROLE, as hosted servers give one; it is no superuser."""
    server, admin = os.environ["DATABASE_URL"], f"{roles.prefix}_managed"
    names, url = Roles(f"{roles.prefix}_m"), urlsplit(server)
    with psycopg.connect(server, autocommit=True) as superuser:
        superuser.execute(f"CREATE ROLE {admin} LOGIN CREATEROLE PASSWORD 'secret'")
        superuser.execute(f"CREATE DATABASE {admin} OWNER {admin}")
    place = f"{admin}:secret@{url.hostname}:{url.port}"
    try:
        with psycopg.connect(url._replace(netloc=place, path=f"/{admin}").geturl(), autocommit=True) as conn:
            yield conn, names
    finally:
        with psycopg.connect(server, autocommit=True) as superuser:
            superuser.execute(f"DROP DATABASE {admin} WITH (FORCE)")
        drop_roles(server, [*names.names, admin])


def test_a_role_that_is_no_superuser_sets_up_what_it_owns(managed):
    conn, roles = managed
    Catalog(conn).install()
    conn.execute(BY_OTHERS)
    Feed(conn, [LOGGED], pipeline="before").ledger.release()

    for _ in range(2):
        role_setup.set_up(conn, roles, DJANGO, PASSWORDS)

    assert role_setup.findings(conn, roles, DJANGO) == []
    [(inherits,)] = conn.execute("SELECT pg_has_role(current_user, %s, 'USAGE')", [roles["owner"]]).fetchall()
    assert not inherits


class TestTheRoleForSql:
    def test_it_reads_the_view_of_a_state_that_comes_later_and_nothing_else(self, conn, feed, as_role, roles):
        assert sql_role.make(conn, SQL_PASSWORD) == roles["sql"]
        name = feed(VIEWS).specs[0].name

        with as_role("sql") as its:
            assert its.execute(f"SELECT page, n FROM tidegauge_live.{name}").fetchall() == [("a", 1)]
            assert sql_role.excess(its, list(DJANGO.names)) == ""
            with pytest.raises(InsufficientPrivilege):
                its.execute(f"SELECT FROM tidegauge_state.{name}")

    @pytest.mark.parametrize("part", ["owner", "pipeline", "web", "worker"])
    def test_no_other_role_passes_for_it(self, as_role, part):
        with as_role(part) as its:
            assert "may use" in sql_role.excess(its, list(DJANGO.names))

    def test_a_role_that_may_not_make_it_is_told_what_to_connect_as(self, as_role, roles):
        with as_role("web") as web, pytest.raises(RolesError, match=f"{roles['web']}' may not make it"):
            sql_role.make(web, "")
