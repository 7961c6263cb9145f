import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.recovery_page import message_of
from tests.state_backends.feed import Feed, views
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres, server_programs
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.errors import FencedError
from tidegauge.state_backends.ledger.batch import lock_fence, record_metrics
from tidegauge.state_backends.ledger.epochs import COPIED, LastBatch, new_epoch

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
SCHEMAS = ("tidegauge", "tidegauge_state", "tidegauge_live", "tidegauge_changelog")


@pytest.fixture(scope="module")
def installed_url(own_url):
    """A database of its own: it is dumped, emptied and restored."""
    return own_url


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def dump(installed_url, conn, tmp_path):
    """Dumps the module's database, and restores it over itself."""
    if conn.info.server_version // 10_000 != 18:
        pytest.skip("pg_restore of the wheel is of another version than the server")
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
    return [reason for (reason,) in conn.execute("SELECT reason FROM tidegauge.epoch ORDER BY number")]


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
        conn.execute(f"{vacuum} tidegauge.epoch")

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

        recorded = conn.execute("SELECT epoch, token FROM tidegauge.batch WHERE pipeline = %s", [feed.pipeline])

        assert recorded.fetchall() == [(batch.epoch, batch.token)]

    def test_a_role_that_may_not_ask_for_the_server_still_gets_an_epoch(self, feed, conn):
        conn.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public")
        conn.execute("CREATE ROLE app")
        conn.execute("GRANT ALL ON SCHEMA tidegauge TO app")
        conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA tidegauge TO app")
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
        conn.execute("TRUNCATE tidegauge.pipeline, tidegauge.epoch, tidegauge.schema_version CASCADE")

        dump.restore("--data-only", "--disable-triggers", "--schema=tidegauge")

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

        shown = conn.execute("SELECT epoch FROM tidegauge.pipeline WHERE name = %s", [waiting.pipeline]).fetchone()
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
        assert conn.execute("SELECT metrics FROM tidegauge.batch WHERE pipeline = %s", [feed.pipeline]).fetchall() == [
            ({},)
        ]

    @pytest.mark.parametrize("rows_alone", [False, True])
    def test_a_driver_that_runs_meanwhile_cannot_go_on_with_the_numbers_that_it_holds(
        self, feed, dump, conn, connect, rows_alone
    ):
        feed.run(views(("/home", 1)))
        feed.ledger.release()
        running = Feed(connect(), feed.specs, pipeline=feed.pipeline)
        batch = running.begin(1)
        (spec,) = running.specs
        dump.take()
        running.apply(batch, spec, views(("/home", 49)))

        if rows_alone:
            conn.execute("TRUNCATE tidegauge.pipeline, tidegauge.epoch, tidegauge.schema_version CASCADE")
            dump.restore("--data-only", "--disable-triggers", "--schema=tidegauge")
        else:
            dump.restore("--clean", "--if-exists")

        for act in (
            lambda: running.apply(batch, spec, views(("/cart", 1))),
            lambda: running.ledger.commit(batch),
            lambda: running.ledger.begin(1),
            lambda: running.ledger.bind("checkpoint"),
        ):
            with pytest.raises(FencedError):
                act()
        with pytest.raises(FencedError) as caught:
            running.begin(1)
        assert str(caught.value) == (
            f"pipeline {feed.pipeline!r}: the ledger was restored or copied while this driver ran, and may have gone "
            "back; stop every driver, then start one again"
        )
        assert re.search(message_of("The database was restored, or a standby promoted", 3), str(caught.value))


