import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from pipelines.embedded.postgres import EmbeddedPostgres, server_programs
from state_backends import BatchLedger, Catalog, Count, StateSpec
from state_backends.epochs import COPIED, new_epoch
from state_backends.errors import FencedError
from state_backends.ledger import lock_fence, record_metrics
from tests.state_backends.feed import Feed, views

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
SCHEMAS = ("tidemark", "tidemark_state", "tidemark_live", "tidemark_changelog")


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def dump(installed_url, tmp_path):
    """Dumps the module's database, and restores it over itself."""
    file = tmp_path / "dump"

    def run(program, *arguments):
        subprocess.run([server_programs() / program, f"--dbname={installed_url}", *arguments], check=True)

    class Dump:
        def take(self):
            run("pg_dump", "--format=custom", f"--file={file}")

        def restore(self, *options):
            run("pg_restore", *options, file)

    return Dump()


def reasons(conn):
    return [reason for (reason,) in conn.execute("SELECT reason FROM tidemark.epoch ORDER BY number")]


def restart(feed):
    """End the driver's hold, and let another one take over."""
    feed.ledger.release()
    return BatchLedger(feed.conn, feed.pipeline)


class TestCurrentEpoch:
    def test_the_next_driver_keeps_the_epoch_and_has_a_token_of_its_own(self, feed):
        before = feed.ledger.begin(0)
        again = restart(feed)
        again.acquire()

        after = again.begin(0)

        assert after.epoch == before.epoch != ""
        assert after.token != before.token

    def test_two_pipelines_have_one_epoch(self, new_feed, fresh):
        assert new_feed(fresh(VIEWS)).ledger.epoch == new_feed(fresh(VIEWS)).ledger.epoch

    @pytest.mark.parametrize("vacuum", ["VACUUM FREEZE", "VACUUM FULL", "VACUUM (FULL, FREEZE)"])
    def test_a_vacuum_is_not_taken_for_a_restore(self, feed, conn, vacuum):
        epoch = feed.ledger.epoch
        conn.execute(f"{vacuum} tidemark.epoch")

        again = restart(feed)
        again.acquire()

        assert again.epoch == epoch

    def test_an_epoch_that_was_made_in_a_savepoint_is_not_taken_for_a_restore(self, feed, conn):
        with conn.transaction(), conn.transaction():
            epoch = new_epoch(conn, "rewind", feed.pipeline)

        again = restart(feed)
        again.acquire()

        assert again.epoch == epoch

    def test_an_operation_that_goes_back_ends_the_epoch_of_its_pipeline_alone(self, feed, new_feed, fresh, conn):
        other = new_feed(fresh(VIEWS))
        epoch = new_epoch(conn, "rewind", feed.pipeline)

        for each in (feed, other):
            each.ledger = restart(each)
            each.ledger.acquire()

        assert feed.ledger.epoch == epoch != other.ledger.epoch

    def test_a_batch_is_recorded_under_its_epoch_and_token(self, feed, conn):
        batch = feed.run(views(("/home", 1)))

        recorded = conn.execute("SELECT epoch, token FROM tidemark.batch WHERE pipeline = %s", [feed.pipeline])

        assert recorded.fetchall() == [(batch.epoch, batch.token)]

    def test_a_role_that_may_not_ask_for_the_server_still_gets_an_epoch(self, feed, conn):
        conn.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public")
        conn.execute("CREATE ROLE app")
        conn.execute("GRANT ALL ON SCHEMA tidemark TO app")
        conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA tidemark TO app")
        try:
            with conn.transaction():
                conn.execute("SET LOCAL ROLE app")
                again = restart(feed)
                again.acquire()
        finally:
            conn.execute("DROP OWNED BY app")
            conn.execute("DROP ROLE app")
            conn.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO public")

        assert again.epoch


