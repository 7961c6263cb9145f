import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tidegauge.state_backends import StateSynchronizer
from tidegauge.state_backends import maintenance as trimming
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.runs import UnfinishedRunError, UnknownRunError
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance import runner, services
from tidegauge.webapp.maintenance.services import (
    BrokerUnavailableError,
    RunFinishedError,
    cancel_maintenance,
    maintain_all,
    maintain_now,
    request_maintenance,
    run_maintenance,
)

CARRIERS = "flights_by_carrier"


def queue_length():
    with app.connection_for_read() as broker:
        return broker.default_channel.client.llen("celery")


def make_run(**columns):
    return MaintenanceRun.objects.create(
        **{"kind": "compaction", "state_id": CARRIERS, "requested_by": "a test", **columns}
    )


@contextmanager
def locked(state, work="compaction"):
    """Another process works on this state."""
    with readers.own_connection() as conn, state_lock(conn, state, work):
        yield


class TestRequest:
    def test_it_queues_a_run_and_tells_the_workers(self, lasting):
        run = request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann")

        assert (run.status, run.requested_by, queue_length()) == ("queued", "ann", 1)

    def test_an_unknown_state_is_refused_with_the_names_there_are(self, lasting):
        with pytest.raises(UnknownStateError, match=f"'carriers' does not exist; there are {CARRIERS}"):
            request_maintenance(kind="expiry", state="carriers", requested_by="ann")

    def test_a_state_has_one_run_at_a_time(self, lasting):
        first = request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann")

        with pytest.raises(UnfinishedRunError) as refused:
            request_maintenance(kind="expiry", state=CARRIERS, requested_by="bob")

        assert str(refused.value) == (
            f"state '{CARRIERS}': compaction {first.id} is queued already, asked for by ann; "
            "wait until it is done, or cancel it"
        )
        assert request_maintenance(kind="expiry", state="totals", requested_by="bob").status == "queued"

    def test_of_many_at_once_one_is_accepted(self, lasting):
        accepted, refused = [], []

        def ask():
            try:
                accepted.append(request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann"))
            except UnfinishedRunError as error:
                refused.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(accepted), len(refused), queue_length()) == (1, 5, 1)

    def test_a_queue_that_is_gone_fails_the_run_and_says_so(self, lasting, monkeypatch):
        def refuse(*args, **options):
            raise services.BrokerError("connection refused")

        monkeypatch.setattr(app, "send_task", refuse)

        with pytest.raises(BrokerUnavailableError, match="check that Redis runs"):
            request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann")

        assert MaintenanceRun.objects.get().status == "failed"


class TestRun:
    def test_compaction_trims_the_changelog_and_tells_what_it_did(self, lasting, settings):
        settings.TIDEGAUGE_CHANGELOG_KEEP_HOURS = 0
        lasting.commit({("EWR", "C00"): 1})

        run = maintain_now(kind="compaction", state=CARRIERS, requested_by="ann")

        steps = {step["step"]: (step["seen"], step["removed"]) for step in run.progress["steps"]}
        assert (run.status, run.error) == ("done", "")
        assert list(steps) == ["changelog entries", "dead entries", "tombstones", "ledger rows", "dead space"]
        assert steps["changelog entries"] == (62, 1)
        assert (run.before["changelog_rows"], run.after["changelog_rows"]) == (62, 61)
        assert run.requested_at <= run.started_at <= run.finished_at

    def test_the_changelog_is_kept_as_long_as_the_setting_says(self, lasting, settings):
        settings.TIDEGAUGE_CHANGELOG_KEEP_HOURS = 168
        lasting.commit({("EWR", "C00"): 1})

        run = maintain_now(kind="compaction", state=CARRIERS, requested_by="ann")

        assert run.after["changelog_rows"] == 62

    def test_expiry_frees_the_rows_past_their_time(self, lasting):
        lasting.conn.execute(
            f"UPDATE tidegauge_state.{CARRIERS} SET updated_at = updated_at - interval '401 days' WHERE origin = 'JFK'"
        )

        run = maintain_now(kind="expiry", state=CARRIERS, requested_by="ann")

        assert run.progress == {"steps": [{"step": "expired rows", "seen": 60, "removed": 30}]}
        assert (run.before["state_rows"], run.after["state_rows"]) == (60, 30)

    def test_progress_is_recorded_page_by_page(self, lasting, monkeypatch):
        monkeypatch.setattr(trimming, "PAGE_ROWS", 20)
        seen = []
        watch_pages(monkeypatch, lambda: seen.append(MaintenanceRun.objects.get().progress))

        maintain_now(kind="expiry", state=CARRIERS, requested_by="ann")

        assert [[step["seen"] for step in progress.get("steps", [])] for progress in seen] == [[], [20], [40]]

    def test_a_cancelled_run_stops_after_the_page_it_is_at(self, lasting, monkeypatch):
        monkeypatch.setattr(trimming, "PAGE_ROWS", 20)
        watch_pages(monkeypatch, lambda: cancel_maintenance(MaintenanceRun.objects.get().id, requested_by="ada"))

        run = maintain_now(kind="expiry", state=CARRIERS, requested_by="ann")

        assert (run.status, run.progress["steps"][0]["seen"]) == ("cancelled", 20)
        assert run.after == run.before

    def test_a_failed_run_says_why(self, lasting):
        lasting.conn.execute(f"ALTER TABLE tidegauge_changelog.{CARRIERS} RENAME TO gone")
        try:
            run = maintain_now(kind="compaction", state=CARRIERS, requested_by="ann")
        finally:
            lasting.conn.execute(f"ALTER TABLE tidegauge_changelog.gone RENAME TO {CARRIERS}")

        assert run.status == "failed"
        assert run.error.startswith('UndefinedTable: relation "tidegauge_changelog.flights_by_carrier" does not exist')

    def test_a_task_that_comes_twice_changes_nothing(self, lasting):
        run = maintain_now(kind="expiry", state=CARRIERS, requested_by="ann")

        run_maintenance(run.id)

        again = MaintenanceRun.objects.get()
        assert (again.status, again.started_at, again.finished_at) == ("done", run.started_at, run.finished_at)

    def test_a_run_in_the_hands_of_another_worker_is_left_alone(self, lasting):
        run = make_run(status="running")

        with locked(CARRIERS):
            run_maintenance(run.id)

        run.refresh_from_db()
        assert run.status == "running"

    def test_a_run_fails_by_name_while_the_tables_are_copied(self, lasting):
        run = make_run()

        with locked(CARRIERS, "migration"):
            run_maintenance(run.id)

        run.refresh_from_db()
        assert run.status == "failed"
        assert run.error.startswith(
            f"state '{CARRIERS}': compaction cannot begin, its live tables are held by migration on host"
        )

    def test_a_run_makes_room_for_a_work_that_waits(self, lasting, monkeypatch):
        monkeypatch.setattr(trimming, "PAGE_ROWS", 20)
        waiting = threading.Thread(target=lambda: locked_once(CARRIERS, "migration"))
        pages = []

        def begin_to_wait():
            if not pages:
                waiting.start()
                wait_until_awaited()
            pages.append(1)

        watch_pages(monkeypatch, begin_to_wait)

        run = maintain_now(kind="expiry", state=CARRIERS, requested_by="ann")

        waiting.join()
        assert (run.status, run.progress["steps"][0]["seen"], len(pages)) == ("cancelled", 20, 1)
        assert run.error == runner.MADE_ROOM

    def test_a_run_whose_worker_died_is_not_taken_up_again(self, lasting):
        run = make_run(status="running")

        run_maintenance(run.id)

        run.refresh_from_db()
        assert (run.status, run.error) == ("failed", runner.WORKER_DIED)

    def test_an_unknown_run_is_refused(self, db):
        with pytest.raises(UnknownRunError, match="there is no maintenance run 4711"):
            run_maintenance(4711)


