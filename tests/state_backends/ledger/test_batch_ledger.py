import json
import os
import re
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.pq import TransactionStatus

from tests.recovery_page import message_of
from tests.state_backends.feed import let_time_pass
from tests.state_backends.waiting import wait_until_blocked, wait_until_gone
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.errors import (
    BatchOrderError,
    CheckpointMismatchError,
    FencedError,
    InputChangedError,
    PipelineHeldError,
    SourceReplacedError,
)
from tidegauge.state_backends.ledger.batch import lock_fence, record_metrics
from tidegauge.state_backends.ledger.batch_ledger import CHANNEL
from tidegauge.state_backends.ledger.source_input import SourceInput

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
SOON = 10  # seconds; enough for anything that is not stuck


@pytest.fixture
def name(fresh):
    return fresh(VIEWS).name


@pytest.fixture
def ledger(conn, name):
    """The ledger of a new pipeline, acquired and bound."""
    Catalog(conn).register_pipeline(name, spout="opaque")
    ledger = BatchLedger(conn, name)
    ledger.acquire()
    ledger.bind("checkpoint")
    return ledger


def row(conn, name):
    columns = "committed_txid, committed_attempt, committed_batch_id, open_txid, open_attempt, open_batch_id"
    return conn.execute(f"SELECT {columns} FROM tidegauge.pipeline WHERE name = %s", [name]).fetchone()


def quality(conn, name):
    return conn.execute(
        "SELECT late, dropped, tasks, watermark FROM tidegauge.batch WHERE pipeline = %s", [name]
    ).fetchall()


def metrics(conn, name):
    return conn.execute("SELECT metrics FROM tidegauge.batch WHERE pipeline = %s", [name]).fetchall()


def totals(conn, name):
    return conn.execute(
        "SELECT total_dead_letters, total_late, total_dropped FROM tidegauge.batch WHERE pipeline = %s "
        "ORDER BY txid DESC LIMIT 1",
        [name],
    ).fetchone()


def commit_batches(ledger, count):
    for batch_id in range(count):
        ledger.commit(ledger.begin(batch_id))


def files(*names):
    return [SourceInput("files", dict.fromkeys(names, 1), listed=True)]


def counted_files(conn, name):
    rows = conn.execute("SELECT txid, files FROM tidegauge.input_file WHERE pipeline = %s ORDER BY txid", [name])
    return {txid: sorted(names) for txid, names in rows}


def taken_over(name, batch):
    return (
        f"pipeline {name!r}: attempt {batch.attempt} at batch {batch.txid} under fence {batch.fence} is no longer the "
        "open one; another driver or attempt has taken over, so stop this one"
    )


