"""The schedule: its tasks, their timing, and no task that the workers do not know."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry

TASKS = "/admin/django_celery_beat/periodictask/"
INTERVALS = "/admin/django_celery_beat/intervalschedule/"
CRONTABS = "/admin/django_celery_beat/crontabschedule/"


@pytest.fixture
def compaction(db):
    return PeriodicTask.objects.get(name="Compact all states")


def trail():
    """Return the audit entries of the schedule, oldest first."""
    return list(AuditEntry.objects.filter(action__startswith="schedule.").order_by("id"))


def answers(edited, **changes):
    held = {"name": edited.name, "work": "compaction", "interval": edited.interval_id, "crontab": "", "enabled": "on"}
    return held | {"description": ""} | changes


def test_an_installation_has_three_tasks_and_the_audit_is_disabled(db):
    tasks = {task.name: (task.task, task.args, str(task.interval)) for task in PeriodicTask.objects.all()}

    assert tasks["Compact all states"] == ("states.maintain_all", '["compaction"]', "every hour")
    assert tasks["Expire rows past their time"] == ("states.maintain_all", '["expiry"]', "every 10 minutes")
    assert tasks["Audit states with a changelog"] == ("states.maintain_all", '["audit"]', "every day")
    assert [task.name for task in PeriodicTask.objects.filter(enabled=False)] == ["Audit states with a changelog"]


class TestList:
    def test_it_shows_task_schedule_and_next_run(self, compaction, admin_client):
        PeriodicTask.objects.filter(pk=compaction.pk).update(last_run_at=timezone.now() - timedelta(minutes=20))

        model_admin = admin_client.get(TASKS).context["cl"].model_admin
        task = PeriodicTask.objects.get(pk=compaction.pk)

        assert (model_admin.does(task), model_admin.every(task)) == ("Compact all states", "every hour")
        assert model_admin.state_of_task(task) == "enabled"
        wait = (
            datetime.strptime(model_admin.next_run(task), "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) - timezone.now()
        )
        assert timedelta(minutes=39) < wait < timedelta(minutes=41)

    def test_a_disabled_task_has_no_next_run(self, compaction, admin_client):
        PeriodicTask.objects.filter(pk=compaction.pk).update(enabled=False)

        page = admin_client.get(TASKS)

        model_admin, task = page.context["cl"].model_admin, PeriodicTask.objects.get(pk=compaction.pk)
        assert (model_admin.state_of_task(task), model_admin.next_run(task)) == ("disabled", None)

    def test_a_task_that_no_worker_knows_is_marked(self, compaction, admin_client):
        PeriodicTask.objects.filter(pk=compaction.pk).update(task="states.mantain_all")

        assert "unknown task" in admin_client.get(TASKS).content.decode()

    def test_more_tasks_take_no_more_statements(self, compaction, admin_client, django_assert_num_queries):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        admin_client.get(TASKS)
        with CaptureQueriesContext(connection) as few:
            admin_client.get(TASKS)
        crontab = CrontabSchedule.objects.create(minute="5", hour="3")
        for n in range(4):
            PeriodicTask.objects.create(name=f"more {n}", task="states.maintain_all", crontab=crontab)

        with django_assert_num_queries(len(few)):
            admin_client.get(TASKS)


class TestEdits:
    def test_what_is_empty_is_a_dash_as_in_the_list(self, compaction, admin_client):
        page = text(admin_client.get(f"{TASKS}{compaction.pk}/change/"))

        assert "Last run —" in page

    def test_an_edit_is_audited(self, compaction, admin_client):
        crontab = CrontabSchedule.objects.create(minute="5", hour="3")
        posted = answers(compaction, interval="", crontab=crontab.pk, work="expiry")

        answer = admin_client.post(f"{TASKS}{compaction.pk}/change/", posted)

        compaction.refresh_from_db()
        assert answer.status_code == 302
        assert (compaction.args, compaction.interval, compaction.crontab) == ('["expiry"]', None, crontab)
        (entry,) = trail()
        assert (entry.action, entry.target, entry.actor) == ("schedule.change", "schedule Compact all states", "admin")
        assert entry.detail["args"] == '["expiry"]'

    def test_adding_and_deleting_are_audited(self, compaction, admin_client):
        admin_client.post(f"{TASKS}add/", answers(compaction, name="nightly"))
        made = PeriodicTask.objects.get(name="nightly")

        admin_client.post(f"{TASKS}{made.pk}/delete/", {"post": "yes"})

        assert (made.task, made.args) == ("states.maintain_all", '["compaction"]')
        assert not PeriodicTask.objects.filter(name="nightly").exists()
        assert [(entry.action, entry.target) for entry in trail()] == [
            ("schedule.add", "schedule nightly"),
            ("schedule.delete", "schedule nightly"),
        ]

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"work": "states.run_maintenance"}, "not one of the available choices"),
            ({"work": "rm -rf"}, "not one of the available choices"),
            ({"interval": ""}, "choose either an interval or a crontab"),
            ({"interval": "4711"}, "not one of the available choices"),
            ({"name": ""}, "This field is required"),
        ],
    )
    def test_invalid_input_is_rejected(self, compaction, admin_client, changes, reason):
        page = admin_client.post(f"{TASKS}{compaction.pk}/change/", answers(compaction, **changes))

        assert page.status_code == 200
        assert reason in page.content.decode()
        assert trail() == []

    def test_both_an_interval_and_a_crontab_are_refused(self, compaction, admin_client):
        crontab = CrontabSchedule.objects.create(minute="5", hour="3")

        page = admin_client.post(f"{TASKS}{compaction.pk}/change/", answers(compaction, crontab=crontab.pk))

        assert page.status_code == 200
        assert "choose either an interval or a crontab" in page.content.decode()

    def test_a_task_that_was_scheduled_by_other_means_is_unchanged(self, compaction, admin_client):
        PeriodicTask.objects.filter(pk=compaction.pk).update(args='["expiry", "more"]')

        admin_client.post(f"{TASKS}{compaction.pk}/change/", answers(compaction, work="unchanged", name="odd"))

        compaction.refresh_from_db()
        assert (compaction.name, compaction.args) == ("odd", '["expiry", "more"]')

    def test_a_task_that_no_worker_knows_is_rejected(self, compaction, admin_client):
        PeriodicTask.objects.filter(pk=compaction.pk).update(task="states.mantain_all")

        page = admin_client.post(f"{TASKS}{compaction.pk}/change/", answers(compaction, work="unchanged"))

        assert "no worker knows task &#x27;states.mantain_all&#x27;" in page.content.decode()

    def test_other_columns_cannot_be_posted(self, compaction, admin_client):
        posted = answers(compaction, task="os.system", args='["x"]', queue="theirs", solar="1")

        admin_client.post(f"{TASKS}{compaction.pk}/change/", posted)

        compaction.refresh_from_db()
        assert (compaction.task, compaction.args, compaction.queue) == ("states.maintain_all", '["compaction"]', None)

    @pytest.mark.parametrize(("action", "enabled"), [("turn_off", False), ("turn_on", True)])
    def test_tasks_are_enabled_and_disabled(self, compaction, admin_client, action, enabled):
        PeriodicTask.objects.update(enabled=not enabled)

        admin_client.post(TASKS, {"action": action, "_selected_action": [compaction.pk]})

        compaction.refresh_from_db()
        assert compaction.enabled == enabled
        assert [entry.action for entry in trail()] == [f"schedule.{action}"]

    def test_a_viewer_reads(self, compaction, viewer):
        page = viewer.get(f"{TASKS}{compaction.pk}/change/")

        assert page.status_code == 200
        assert viewer.post(f"{TASKS}{compaction.pk}/change/", answers(compaction)).status_code == 403
        assert viewer.get(f"{TASKS}add/").status_code == 403


class TestIntervals:
    @pytest.mark.parametrize("kind", [INTERVALS, CRONTABS])
    def test_their_pages_open(self, admin_client, kind):
        assert admin_client.get(kind).status_code == 200
        assert admin_client.get(f"{kind}add/").status_code == 200

    @pytest.mark.parametrize("kind", ["solarschedule", "clockedschedule"])
    def test_other_kinds_of_schedules_are_not_offered(self, admin_client, kind):
        assert admin_client.get(f"/admin/django_celery_beat/{kind}/").status_code == 404

    @pytest.mark.parametrize(
        ("every", "period"), [("1", "microseconds"), ("9", "seconds"), ("0", "days"), ("x", "days")]
    )
    def test_too_short_an_interval_is_rejected(self, admin_client, every, period):
        page = admin_client.post(f"{INTERVALS}add/", {"every": every, "period": period})

        assert page.status_code == 200
        assert not IntervalSchedule.objects.filter(period=period, every=every if every != "x" else 0).exists()

    def test_an_invalid_crontab_is_rejected(self, admin_client):
        cron = {"minute": "61", "hour": "x", "day_of_month": "*", "month_of_year": "*", "day_of_week": "*"}

        assert admin_client.post(f"{CRONTABS}add/", cron | {"timezone": "UTC"}).status_code == 200

    def test_one_in_use_cannot_be_deleted(self, compaction, admin_client):
        """That would delete its tasks too."""
        unused = IntervalSchedule.objects.create(every=7, period="days")

        refused = admin_client.post(f"{INTERVALS}{compaction.interval_id}/delete/", {"post": "yes"})
        done = admin_client.post(f"{INTERVALS}{unused.pk}/delete/", {"post": "yes"})
        admin_client.post(
            INTERVALS, {"action": "delete_selected", "_selected_action": [compaction.interval_id], "post": "yes"}
        )

        assert (refused.status_code, done.status_code) == (403, 302)
        assert PeriodicTask.objects.filter(pk=compaction.pk).exists()
        assert [entry.action for entry in trail()] == ["schedule.delete"]