class TestDeadRuns:
    def test_a_dead_run_is_found_and_makes_room_for_the_next(self, lasting):
        dead = make_run(status="running")

        request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann")

        dead.refresh_from_db()
        assert (dead.status, dead.error) == ("failed", runner.WORKER_DIED)

    def test_a_living_run_is_not_mistaken_for_a_dead_one(self, lasting):
        run = make_run(status="running")

        with locked(CARRIERS):
            assert services.fail_dead_runs() == 0
        assert services.fail_dead_runs() == 1

        run.refresh_from_db()
        assert run.status == "failed"


class TestCancel:
    def test_a_queued_run_ends_at_once(self, lasting):
        run = cancel_maintenance(make_run().id, requested_by="ada")

        run_maintenance(run.id)

        run.refresh_from_db()
        assert (run.status, run.progress) == ("cancelled", {})

    def test_a_finished_run_cannot_be_cancelled(self, lasting):
        run = make_run(status="done")

        with pytest.raises(RunFinishedError, match=f"run {run.id} is done already; there is nothing to cancel"):
            cancel_maintenance(run.id, requested_by="ada")


class TestSchedule:
    def test_every_state_is_compacted(self, lasting):
        runs = maintain_all("compaction")

        assert [run.state_id for run in runs] == [CARRIERS, "flights_by_hour", "totals"]
        assert {run.requested_by for run in runs} == {"schedule"}

    def test_the_logs_of_synchronizers_are_replaced_by_their_current_values(self, lasting):
        conn = lasting.conn
        counter = StateSynchronizer(conn, f"{__name__} counter", apply=lambda state, update: state + update)
        counter.initialize(0)
        for _ in range(5):
            counter.update_state(lambda state: [1])
        counter.compact()

        maintain_all("expiry")
        before = (counter.oldest, counter.mark)
        maintain_all("compaction")

        assert (before, counter.oldest) == ((0, 6), 6)
        newcomer = StateSynchronizer(conn, counter.name, apply=lambda state, update: state + update)
        newcomer.fetch_updates()
        assert newcomer.state == 5

    def test_only_states_with_a_ttl_expire(self, lasting):
        assert [run.state_id for run in maintain_all("expiry")] == [CARRIERS]

    def test_a_busy_state_is_left_for_the_next_time(self, lasting):
        make_run()

        assert [run.state_id for run in maintain_all("compaction")] == ["flights_by_hour", "totals"]

    def test_a_run_whose_message_was_lost_is_sent_again(self, lasting):
        make_run(requested_at=timezone.now() - timedelta(hours=2))

        maintain_all("expiry")

        assert queue_length() == 1

    def test_old_runs_are_forgotten(self, lasting, settings):
        settings.TIDEGAUGE_KEEP_DAYS = 30
        old = make_run(status="done", finished_at=timezone.now() - timedelta(days=31))
        kept = make_run(status="done", finished_at=timezone.now() - timedelta(days=29))

        maintain_all("expiry")

        remaining = set(MaintenanceRun.objects.values_list("id", flat=True))
        assert kept.id in remaining
        assert old.id not in remaining


def locked_once(state, work):
    with readers.own_connection() as conn, state_lock(conn, state, work, patience_ms=30_000):
        pass


def wait_until_awaited():
    with readers.own_connection() as conn:
        while conn.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone() is None:
            pass


def watch_pages(monkeypatch, look):
    """Call `look` each time a page is done but not recorded yet."""
    work = runner.WORK["expiry"]

    def watched(*given):
        for step in work(*given):
            look()
            yield step

    monkeypatch.setitem(runner.WORK, "expiry", watched)
