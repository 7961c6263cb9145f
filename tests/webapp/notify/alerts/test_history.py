"""The history of verdicts: what is recorded at each look, what a gap is, what pages show of it, what is kept."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends import Catalog
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.limits import limits_of
from tidegauge.webapp.catalog.readers import own_connection
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.notify.alerts import checking, upkeep
from tidegauge.webapp.notify.alerts.history import changes, last_check, record_verdicts, silent_since
from tidegauge.webapp.notify.alerts.models import Alert, LastCheck, VerdictPeriod

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
WELL = {"count": 0, "unit": "files", "oldest": None}
WAITING = {"count": 2, "unit": "files", "oldest": None}


def look(seconds: float) -> None:
    """Record what there is now as that of so many seconds after noon."""
    record_verdicts(queries.pipelines(), NOON + timedelta(seconds=seconds))


def recorded() -> list[tuple[str, float, float]]:
    found = VerdictPeriod.objects.filter(pipeline="flights").order_by("id")
    return [
        (each.verdict, (each.began_at - NOON).total_seconds(), (each.until - NOON).total_seconds()) for each in found
    ]


class TestWhatIsRecorded:
    def test_a_verdict_that_stays_is_one_period(self, filled):
        look(0)
        look(15)
        look(30)

        assert recorded() == [("well", 0, 30)]

    def test_catching_up_and_caught_up_are_one(self, filled):
        look(0)
        filled.report("running", pending=WAITING)
        look(15)
        filled.report("running", pending=WELL)
        look(30)

        assert recorded() == [("well", 0, 30)]

    def test_a_change_ends_one_period_and_begins_another(self, filled):
        look(0)
        filled.report("failed", "no disk")
        look(15)
        look(30)
        filled.report("running", pending=WELL)
        look(45)

        assert recorded() == [("well", 0, 15), ("failed", 15, 45), ("well", 45, 45)]
        newest, failure, first = changes("flights", 8)
        assert (newest.before, newest.verdict) == ("failed", "well")
        assert (failure.before, failure.reason, failure.length) == (
            "well", "its driver has given up", timedelta(seconds=30),
        )  # fmt: skip
        assert first.before == ""

    def test_while_nobody_looked_nothing_is_claimed(self, filled):
        look(0)
        look(15)
        look(7_200)

        assert recorded() == [("well", 0, 15), ("well", 7_200, 7_200)]
        assert changes("flights", 1)[0].before == ""

    def test_a_clock_that_goes_back_loses_no_look(self, filled):
        look(60)
        look(0)
        filled.report("failed", "no disk")
        look(15)

        assert recorded() == [("well", 60, 15), ("failed", 15, 15)]
        assert changes("flights", 2)[1].length == timedelta()

    def test_a_pipeline_that_is_gone_has_no_current_verdict(self, filled):
        Catalog(filled.conn).register_pipeline("gone", spout="opaque")
        look(0)
        filled.conn.execute("DELETE FROM tidegauge.pipeline WHERE name = 'gone'")
        look(15)

        assert not VerdictPeriod.objects.filter(pipeline="gone", is_current=True).exists()

    def test_more_pipelines_cost_no_more_statements(self, filled, django_assert_num_queries):
        limits_of("flights")
        with CaptureQueriesContext(django_connection) as one:
            look(0)
        for name in ("a", "b", "c"):
            Catalog(filled.conn).register_pipeline(name, spout="opaque")

        with django_assert_num_queries(len(one) + 1):
            look(600)  # after a pause, so there is an end of a period as well


@pytest.mark.django_db(transaction=True)
def test_one_worker_at_a_time_looks(lasting):
    with own_connection() as conn, conn.transaction():
        conn.execute(checking.LOCK)

        assert not checking.check()
        assert not VerdictPeriod.objects.exists()

    assert checking.check()
    assert VerdictPeriod.objects.get().pipeline == "flights"


@pytest.mark.django_db(transaction=True)
def test_the_history_follows_a_pipeline_that_is_renamed(lasting):
    checking.check()
    lasting.die()

    call_command("rename", "--pipeline", "flights", "departures")

    assert VerdictPeriod.objects.get().pipeline == "departures"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("old", "new", "kind"), [("flights", "departures", ["--pipeline"]), ("totals", "sums", [])])
def test_an_alert_left_open_under_the_new_name_does_not_stop_a_rename(lasting, rule, old, new, kind):
    ops = rule()
    for name in (old, new):
        about = {"pipeline": name} if kind else {"pipeline": "flights", "state": name}
        Alert.objects.create(rule=ops, verdict="failed", reason=f"of {name}", began_at=NOON, **about)
    lasting.die()

    call_command("rename", *kind, old, new)

    alert = Alert.objects.get()
    assert (alert.state or alert.pipeline, alert.reason) == (new, f"of {old}")
    call_command("rename", *kind, new, old)


class TestWhatIsKept:
    def test_old_periods_are_deleted_by_the_schedules_maintenance(self, filled, settings):
        settings.TIDEGAUGE_KEEP_DAYS = 90
        record_verdicts(queries.pipelines(), timezone.now() - timedelta(days=100))
        filled.report("failed", "no disk")
        record_verdicts(queries.pipelines(), timezone.now())

        services.maintain_all(kind="audit")

        assert VerdictPeriod.objects.get().verdict == "failed"

    def test_a_pipeline_that_changes_at_each_look_has_a_bounded_history(self, filled, monkeypatch):
        monkeypatch.setattr(upkeep, "MOST_PERIODS", 3)
        for second in range(0, 75, 15):
            filled.report(*(("failed", "no disk") if second % 30 else ("running",)), pending=WELL)
            record_verdicts(queries.pipelines(), timezone.now() + timedelta(seconds=second))

        upkeep.forget_old()

        assert [each.verdict for each in VerdictPeriod.objects.all()] == ["well", "failed", "well"]


class TestOnThePage:
    def bars(self, response) -> list[tuple[str, float]]:
        found = re.findall(r'<rect class="(\w+)" x="[\d.]+" y="\d+" width="([\d.]+)"', response.content.decode())
        return [(tone, float(width)) for tone, width in found]

    def test_it_shows_the_range_of_the_page_with_gaps(self, filled, reader):
        now = timezone.now()
        VerdictPeriod.objects.create(
            pipeline="flights", verdict="failed", reason="its driver has given up", is_current=False,
            began_at=now - timedelta(hours=2), until=now - timedelta(minutes=44, seconds=30),
        )  # fmt: skip
        VerdictPeriod.objects.create(
            pipeline="flights", verdict="well", reason="it has counted all input",
            began_at=now - timedelta(minutes=30), until=now - timedelta(seconds=10),
        )  # fmt: skip

        page = reader.get("/pipelines/flights/?range=1h")

        assert self.bars(page) == [("bad", pytest.approx(258, abs=2)), ("good", pytest.approx(500, abs=2))]
        assert "Status over time well 30 min · failed 15 min · not checked 14 min" in text(page)
        assert "failed unknown its driver has given up" in text(page)

    def test_a_verdict_of_now_is_shown_before_it_is_recorded(self, filled, reader):
        record_verdicts(queries.pipelines(), timezone.now() - timedelta(seconds=90))
        record_verdicts(queries.pipelines(), timezone.now() - timedelta(seconds=60))
        filled.report("failed", "no disk")

        page = reader.get("/pipelines/flights/?range=15m")

        assert [tone for tone, _ in self.bars(page)] == ["good", "bad"]

    def test_it_quotes_nothing_of_the_input(self, filled, reader, django_user_model):
        filled.report("failed", "the row was ABC,DE,1")
        record_verdicts(queries.pipelines(), timezone.now())
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

        page = reader.get("/pipelines/flights/")

        assert "its driver has given up" in text(page)
        assert "ABC" not in text(page)

    def test_without_a_history_it_says_what_records_one(self, filled, reader):
        assert "Nothing was recorded in this range. A worker with a schedule" in text(reader.get("/pipelines/flights/"))


class TestTheSchedule:
    @pytest.fixture
    def silent(self, filled, monkeypatch):
        monkeypatch.setattr(last_check, "_seconds", 0)
        last_check.clear()
        LastCheck.objects.update(at=timezone.now() - timedelta(minutes=5))

    def test_one_that_does_not_run_is_named_on_every_page_and_in_the_title(self, silent, admin_client):
        page = admin_client.get("/")

        assert "schedule stopped of 1 pipeline" in text(page)
        assert "<title>schedule stopped — Health" in page.content.decode()

    def test_a_worker_without_the_schedule_is_told_from_no_worker(self, silent, filled, admin_client):
        filled.join("worker")

        page = text(admin_client.get("/maintenance"))

        assert "The schedule has not run for 5 min . A worker is alive" in page.replace("min.", "min .")
        assert "not running" in page

    def test_once_it_runs_nothing_is_said(self, silent, admin_client):
        checking.check()

        assert "schedule stopped" not in text(admin_client.get("/"))

    def test_one_that_was_disabled_is_not_missed(self, silent):
        from django_celery_beat.models import PeriodicTask

        PeriodicTask.objects.filter(task="alerts.check").update(enabled=False)

        assert silent_since() is None

    def test_a_restricted_user_is_not_told(self, silent, reader, django_user_model):
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

        assert "schedule stopped" not in text(reader.get("/"))