class TestBatches:
    def test_txids_count_from_one_and_rise_by_one(self, ledger, conn, name):
        batches = []
        for batch_id in range(3):
            batches.append(ledger.begin(batch_id))
            ledger.commit(batches[-1])

        assert [(batch.txid, batch.attempt, batch.is_retry) for batch in batches] == [(n, 1, False) for n in (1, 2, 3)]
        assert row(conn, name) == (3, 1, 2, None, None, None)

    def test_a_batch_is_open_until_it_is_committed(self, ledger, conn, name):
        batch = ledger.begin(0)
        assert row(conn, name) == (0, 0, -1, 1, 1, 0)

        ledger.commit(batch)

        assert row(conn, name) == (1, 1, 0, None, None, None)

    def test_a_batch_that_comes_again_while_open_is_a_retry(self, ledger):
        first = ledger.begin(0)
        second = ledger.begin(0)
        third = ledger.begin(0)

        assert [(batch.txid, batch.attempt, batch.is_retry) for batch in (first, second, third)] == [
            (1, 1, False),
            (1, 2, True),
            (1, 3, True),
        ]

    def test_all_attempts_at_an_open_batch_have_one_time(self, ledger):
        assert len({ledger.begin(0).batch_time for _ in range(3)}) == 1

    def test_a_transactional_spout_skips_a_batch_that_is_committed(self, ledger, conn, name):
        commit_batches(ledger, 2)
        before = row(conn, name)

        assert ledger.begin(1, spout="transactional") is None
        assert row(conn, name) == before
        assert ledger.begin(2, spout="transactional").txid == 3

    def test_a_transactional_spout_skips_it_even_when_the_next_has_begun(self, ledger):
        commit_batches(ledger, 2)
        ledger.begin(2)

        assert ledger.begin(1, spout="transactional") is None
        assert ledger.begin(2, spout="transactional").attempt == 2

    @pytest.mark.parametrize("spout", ["opaque", "non_transactional"])
    def test_any_other_spout_reverts_the_commit(self, ledger, conn, name, spout):
        commit_batches(ledger, 3)

        batch = ledger.begin(2, spout=spout)

        assert (batch.txid, batch.attempt, batch.is_retry) == (3, 2, True)
        assert row(conn, name) == (2, 1, 1, 3, 2, 2)
        ledger.commit(batch)
        assert row(conn, name) == (3, 2, 2, None, None, None)
        assert ledger.begin(2).attempt == 3

    def test_a_reverted_commit_goes_back_to_the_time_of_the_batch_before(self, ledger, conn, name):
        first = ledger.begin(0)
        ledger.commit(first)
        ledger.commit(ledger.begin(1))

        ledger.begin(1)

        time = conn.execute("SELECT committed_time FROM tidegauge.pipeline WHERE name = %s", [name]).fetchone()
        assert time == (first.batch_time,)

    def test_a_committed_batch_that_comes_again_keeps_its_time_and_ttls(self, conn, new_feed, fresh):
        feed = new_feed(fresh(replace(VIEWS, ttl=timedelta(hours=1))))
        feed.run([])
        (first,) = feed.specs
        conn.execute("UPDATE tidegauge.state SET ttl = '2 hours' WHERE name = %s", [first.name])
        let_time_pass(conn, feed.specs, feed.pipeline, timedelta(days=1))
        time = conn.execute("SELECT committed_time FROM tidegauge.pipeline WHERE name = %s", [feed.pipeline]).fetchone()

        for again in [feed.ledger.begin(0), feed.ledger.begin(0)]:
            assert (again.batch_time,) == time
            assert again.ttls == {first.name: timedelta(hours=1)}

    def test_a_reverted_batch_may_fail_and_come_again(self, ledger, conn, name):
        commit_batches(ledger, 2)
        ledger.begin(1)

        again = ledger.begin(1)

        assert (again.txid, again.attempt) == (2, 3)
        assert row(conn, name)[:3] == (1, 1, 0)

    def test_the_first_batch_can_be_reverted(self, ledger, conn, name):
        commit_batches(ledger, 1)

        batch = ledger.begin(0)

        assert (batch.txid, batch.attempt) == (1, 2)
        assert row(conn, name)[:3] == (0, 0, -1)

    def test_a_batch_cannot_be_reverted_once_the_next_has_begun(self, ledger, conn, name):
        commit_batches(ledger, 2)
        ledger.begin(2)
        before = row(conn, name)

        with pytest.raises(BatchOrderError, match=r"brings batch 1, the ledger expects 2: .* behind by 1"):
            ledger.begin(1)

        assert row(conn, name) == before

    def test_after_one_reverted_batch_no_second_one_is_reverted(self, ledger):
        commit_batches(ledger, 3)
        ledger.begin(2)

        with pytest.raises(BatchOrderError):
            ledger.begin(1)

    def test_a_committed_batch_with_the_same_input_is_skipped_for_a_transactional_spout(self, ledger):
        ledger.commit(ledger.begin(0, held=files("a", "b")))

        assert ledger.begin(0, spout="transactional", held=files("b", "a")) is None

    def test_a_committed_batch_with_the_same_input_is_reverted_for_an_opaque_spout(self, ledger):
        """The same offsets may bring other tuples, which is what makes the spout opaque."""
        ledger.commit(ledger.begin(0, held=files("a")))

        batch = ledger.begin(0, spout="opaque", held=files("a"))

        assert (batch.txid, batch.attempt, batch.is_retry) == (1, 2, True)

    def test_a_committed_batch_with_other_input_is_reverted_whatever_the_spout(self, ledger, conn, name):
        """Skipped by its number, the additional files would never be counted."""
        ledger.commit(ledger.begin(0, held=files("a")))
        ledger.commit(ledger.begin(1, held=files("b")))

        batch = ledger.begin(1, spout="transactional", held=files("b", "c"))

        assert (batch.txid, batch.attempt, batch.is_retry) == (2, 2, True)
        assert counted_files(conn, name) == {1: ["a"], 2: ["b", "c"]}
        ledger.commit(batch)
        assert ledger.begin(1, spout="transactional", held=files("b", "c")) is None

    def test_a_batch_that_is_reverted_for_its_input_is_a_warning(self, ledger, caplog):
        ledger.commit(ledger.begin(0, held=files("a")))

        ledger.begin(0, held=files("a", "b", "c"))

        assert re.search(message_of("A batch comes again with other input", 1), caplog.text)

    def test_other_input_is_refused_where_a_state_cannot_be_reverted(self, ledger, conn, name):
        ledger.commit(ledger.begin(0, held=files("a", "b")))
        before = row(conn, name)

        with pytest.raises(InputChangedError) as caught:
            ledger.begin(0, spout="transactional", held=files("b", "c"), irreversible=["state totals"])

        assert str(caught.value) == (
            f"pipeline {name!r}: batch 1 comes again with other input (2 files then, 2 now, missing: 'a', additional: "
            "'c'), and cannot be reverted: 'state totals' cannot go back; run `tidegauge pipelines restore-checkpoint "
            f"{name}`, which rebuilds the checkpoint from the ledger, or run with --reprocess to count from the "
            "start of the input"
        )
        assert re.search(message_of("A batch comes again with other input", 2), str(caught.value))
        assert row(conn, name) == before

    def test_other_input_is_refused_once_the_next_batch_has_begun(self, ledger):
        ledger.commit(ledger.begin(0, held=files("a")))
        ledger.begin(1, held=files("b"))

        with pytest.raises(InputChangedError, match=r"additional: 'b'\), and cannot be reverted: batch 2 has begun"):
            ledger.begin(0, spout="transactional", held=files("a", "b"))

    def test_the_same_input_is_skipped_once_the_next_batch_has_begun_whatever_the_spout(self, ledger):
        ledger.commit(ledger.begin(0, held=files("a")))
        ledger.begin(1, held=files("b"))

        assert ledger.begin(0, spout="opaque", held=files("a")) is None
        assert ledger.begin(1, spout="opaque", held=files("b")).attempt == 2

    def test_an_open_batch_may_come_again_with_other_input_if_it_can_be_reverted(self, ledger, conn, name):
        ledger.begin(0, held=files("a", "b"))

        with pytest.raises(InputChangedError, match="missing: 'a'"):
            ledger.begin(0, held=files("b"), irreversible=["state totals"])
        assert ledger.begin(0, held=files("a", "b"), irreversible=["state totals"]).attempt == 2
        assert ledger.begin(0, held=files("b")).attempt == 3
        assert counted_files(conn, name) == {1: ["b"]}

    def test_an_open_batch_of_another_checkpoint_is_a_retry_with_other_input(self, ledger):
        commit_batches(ledger, 1)
        ledger.begin(1, held=files("a"))
        ledger.bind("another", rebind=True)

        with pytest.raises(InputChangedError, match="missing: 'a', additional: 'b'"):
            ledger.begin(0, held=files("b"), irreversible=["state totals"])
        assert ledger.begin(0, held=files("b")).is_retry

    def test_a_source_that_was_replaced_is_refused_until_it_is_accepted(self, ledger, name):
        ledger.commit(ledger.begin(0, sources=[{"orders": "id-1"}]))

        with pytest.raises(SourceReplacedError) as caught:
            ledger.begin(1, sources=[{"orders": "id-2", "returns": "id-3"}])
        with pytest.raises(SourceReplacedError):
            ledger.bind("checkpoint", sources=[{"orders": "id-2"}])
        ledger.bind("checkpoint", sources=[{"orders": "id-2"}], rebind=True)

        assert str(caught.value) == (
            f"pipeline {name!r}: its source 'orders' is 'id-2' now, and its states were fed from 'id-1' up to batch 1: "
            "it was deleted and made again, or moved, and input would be left out or counted twice; run with "
            "--reprocess to rebuild the states from what it holds now, or with --rebind if it continues exactly where "
            "they stopped (and with another --checkpoint, if it is to be counted from its start)"
        )
        assert re.search(message_of("A topic, folder or database was replaced"), str(caught.value))
        assert ledger.begin(1, sources=[{"orders": "id-2"}]).txid == 2

    def test_the_input_of_the_first_batch_is_kept_apart(self, ledger, conn, name):
        ledger.begin(0, offsets=[1], held=files("x"))
        ledger.commit(ledger.begin(0, offsets=[2], held=files("a")))
        ledger.commit(ledger.begin(1, offsets=[3], held=files("b")))

        kept = conn.execute("SELECT txid, offsets, input FROM tidegauge.first_input WHERE pipeline = %s", [name])

        assert kept.fetchall() == [(1, [2], [files("a")[0].fingerprint()])]

    def test_the_input_of_the_first_batch_since_a_reprocess_takes_its_place(self, ledger, conn, name):
        ledger.commit(ledger.begin(0, offsets=[1], held=files("a")))
        conn.execute("UPDATE tidegauge.pipeline SET fed_after = 1 WHERE name = %s", [name])  # as the swap does
        ledger.commit(ledger.begin(1, offsets=[2], held=files("b")))
        ledger.commit(ledger.begin(2, offsets=[3], held=files("c")))

        kept = conn.execute("SELECT txid, offsets, input FROM tidegauge.first_input WHERE pipeline = %s", [name])

        assert kept.fetchall() == [(2, [2], [files("b")[0].fingerprint()])]

    def test_before_the_first_commit_a_source_may_be_replaced(self, ledger):
        ledger.begin(0, sources=[{"orders": "id-1"}])

        assert ledger.begin(0, sources=[{"orders": "id-2"}]).attempt == 2

    def test_an_older_batch_is_refused_with_what_to_do(self, ledger, name):
        commit_batches(ledger, 4)

        with pytest.raises(BatchOrderError) as caught:
            ledger.begin(1)

        assert str(caught.value) == (
            f"pipeline {name!r}: the checkpoint brings batch 1, the ledger expects 4: the checkpoint is behind by 3; "
            f"run `tidegauge pipelines restore-checkpoint {name}`, which brings it up to the ledger, or `tidegauge "
            f"pipelines rewind {name} --to-checkpoint`, which takes the states back to it"
        )

    def test_a_later_batch_is_refused_with_the_missing_ones(self, ledger, name):
        commit_batches(ledger, 1)

        with pytest.raises(BatchOrderError) as caught:
            ledger.begin(4)

        assert str(caught.value) == (
            f"pipeline {name!r}: the checkpoint brings batch 4, the ledger expects 1: batches 1 to 3 never reached the "
            "states, as after a restore of the database, or if an application did not call its sink with them; run "
            f"`tidegauge pipelines restore-checkpoint {name}`, which takes the checkpoint back to batch 0, so that "
            "later input is read again"
        )

    def test_a_refused_batch_changes_nothing(self, ledger, conn, name):
        commit_batches(ledger, 2)
        before = row(conn, name)

        for batch_id in (0, 7, -1):
            with pytest.raises(BatchOrderError):
                ledger.begin(batch_id)

        assert row(conn, name) == before

    def test_batch_times_never_decrease(self, ledger, conn, name):
        commit_batches(ledger, 1)
        conn.execute(
            "UPDATE tidegauge.pipeline SET committed_time = committed_time + interval '1 minute' WHERE name = %s",
            [name],
        )
        (committed,) = conn.execute("SELECT committed_time FROM tidegauge.pipeline WHERE name = %s", [name]).fetchone()

        assert ledger.begin(1).batch_time == committed

    def test_the_record_of_a_batch_has_its_figures(self, ledger, conn, name):
        ledger.begin(0, offsets={"topic": [1]})
        batch = ledger.begin(0, offsets={"topic": [2]})
        ledger.commit(batch, rows_in=5, keys_written={"views": 3}, dead_letters=1)

        record = conn.execute(
            "SELECT txid, attempt, batch_id, fence, batch_time, offsets, rows_in, keys_written, dead_letters, "
            "committed_at >= started_at FROM tidegauge.batch WHERE pipeline = %s",
            [name],
        ).fetchall()

        assert record == [(1, 2, 0, 1, batch.batch_time, {"topic": [2]}, 5, {"views": 3}, 1, True)]

    def test_the_record_of_a_reverted_batch_is_open_again(self, ledger, conn, name):
        ledger.commit(ledger.begin(0), rows_in=5, keys_written={"views": 3}, dead_letters=1)

        ledger.begin(0)

        assert conn.execute(
            "SELECT attempt, committed_at, rows_in, keys_written, dead_letters FROM tidegauge.batch "
            "WHERE pipeline = %s",
            [name],
        ).fetchall() == [(2, None, None, None, 0)]

    def test_the_record_has_late_events_the_spread_over_tasks_and_the_watermark(self, ledger, conn, name):
        watermark = datetime(2013, 1, 1, 10, tzinfo=UTC)
        spread = {"views": {"tasks": 4, "largest": 9}}
        ledger.commit(ledger.begin(0), late=5, dropped=2, tasks=spread, watermark=watermark)

        assert quality(conn, name) == [(5, 2, spread, watermark)]

    def test_a_retry_begins_without_the_figures_of_the_attempt_before(self, ledger, conn, name):
        batch = ledger.begin(0)
        ledger.commit(batch, late=5, dropped=2, tasks={"views": {"tasks": 1, "largest": 1}}, watermark=batch.batch_time)
        record_metrics(conn, batch, {"input_rows": 5})

        ledger.begin(0)

        assert quality(conn, name) == [(0, 0, None, None)]
        assert metrics(conn, name) == [({},)]

    def test_totals_rise_with_each_batch_and_a_reverted_batch_counts_once(self, ledger, conn, name):
        ledger.commit(ledger.begin(0), dead_letters=1, late=2, dropped=1)
        ledger.commit(ledger.begin(1), dead_letters=10, late=20, dropped=10)
        ledger.commit(ledger.begin(1), dead_letters=3, late=5, dropped=4)

        assert totals(conn, name) == (4, 7, 5)

    def test_totals_outlive_the_records_they_come_from(self, ledger, conn, name):
        for batch_id in range(3):
            ledger.commit(ledger.begin(batch_id), dead_letters=1, late=1)
        conn.execute("DELETE FROM tidegauge.batch WHERE pipeline = %s AND txid < 3", [name])

        ledger.commit(ledger.begin(3), dead_letters=1, late=1)

        assert totals(conn, name) == (4, 4, 0)

    def test_totals_of_a_ledger_without_any_start_from_the_stored_dead_letters(self, ledger, conn, name):
        for batch_id in range(2):
            batch = ledger.begin(batch_id)
            write_dead_letters(conn, batch, [DeadLetter("a.txt", "{", "not JSON")])
            ledger.commit(batch, dead_letters=1)
        conn.execute(
            "UPDATE tidegauge.batch SET total_dead_letters = NULL, total_late = NULL, total_dropped = NULL "
            "WHERE pipeline = %s",
            [name],
        )

        ledger.commit(ledger.begin(2), dead_letters=5, late=1)

        assert totals(conn, name) == (7, 1, 0)

    def test_metrics_of_an_attempt_that_was_replaced_are_not_kept(self, ledger, conn, name):
        first = ledger.begin(0)
        record_metrics(conn, first, {"input_rows": 1})
        ledger.commit(first)
        second = ledger.begin(0)
        ledger.commit(second)

        record_metrics(conn, first, {"input_rows": 2})
        none = metrics(conn, name)
        record_metrics(conn, second, {"input_rows": 3})

        assert none == [({},)]
        assert metrics(conn, name) == [({"input_rows": 3},)]

    def test_times_are_kept_as_their_age_at_the_commit(self, ledger, conn, name):
        batch = ledger.begin(0)
        ledger.commit(batch)
        [(at,)] = conn.execute("SELECT committed_at FROM tidegauge.batch WHERE pipeline = %s", [name]).fetchall()

        record_metrics(conn, batch, {"rows": 1}, {"old": at - timedelta(seconds=90.5), "new": at + timedelta(hours=1)})

        assert metrics(conn, name) == [({"rows": 1, "old": 90.5, "new": 0},)]

    def test_a_commit_notifies_listeners_once_it_is_visible(self, ledger, connect, name):
        listener = connect()
        listener.execute(f"LISTEN {CHANNEL}")
        batch = ledger.begin(0)
        assert list(listener.notifies(timeout=0)) == []

        ledger.commit(batch)

        (notice,) = listener.notifies(timeout=SOON, stop_after=1)
        assert json.loads(notice.payload) == {"pipeline": name, "txid": 1}
        assert row(listener, name)[0] == 1

    def test_a_batch_is_committed_once(self, ledger, conn, name):
        batch = ledger.begin(0)
        ledger.commit(batch)

        with pytest.raises(FencedError) as caught:
            ledger.commit(batch)

        assert str(caught.value) == taken_over(name, batch)


