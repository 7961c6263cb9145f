import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django_celery_beat.models import PeriodicTask

from tests.webapp.confirming import confirm
from tests.webapp.console.dashboard.page_text import text, with_steady_ages
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import app
from tidegauge.webapp.console.dashboard.run_rows import RunView
from tidegauge.webapp.console.dashboard.views import runs
from tidegauge.webapp.maintenance.schedule import scheduled

CARRIERS = "flights_by_carrier"
BEFORE = {"state_rows": 60, "state_bytes": 80_000, "changelog_rows": 61, "changelog_bytes": 40_000}


@pytest.fixture
def operator(django_user_model) -> Client:
    """A user who may request maintenance and is not staff."""
    user = django_user_model.objects.create_user("operator")
    user.user_permissions.add(Permission.objects.get(codename="add_maintenancerun"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """The runs that were sent to the queue; no worker reads it."""
    run_ids: list[int] = []
    monkeypatch.setattr(app, "send_task", lambda name, args: run_ids.extend(args))
    return run_ids


def run(**columns) -> MaintenanceRun:
    return MaintenanceRun.objects.create(kind="compaction", state_id=CARRIERS, requested_by="ann", **columns)


@pytest.fixture
def running(connection) -> Iterator[Callable[..., MaintenanceRun]]:
    """Makes a run that a worker executes: the state's lock is held."""
    with state_lock(connection, CARRIERS, "compaction"):
        yield lambda **columns: run(status="running", started_at=datetime.now(UTC), before=BEFORE, **columns)


class TestMaintenancePage:
    def test_each_state_shows_size_and_when_it_was_last_maintained(self, filled, reader):
        run(status="done", finished_at=datetime.now(UTC) - timedelta(minutes=5))

        page = text(reader.get("/maintenance"))

        assert re.search(rf"{CARRIERS} 60 [\d.]+ kB on 400 days 5 min ago — flights_by_hour ", page)

    def test_an_active_run_shows_its_progress(self, filled, reader, running):
        running(progress={"steps": [{"step": "changelog entries", "seen": 61, "removed": 1}]})

        response = reader.get("/maintenance")

        shown = text(response)
        assert re.search(r"Compaction of flights_by_carrier running Requested by ann, running for \d+ s \.", shown)
        assert "25% · changelog entries: 61 seen, 1 removed in total" in shown
        assert b'<progress max="100" value="25"' in response.content

    def test_past_runs_show_who_requested_them_and_what_changed(self, filled, reader):
        now = datetime.now(UTC)
        after = BEFORE | {"changelog_rows": 12, "changelog_bytes": 8_000}
        steps = {"steps": [{"step": "changelog entries", "seen": 61, "removed": 49}]}
        times = {"started_at": now - timedelta(seconds=3), "finished_at": now}
        done = run(status="done", before=BEFORE, after=after, progress=steps, **times)

        page = with_steady_ages(reader.get("/maintenance"))

        assert f" {done.id} compaction flights_by_carrier done ann 49 61 → 12 120 kB → 88 kB 3 s just now " in page

    def test_the_schedule_shows_when_each_task_ran_and_runs_next(self, filled, reader):
        PeriodicTask.objects.filter(name="Compact all states").update(
            last_run_at=datetime.now(UTC) - timedelta(minutes=20, seconds=0.5)
        )
        PeriodicTask.objects.filter(name="Expire rows past their time").update(enabled=False)
        filled.join("worker")

        page = text(reader.get("/maintenance"))

        assert re.search(r"Compact all states every hour 20 min ago in 39 min ", page)
        assert re.search(r"Expire rows past their time every 10 minutes — disabled ", page)

    def test_without_a_worker_the_schedule_promises_nothing(self, filled, reader):
        worker = filled.join("worker")
        alive = reader.get("/maintenance")
        worker.leave()

        page = text(reader.get("/maintenance"))

        assert "No worker is alive." not in text(alive)
        assert "No worker is alive. Requested and scheduled runs wait until a worker starts" in page
        assert re.search(r"Compact all states every hour — no worker ", page)

    def test_runs_come_in_pages(self, filled, reader, monkeypatch):
        monkeypatch.setattr(runs, "PAGE_RUNS", 2)
        ids = [run(status="done", finished_at=datetime.now(UTC)).id for _ in range(3)]

        newest = reader.get("/maintenance").content.decode()
        older = reader.get(f"/maintenance?before={ids[1]}").content.decode()

        assert f'href="?before={ids[1]}">Older' in newest
        assert [f">{run_id}</a>" in older for run_id in ids] == [True, False, False]

    def test_without_states_or_runs_it_says_so(self, db, reader):
        page = text(reader.get("/maintenance"))

        assert "No states yet" in page
        assert "No runs yet." in page

    def test_progress_of_a_run_brings_new_content(self, filled, reader, running):
        going = running()
        query = {"v": re.search(r"&quot;v&quot;:&quot;([\w.]+)", reader.get("/maintenance").content.decode())[1]}
        headers = {"HX-Request": "true"}
        unchanged = reader.get("/maintenance", query, headers=headers)
        MaintenanceRun.objects.filter(pk=going.id).update(progress={"steps": []})

        changed = reader.get("/maintenance", query, headers=headers)

        assert (unchanged.status_code, changed.status_code) == (204, 200)

    def test_it_polls_since_commits_do_not_report_the_progress_of_a_run(self, filled, reader):
        queued = run(status="queued")

        for address, is_pushed in (("/", True), ("/maintenance", False), (f"/maintenance/{queued.id}", False)):
            assert (b"data-commits-url=" in reader.get(address).content) == is_pushed, address

    def test_its_statements_do_not_grow_with_states_or_runs(self, filled, reader, django_assert_num_queries):
        for _ in range(3):
            run(status="done", finished_at=datetime.now(UTC))

        # Session, user, permissions, strip; runs, active runs, two for the schedule, two for states, latest runs.
        with django_assert_num_queries(13):
            reader.get("/maintenance")


class TestRunPage:
    def test_it_shows_figures_before_and_after_and_each_step(self, filled, reader):
        steps = [
            {"step": "changelog entries", "seen": 61, "removed": 49},
            {"step": "tombstones", "seen": 60, "removed": 0},
        ]
        after = BEFORE | {"changelog_rows": 12, "state_bytes": 90_000}
        done = run(status="done", before=BEFORE, after=after, progress={"steps": steps})

        page = text(reader.get(f"/maintenance/{done.id}"))

        assert "changelog rows 61 12 −49" in page  # noqa: RUF001
        assert "state bytes 80 kB 90 kB +10 kB" in page
        assert "state rows 60 60 none" in page
        assert "changelog entries 61 49 tombstones 60 0" in page

    def test_a_failed_run_shows_the_reason(self, filled, reader):
        failed = run(status="failed", error="LockNotAvailable: <b>")

        assert "The run failed. LockNotAvailable: <b>" in text(reader.get(f"/maintenance/{failed.id}"))

    def test_an_unknown_run_links_to_the_list(self, filled, reader):
        response = reader.get("/maintenance/999")

        assert response.status_code == 404
        assert "No maintenance run named 999" in text(response)


class TestRequestingARun:
    def test_an_operator_requests_a_run_and_is_redirected_to_it(
        self, filled, operator, sent, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            response = confirm(operator, f"/states/{CARRIERS}/compact", follow=True)
        queued = MaintenanceRun.objects.get()

        assert sent == [queued.id]
        assert (queued.kind, queued.requested_by) == ("compaction", "operator")
        assert response.redirect_chain == [(f"/maintenance/{queued.id}", 302)]
        assert "Queued: compaction of flights_by_carrier." in text(response)
        assert "Cancel run" in text(response)

    def test_a_busy_state_redirects_to_its_active_run(self, filled, operator, sent):
        queued = run(status="queued")

        response = confirm(operator, f"/states/{CARRIERS}/expire", follow=True)

        assert response.redirect_chain == [(f"/maintenance/{queued.id}", 302)]
        assert f"State 'flights_by_carrier': compaction {queued.id} is queued already, asked for by ann" in text(
            response
        )
        assert MaintenanceRun.objects.count() == 1

    def test_an_unknown_state_lists_the_existing_ones(self, filled, operator):
        response = operator.post("/states/nothing/compact")

        assert response.status_code == 404
        assert "No state named nothing Existing states: flights_by_carrier" in text(response)

    @pytest.mark.parametrize("kind", ["compact", "expire", "audit"])
    def test_others_get_no_link_and_no_access(self, filled, reader, sent, kind):
        assert f"/{kind}" not in reader.get("/maintenance").content.decode().partition("<main")[2]
        assert reader.get(f"/states/{CARRIERS}/{kind}").status_code == 403
        assert reader.post(f"/states/{CARRIERS}/{kind}", {"confirmed": "yes"}).status_code == 403
        assert Client().post(f"/states/{CARRIERS}/{kind}").status_code == 302
        assert not MaintenanceRun.objects.exists()

    def test_a_link_or_a_form_from_another_site_requests_nothing(self, filled, admin_user, sent):
        visitor = Client(enforce_csrf_checks=True)
        visitor.force_login(admin_user)

        assert visitor.post(f"/states/{CARRIERS}/compact").status_code == 403
        assert visitor.get(f"/states/{CARRIERS}/compact?confirmed=yes").status_code == 200
        assert not MaintenanceRun.objects.exists()


class TestCancelling:
    def test_an_operator_cancels_a_run(self, filled, operator, running):
        going = running()

        response = operator.post(f"/maintenance/{going.id}/cancel", follow=True)

        assert "cancelling" in text(response)
        assert "Cancel run" not in text(response)
        assert MaintenanceRun.objects.get().cancel_requested

    def test_a_finished_run_cannot_be_cancelled(self, filled, operator):
        done = run(status="done")

        response = operator.post(f"/maintenance/{done.id}/cancel", follow=True)

        assert f"Maintenance run {done.id} is done already; there is nothing to cancel." in text(response)

    def test_an_unknown_run_is_not_found(self, filled, operator):
        assert operator.post("/maintenance/999/cancel").status_code == 404

    def test_others_cannot(self, filled, reader):
        queued = run(status="queued")

        assert "Cancel run" not in text(reader.get("/maintenance"))
        assert reader.post(f"/maintenance/{queued.id}/cancel").status_code == 403
        assert MaintenanceRun.objects.get().status == "queued"


class TestProgress:
    @pytest.mark.parametrize(
        ("kind", "status", "step", "seen", "percent"),
        [
            ("compaction", "queued", None, 0, 0),
            ("compaction", "running", "changelog entries", 100, 25),
            ("compaction", "running", "dead entries", 50, 37),
            ("compaction", "running", "tombstones", 100, 75),
            # More than was counted before, as the pipeline writes meanwhile.
            ("compaction", "running", "previous versions", 900, 99),
            ("compaction", "running", "ledger rows", 7, 99),
            ("compaction", "done", "changelog entries", 1, 100),
            ("expiry", "running", "expired rows", 50, 50),
        ],
    )
    def test_it_is_the_share_of_the_rows_to_read(self, kind, status, step, seen, percent):
        steps = [{"step": step, "seen": seen, "removed": 0}] if step else []
        before = {"changelog_rows": 100, "state_rows": 100}

        going = MaintenanceRun(kind=kind, status=status, progress={"steps": steps}, before=before)

        assert RunView(going).percent == pytest.approx(percent, abs=1)

    def test_without_a_changelog_the_rows_of_the_state_are_the_whole(self):
        steps = {"steps": [{"step": "tombstones", "seen": 50, "removed": 0}]}

        going = MaintenanceRun(kind="compaction", status="running", progress=steps, before={"state_rows": 100})

        assert RunView(going).percent == 25


def test_an_overdue_task_runs_next(db):
    PeriodicTask.objects.update(last_run_at=datetime.now(UTC) - timedelta(days=3))

    compaction, expiry = (task for task in scheduled() if task.is_enabled)
    assert all(abs(task.next_at - datetime.now(UTC)) < timedelta(seconds=5) for task in (compaction, expiry))


def test_a_scheduled_run_counts_before_the_scheduler_stores_its_time(filled):
    PeriodicTask.objects.update(last_run_at=datetime.now(UTC) - timedelta(minutes=10))
    asked = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="schedule")
    asked.refresh_from_db()

    _audit, compaction, expiry = scheduled()

    assert expiry.last_at == asked.requested_at
    assert expiry.next_at - datetime.now(UTC) > timedelta(minutes=9)
    assert compaction.last_at < asked.requested_at


def test_states_have_pages(filled, reader, monkeypatch):
    monkeypatch.setattr(runs, "PAGE_STATES", 2)

    first, second, beyond = (
        reader.get(f"/maintenance{query}").content.decode() for query in ("", "?states=2", "?states=x")
    )

    assert re.findall('<tr id="state-(\\w+)"', first) == re.findall('<tr id="state-(\\w+)"', beyond)
    assert re.findall('<tr id="state-(\\w+)"', second) == ["totals"]
    assert "1 to 2 of 3" in first
    assert '<a rel="next" href="?states=2#states">Next</a>' in first
    assert "&quot;states&quot;:&quot;2&quot;" in second