class TestCheckpoint:
    """What a checkpoint has seen, where the ledger alone would not notice that it went back."""

    def go_back(self, conn, pipeline, **columns):
        values = ", ".join(f"{name} = %({name})s" for name in columns)
        conn.execute(f"UPDATE tidegauge.pipeline SET {values} WHERE name = %(name)s", {**columns, "name": pipeline})

    def seen(self, batch):
        return LastBatch(batch.epoch, batch.txid, batch.attempt)

    def acquired(self, feed, last):
        again = restart(feed)
        again.acquire(last=last)
        return again.epoch

    def test_a_ledger_that_has_what_it_has_seen_keeps_its_epoch(self, feed):
        batch = feed.run(views(("/home", 1)))
        feed.run(views(("/home", 1)))

        assert self.acquired(feed, self.seen(batch)) == batch.epoch

    def test_a_ledger_without_the_batch_gets_a_new_epoch(self, feed, conn):
        feed.run(views(("/home", 1)))
        batch = feed.run(views(("/home", 1)))
        self.go_back(conn, feed.pipeline, committed_txid=1, committed_batch_id=0)

        assert self.acquired(feed, self.seen(batch)) != batch.epoch
        assert reasons(conn)[-1] == (
            f"the checkpoint has seen batch 2 of epoch {batch.epoch!r} committed, and the ledger has not: it is an "
            "older copy"
        )

    def test_a_ledger_in_which_the_very_attempt_is_open_gets_one_too(self, feed, conn):
        batch = feed.begin(0)
        feed.ledger.commit(batch)
        self.go_back(conn, feed.pipeline, committed_txid=0, committed_batch_id=-1, open_txid=1, open_attempt=1)

        assert self.acquired(feed, self.seen(batch)) != batch.epoch

    def test_a_ledger_with_an_earlier_attempt_gets_one_too(self, feed, conn):
        feed.run(views(("/home", 1)))
        batch = feed.run(views(("/home", 2)), batch_id=0)
        self.go_back(conn, feed.pipeline, committed_attempt=1)

        assert (batch.txid, batch.attempt) == (1, 2)
        assert self.acquired(feed, self.seen(batch)) != batch.epoch

    def test_a_commit_that_was_reverted_is_no_step_back(self, feed):
        batch = feed.run(views(("/home", 1)))
        feed.begin(0)

        assert self.acquired(feed, self.seen(batch)) == batch.epoch

    def test_an_epoch_that_the_ledger_never_had_makes_a_new_one(self, feed):
        epoch = feed.ledger.epoch

        assert self.acquired(feed, LastBatch("of another copy", 1, 1)) != epoch

    def test_an_earlier_epoch_of_the_ledger_is_none(self, feed, conn):
        batch = feed.run(views(("/home", 1)))
        epoch = new_epoch(conn, "rewind", feed.pipeline)
        self.go_back(conn, feed.pipeline, committed_txid=0)

        assert self.acquired(feed, self.seen(batch)) == epoch

    def test_a_pipeline_that_was_deleted_and_registered_again_has_a_new_epoch(self, feed, conn):
        batch = feed.run(views(("/home", 1)))
        feed.ledger.release()
        conn.execute("DELETE FROM tidegauge.pipeline WHERE name = %s", [feed.pipeline])
        Catalog(conn).register_pipeline(feed.pipeline, spout="opaque")

        assert self.acquired(feed, self.seen(batch)) != batch.epoch


@contextmanager
def server_of_its_own():
    """A server whose data directory the test may copy, and put back."""
    home = Path(tempfile.mkdtemp(prefix="tidegauge-copied-"))
    home.chmod(0o755)
    server = EmbeddedPostgres(home, durable=False)
    try:
        server.start()
        yield server, home / "postgres"
    finally:
        if server.process() is not None:
            stop(server)
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long
def test_a_cold_copy_of_the_data_directory_is_told_by_the_checkpoint_alone():
    with server_of_its_own() as (server, data):
        with psycopg.connect(server.url(), autocommit=True) as conn:
            Catalog(conn).install()
            feed = Feed(conn, [VIEWS], pipeline="views")
            feed.run(views(("/home", 1)))
        stop(server)
        copy = copied(data)
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            last = Feed(conn, [VIEWS], pipeline="views").run(views(("/home", 1)))
        stop(server)
        shutil.rmtree(data)
        copy.rename(data)
        server.start()

        with psycopg.connect(server.url(), autocommit=True) as conn:
            ledger = BatchLedger(conn, "views")
            ledger.acquire()
            unnoticed = ledger.epoch
            ledger.acquire(last=LastBatch(last.epoch, last.txid, last.attempt))

            assert unnoticed == last.epoch != ledger.epoch


@pytest.mark.long
def test_a_promoted_standby_that_lacks_the_last_batches_makes_a_new_epoch():
    with server_of_its_own() as (server, data):
        with psycopg.connect(server.url(), autocommit=True) as conn:
            Catalog(conn).install()
            feed = Feed(conn, [VIEWS], pipeline="views")
            feed.run(views(("/home", 1)))
            before = feed.ledger.epoch
        stop(server)
        standby = copied(data)
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


def stop(server: EmbeddedPostgres) -> None:
    process = server.process()
    assert process is not None
    process.send_signal(server.stop_signal)
    process.wait(60)


def copied(data: Path) -> Path:
    """Copy the data directory of a server that does not run, with the owner of its files."""
    copy, owner = data.with_name("copy"), data.stat()
    shutil.copytree(data, copy)
    for path in [copy, *copy.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
    return copy