class TestFence:
    def test_the_open_attempt_may_write(self, ledger, conn):
        batch = ledger.begin(0)

        with conn.transaction():
            lock_fence(conn, batch)

            assert conn.info.transaction_status == TransactionStatus.INTRANS

    def test_an_earlier_attempt_may_not(self, ledger, conn, name):
        earlier = ledger.begin(0)
        ledger.begin(0)

        with pytest.raises(FencedError) as caught, conn.transaction():
            lock_fence(conn, earlier)

        assert str(caught.value) == taken_over(name, earlier)
        with pytest.raises(FencedError):
            ledger.commit(earlier)

    def test_nothing_may_write_once_the_batch_is_committed(self, ledger, conn):
        batch = ledger.begin(0)
        ledger.commit(batch)

        with pytest.raises(FencedError), conn.transaction():
            lock_fence(conn, batch)

    def test_a_reverted_commit_refuses_the_tasks_of_the_old_attempt(self, ledger, conn):
        batch = ledger.begin(0)
        ledger.commit(batch)
        ledger.begin(0)

        with pytest.raises(FencedError), conn.transaction():
            lock_fence(conn, batch)

    def test_a_driver_that_was_replaced_can_neither_begin_nor_commit_nor_bind_nor_write(
        self, ledger, conn, connect, name
    ):
        batch = ledger.begin(0)
        conn.execute("SELECT pg_advisory_unlock_all()")  # as if its session had ended
        new = BatchLedger(connect(), name)
        assert new.acquire() == 2

        with pytest.raises(FencedError) as caught:
            ledger.begin(0)
        with pytest.raises(FencedError):
            ledger.commit(batch)
        with pytest.raises(FencedError):
            ledger.bind("checkpoint")
        with pytest.raises(FencedError), conn.transaction():
            lock_fence(conn, batch)

        assert str(caught.value) == (
            f"pipeline {name!r}: this driver holds fence 1 and the ledger has fence 2; another driver has taken over, "
            "so stop this one"
        )
        assert new.begin(0).attempt == 2

    def test_a_driver_that_has_not_acquired_can_do_nothing(self, ledger, conn, name):
        with pytest.raises(FencedError, match="holds fence None and the ledger has fence 1"):
            BatchLedger(conn, name).begin(0)

    def test_a_second_live_driver_is_refused_by_name(self, ledger, connect, conn, name):
        (since,) = conn.execute("SELECT since FROM tidegauge.driver WHERE pipeline = %s", [name]).fetchone()

        with pytest.raises(PipelineHeldError) as caught:
            BatchLedger(connect(), name).acquire()

        assert str(caught.value) == (
            f"pipeline {name!r} is held by a live driver (host {socket.gethostname()!r}, pid {os.getpid()}, since "
            f"{since:%Y-%m-%d %H:%M:%S %Z}); stop it before starting another"
        )
        assert re.search(message_of("The driver's host vanished", 1), str(caught.value))
        assert ledger.begin(0).txid == 1  # and the first one continues

    def test_a_surrounding_transaction_keeps_its_lock_timeout(self, conn, name):
        with conn.transaction():
            conn.execute("SET LOCAL lock_timeout = '7s'")
            Catalog(conn).register_pipeline(name, spout="opaque")
            BatchLedger(conn, name).acquire()

            assert conn.execute("SHOW lock_timeout").fetchone() == ("7s",)

    def test_a_killed_driver_releases_the_pipeline(self, connect, name):
        killed, admin = connect(), connect()
        Catalog(admin).register_pipeline(name, spout="opaque")
        BatchLedger(killed, name).acquire()

        admin.execute("SELECT pg_terminate_backend(%s)", [killed.info.backend_pid])
        wait_until_gone(admin, killed.info.backend_pid)

        assert BatchLedger(admin, name).acquire() == 2

    def test_two_pipelines_whose_names_share_a_hash_have_a_driver_each(self, conn, connect):
        one, other = "orders_3299", "orders_19313"
        for name in (one, other):
            Catalog(conn).register_pipeline(name, spout="opaque")

        first = BatchLedger(conn, one)
        first.acquire()

        assert conn.execute("SELECT tidegauge.has_driver(%s)", [other]).fetchone() == (False,)
        BatchLedger(connect(), other).acquire()
        first.release()

    def test_a_released_pipeline_is_free_however_often_it_was_acquired(self, ledger, connect, name):
        ledger.acquire()
        ledger.release()

        assert BatchLedger(connect(), name).acquire() == 3

    def test_a_driver_that_has_released_the_pipeline_must_take_the_lock_again(self, ledger, connect, name):
        ledger.release()
        with pytest.raises(FencedError):
            ledger.begin(0)

        BatchLedger(connect(), name).acquire()

        with pytest.raises(PipelineHeldError):
            ledger.acquire()

    def test_a_pipeline_is_free_after_work_that_held_it_has_failed(self, ledger, connect, name):
        ledger.release()

        with pytest.raises(ZeroDivisionError), ledger.idle():
            raise ZeroDivisionError

        assert BatchLedger(connect(), name).acquire() == 2

    def test_a_pipeline_that_is_not_registered_is_not_held(self, conn, connect, fresh):
        name = fresh(VIEWS).name
        with pytest.raises(BatchOrderError) as caught:
            BatchLedger(conn, name).acquire()
        assert str(caught.value) == f"pipeline {name!r} is not registered; register its states first"

        Catalog(conn).register_pipeline(name, spout="opaque")
        assert BatchLedger(connect(), name).acquire() == 1

    @pytest.mark.parametrize("act", ["acquire", "commit"])
    def test_waits_for_a_task_that_is_writing(self, ledger, connect, name, act):
        batch, task, driver = ledger.begin(0), connect(), connect()
        done = threading.Event()

        def run():
            if act == "acquire":
                driver.execute("SELECT 1")
                BatchLedger(driver, name).acquire()
            else:
                BatchLedger(driver, name).commit(batch)
            done.set()

        if act == "acquire":
            ledger.release()
        thread = threading.Thread(target=run)
        with task.transaction():
            lock_fence(task, batch)
            thread.start()
            wait_until_blocked(task, driver)
            assert not done.is_set()
        thread.join(SOON)

        assert done.is_set()

    def test_a_task_that_waited_for_the_takeover_is_refused(self, ledger, connect, name):
        batch, task, driver = ledger.begin(0), connect(), connect()
        ledger.release()
        outcome = []

        def write():
            try:
                with task.transaction():
                    lock_fence(task, batch)
                outcome.append("wrote")
            except FencedError:
                outcome.append("refused")

        thread = threading.Thread(target=write)
        with driver.transaction():
            BatchLedger(driver, name).acquire()
            thread.start()
            wait_until_blocked(driver, task)
        thread.join(SOON)

        assert outcome == ["refused"]

    def test_a_driver_that_waited_for_the_takeover_begins_nothing(self, ledger, conn, connect, name):
        driver = connect()
        conn.execute("SELECT pg_advisory_unlock_all()")  # as if its session had ended
        outcome = []

        def begin():
            try:
                ledger.begin(0)
                outcome.append("began")
            except FencedError:
                outcome.append("refused")

        thread = threading.Thread(target=begin)
        with driver.transaction():
            BatchLedger(driver, name).acquire()
            thread.start()
            wait_until_blocked(driver, conn)
        thread.join(SOON)

        assert outcome == ["refused"]

    def test_the_committed_batch_stays_the_one_that_was_locked(self, ledger, conn, connect, name):
        batch, driver = ledger.begin(0), connect()
        thread = threading.Thread(target=lambda: BatchLedger(driver, name).commit(batch))

        with conn.transaction():
            locked = ledger.lock_committed()
            thread.start()
            wait_until_blocked(conn, driver)
            still = ledger.lock_committed()
        thread.join(SOON)

        assert (locked, still) == (0, 0)
        assert row(conn, name)[0] == 1

    def test_tasks_do_not_wait_for_each_other(self, ledger, connect):
        batch, one, two = ledger.begin(0), connect(), connect()
        two.execute("SET lock_timeout = '2s'")

        with one.transaction(), two.transaction():
            lock_fence(one, batch)
            lock_fence(two, batch)

            assert two.info.transaction_status == TransactionStatus.INTRANS

    def test_has_driver_says_whether_a_driver_is_alive(self, ledger, conn, name):
        has_driver = "SELECT tidegauge.has_driver(%s)"
        assert conn.execute(has_driver, [name]).fetchone() == (True,)

        ledger.release()

        assert conn.execute(has_driver, [name]).fetchone() == (False,)