class TestRestore:
    @pytest.mark.parametrize(
        "options", [["--clean", "--if-exists"], ["--clean", "--if-exists", "--single-transaction"]], ids=" ".join
    )
    def test_a_restore_over_the_same_database_makes_a_new_epoch(self, feed, dump, conn, options):
        feed.run(views(("/home", 1)))
        dump.take()
        before = feed.ledger.epoch
        feed.ledger.release()

        dump.restore(*options)

        restored = BatchLedger(conn, feed.pipeline)
        restored.acquire()
        assert restored.epoch != before
        assert reasons(conn)[-1].endswith(COPIED)
        assert "the ledger's tables were created again" in reasons(conn)[-1]

    def test_a_restore_of_rows_alone_makes_a_new_epoch(self, feed, dump, conn):
        feed.run(views(("/home", 1)))
        dump.take()
        before = feed.ledger.epoch
        feed.ledger.release()
        conn.execute("TRUNCATE tidemark.pipeline, tidemark.epoch, tidemark.schema_version CASCADE")

        dump.restore("--data-only", "--disable-triggers", "--schema=tidemark")

        restored = BatchLedger(conn, feed.pipeline)
        restored.acquire()
        assert restored.epoch != before
        assert reasons(conn)[-1] == COPIED

    def test_pipelines_without_a_driver_get_the_new_epoch_too(self, feed, new_feed, fresh, dump, conn):
        waiting = new_feed(fresh(VIEWS))
        dump.take()
        feed.ledger.release()
        waiting.ledger.release()
        dump.restore("--clean", "--if-exists")

        restored = BatchLedger(conn, feed.pipeline)
        restored.acquire()

        shown = conn.execute("SELECT epoch FROM tidemark.pipeline WHERE name = %s", [waiting.pipeline]).fetchone()
        assert shown == (restored.epoch,)

    def test_one_restore_is_one_new_epoch(self, feed, dump, conn):
        dump.take()
        feed.ledger.release()
        dump.restore("--clean", "--if-exists")
        ledger = BatchLedger(conn, feed.pipeline)
        ledger.acquire()
        first = ledger.epoch
        ledger.release()

        ledger.acquire()

        assert ledger.epoch == first

    def test_a_driver_whose_numbers_the_restored_ledger_gives_out_again_cannot_write(self, feed, dump, conn, connect):
        dump.take()
        feed.ledger.release()
        zombie = Feed(connect(), feed.specs, pipeline=feed.pipeline)
        left_behind = zombie.begin(0)
        zombie.conn.execute("SELECT pg_advisory_unlock_all()")  # as if its session had ended
        dump.restore("--clean", "--if-exists")
        new = Feed(conn, feed.specs, pipeline=feed.pipeline)
        batch = new.begin(0)
        numbers = [(each.fence, each.txid, each.attempt) for each in (left_behind, batch)]
        (spec,) = new.specs

        with pytest.raises(FencedError):
            zombie.apply(left_behind, spec, views(("/home", 49)))
        with pytest.raises(FencedError, match=r"holds fence 2 and the ledger has fence 2 of another acquisition"):
            zombie.ledger.begin(0)
        with pytest.raises(FencedError), zombie.conn.transaction():
            zombie.ledger.lock_committed()
        with pytest.raises(FencedError):
            zombie.ledger.commit(left_behind)
        new.apply(batch, spec, views(("/home", 3)))
        new.ledger.commit(batch)
        record_metrics(conn, left_behind, {"input_rows": 49})

        assert numbers[0] == numbers[1]
        assert new.read(spec, ("/home",)) == [{"n": 3}]
        assert conn.execute("SELECT metrics FROM tidemark.batch WHERE pipeline = %s", [feed.pipeline]).fetchall() == [
            ({},)
        ]


def test_a_promoted_standby_that_lacks_the_last_batches_makes_a_new_epoch():
    home = Path(tempfile.mkdtemp(prefix="tidemark-promotion-"))
    home.chmod(0o755)
    server = EmbeddedPostgres(home, durable=False)
    try:
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            Catalog(conn).install()
            feed = Feed(conn, [VIEWS], pipeline="views")
            feed.run(views(("/home", 1)))
            before = feed.ledger.epoch
        stop(server)
        data, standby = home / "postgres", home / "standby"
        shutil.copytree(data, standby)
        own_as(data, standby)
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            zombie = Feed(conn, [VIEWS], pipeline="views")
            left_behind = zombie.begin(1)
        stop(server)
        shutil.rmtree(data)
        standby.rename(data)
        (data / "standby.signal").touch()

        server.start()

        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("SELECT pg_promote()")
            feed = Feed(conn, [VIEWS], pipeline="views")
            batch = feed.begin(1)
            assert (batch.fence, batch.txid, batch.attempt) == (
                left_behind.fence,
                left_behind.txid,
                left_behind.attempt,
            )
            assert feed.ledger.epoch != before
            assert reasons(conn)[-1] == (
                "the server was promoted or recovered: its timeline is 00000002 and was 00000001"
            )
            with pytest.raises(FencedError), conn.transaction():
                lock_fence(conn, left_behind)
    finally:
        if server.process() is not None:
            stop(server)
        shutil.rmtree(home, ignore_errors=True)


def stop(server: EmbeddedPostgres) -> None:
    process = server.process()
    assert process is not None
    process.send_signal(server.stop_signal)
    process.wait(60)


def own_as(model: Path, copy: Path) -> None:
    """Give every file of the copied data directory to the owner of the model."""
    owner = model.stat()
    for path in [copy, *copy.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