class TestCheckpoint:
    def test_binding_to_the_same_checkpoint_again_changes_nothing(self, ledger, conn, name):
        commit_batches(ledger, 2)
        before = row(conn, name)

        ledger.bind("checkpoint")

        assert row(conn, name) == before

    def test_another_checkpoint_over_filled_states_is_refused_with_the_remedies(self, ledger, conn, name):
        commit_batches(ledger, 2)
        before = row(conn, name)

        with pytest.raises(CheckpointMismatchError) as caught:
            ledger.bind("another")

        assert str(caught.value) == (
            f"pipeline {name!r}: its states were fed from checkpoint 'checkpoint' up to batch 2, and this is "
            "checkpoint 'another': input would be counted twice or left out; run `tidegauge pipelines "
            f"restore-checkpoint {name}`, which writes one that resumes where they stopped, or run with --reprocess to "
            "count from the input's start, or with --rebind if the source continues exactly where they stopped"
        )
        assert row(conn, name) == before

    def test_a_rebound_pipeline_counts_batches_from_0_and_txids_on(self, ledger):
        commit_batches(ledger, 2)

        ledger.bind("another", rebind=True)

        batch = ledger.begin(0)
        assert (batch.txid, batch.attempt) == (3, 1)
        with pytest.raises(BatchOrderError):
            ledger.begin(1)
        ledger.commit(batch)
        ledger.bind("another")
        assert ledger.begin(1).txid == 4

    def test_a_pipeline_without_commits_accepts_any_checkpoint(self, ledger):
        ledger.begin(0)  # and its driver died

        ledger.bind("another")

        assert ledger.begin(0).attempt == 2

    def test_a_batch_left_open_by_the_old_checkpoint_is_a_retry_under_the_new_one(self, ledger):
        commit_batches(ledger, 2)
        ledger.begin(2)

        ledger.bind("another", rebind=True)

        assert (batch := ledger.begin(0)).is_retry
        assert batch.txid == 3


def test_a_waiting_driver_takes_over_once_the_old_session_has_ended(ledger, connect):
    dying = connect()
    ledger.release()
    BatchLedger(dying, ledger.pipeline).acquire()
    closing = threading.Timer(0.3, dying.close)
    closing.start()

    fence = ledger.acquire(patience_ms=10_000)

    closing.join()
    assert fence == 3
