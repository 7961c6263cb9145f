"""The Health page: its title is the verdict, incidents are grouped by cause and can be acted on, services are shown."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.console.dashboard import service_strip
from tidegauge.webapp.console.dashboard.health import waterline
from tidegauge.webapp.notify.alerts import checking
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge, acknowledgements
from tidegauge.webapp.notify.alerts.models import Acknowledgement, HealthSample, Silence

LAG = {"count": 3, "unit": "files"}


def also(conn, name: str, status: str, message: str = "") -> BatchLedger:
    """Another pipeline, whose driver has reported this."""
    Catalog(conn).register_pipeline(name, spout="opaque")
    ledger = BatchLedger(conn, name)
    ledger.acquire()
    driver_status.report(conn, name, status, message, {"pending": {"count": 0, "unit": "files"}}, failures=1)
    if status in ("failed", "stopped"):
        ledger.release()
    return ledger


@pytest.fixture
def failures(filled):
    """Two pipelines that failed for one cause, and one for another, beside `flights`, which is well."""
    also(filled.conn, "orders", "failed", "SocketTimeout reading 'db-1' after 30 s\nat line 1")
    also(filled.conn, "returns", "failed", "SocketTimeout reading 'db-2' after 31 s")
    also(filled.conn, "shops", "failed", "no such column")
    return filled


@pytest.fixture
def may_silence(reader) -> User:
    user = User.objects.get(username="reader")
    user.user_permissions.add(Permission.objects.get(codename="add_silence"))
    return user


class TestTitle:
    def test_it_is_the_verdict_on_all_pipelines(self, failures, reader):
        page = reader.get("/").content.decode()

        assert "<h1>3 of 4 pipelines need you</h1>" in page

    def test_what_is_acknowledged_needs_nobody(self, failures, reader, may_silence):
        acknowledge([queries.pipeline("orders"), queries.pipeline("shops")], may_silence)
        assert "1 of 4 pipelines needs you 2 acknowledged" in text(reader.get("/"))

        acknowledge(queries.pipelines(), may_silence)
        assert "Every problem is acknowledged 3 acknowledged" in text(reader.get("/"))


class TestIncidents:
    def test_pipelines_with_one_cause_are_one_incident(self, failures, reader):
        page = reader.get("/").content.decode()

        found = re.findall(r'<li class="panel incident is-bad(?: grouped)?" id="incident-(\w+)"', page)
        assert found == ["orders", "shops"]
        assert "2 pipelines SocketTimeout reading &#x27;db-1&#x27; after 30 s" in re.sub("<[^>]+>", "", page)

    def test_an_incident_has_since_host_cause_and_command(self, failures, reader):
        page = text(reader.get("/"))

        assert re.search(r"shops failed No such column since [\d: -]+ UTC · host \S+ Why\?", page)

    def test_a_retrying_one_with_the_same_cause_belongs_to_it(self, failures, reader):
        also(failures.conn, "late", "restarting", "SocketTimeout reading 'db-3' after 9 s")

        assert "3 pipelines SocketTimeout" in text(reader.get("/"))


class TestActs:
    def test_acknowledging_names_who_takes_care(self, failures, reader, may_silence):
        page = reader.post("/incidents/acknowledge", {"pipeline": ["orders", "returns"]}, follow=True)

        assert "Acknowledged: orders, returns." in text(page)
        assert text(page).count("acknowledged by reader just now") == 2

    def test_silencing_is_for_an_hour_or_until_the_readers_morning(self, failures, reader, may_silence):
        morning = timezone.now() + timedelta(hours=11)
        reader.post("/incidents/silence", {"pipeline": "orders", "until": ""})
        reader.post("/incidents/silence", {"pipeline": "shops", "until": morning.isoformat()})

        lengths = {each.pipeline: each.until - timezone.now() for each in Silence.objects.all()}
        assert lengths["orders"] == pytest.approx(timedelta(hours=1), abs=timedelta(minutes=1))
        assert lengths["shops"] == pytest.approx(timedelta(hours=11), abs=timedelta(minutes=1))
        assert "silenced until" in text(reader.get("/"))

    @pytest.mark.parametrize("until", ["2020-01-01T09:00:00Z", "2999-01-01T09:00:00Z", "2026-13-01", "tomorrow"])
    def test_any_other_time_is_an_hour(self, failures, reader, may_silence, until):
        reader.post("/incidents/silence", {"pipeline": "orders", "until": until})

        assert Silence.objects.get().until - timezone.now() < timedelta(minutes=61)

    def test_others_may_not_and_see_no_buttons(self, failures, reader):
        assert reader.post("/incidents/silence", {"pipeline": "orders"}).status_code == 403
        assert "Acknowledge" not in text(reader.get("/"))

    def test_a_restricted_person_may_not(self, failures, reader, may_silence):
        Restriction.objects.create(user=may_silence, states=["totals"])

        assert reader.post("/incidents/silence", {"pipeline": "orders"}).status_code == 403
        assert not Silence.objects.exists()


class TestAcknowledgement:
    def held(self) -> list[str]:
        return sorted(acknowledgements(queries.pipelines()))

    def test_it_ends_when_the_pipeline_is_well(self, failures, django_user_model):
        acknowledge(queries.pipelines(), django_user_model.objects.create_user("ann"))
        assert self.held() == ["orders", "returns", "shops"]
        driver_status.report(failures.conn, "shops", "finished")

        assert self.held() == ["orders", "returns"]
        checking.check()
        assert not Acknowledgement.objects.filter(pipeline="shops").exists()

    def test_it_ends_with_a_new_driver_and_a_worse_verdict(self, failures, django_user_model):
        also(failures.conn, "late", "stopped")
        acknowledge(queries.pipelines(), django_user_model.objects.create_user("ann"))
        failures.conn.execute("UPDATE tidegauge.driver SET since = clock_timestamp() WHERE pipeline = 'shops'")
        driver_status.report(failures.conn, "late", "failed")

        assert self.held() == ["orders", "returns"]


class TestServices:
    def test_all_four_are_shown(self, filled, reader, monkeypatch):
        for role in ("worker", "events"):
            filled.join(role)

        assert "Database works Redis works Worker works Events works 2 processes" in text(reader.get("/"))

    def test_what_is_off_says_what_that_means(self, filled, reader, monkeypatch):
        monkeypatch.setattr(service_strip, "redis_answers", lambda: False)
        filled.join("worker")
        filled.conn.execute("UPDATE tidegauge.synchronizer SET appended_at = appended_at - interval '1 minute'")

        page = text(reader.get("/"))

        assert "Redis does not answer: states in Redis are not served" in page
        assert "Worker does not respond: no maintenance, no alerts and no history" in page
        assert "Events is not running: pages ask for changes every few seconds" in page

    def test_redis_that_is_off_is_noticed(self, settings):
        from tidegauge.webapp.accounts import rate_limits

        rate_limits.reset()
        assert rate_limits.is_available()
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
        assert not rate_limits.is_available()
        rate_limits.reset()


class TestWaterline:
    NOW = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)

    def point(self, minutes_ago: float, lag: float | None) -> HealthSample:
        return HealthSample(at=self.NOW - timedelta(minutes=minutes_ago), lag_seconds=lag, rows=0, dead_letters=0)

    def test_it_is_above_the_mark_while_the_worst_lag_is_above_the_limit(self):
        below = waterline([self.point(1, 10.0), self.point(0, 20.0)], self.NOW, 300.0)
        above = waterline([self.point(1, 10.0), self.point(0, 320.0)], self.NOW, 300.0)

        assert (below.is_above, above.is_above) == (False, True)
        assert below.areas == ["983.3,66 983.3,62.4 1000,60.8 1000,66"]
        assert waterline([self.point(0, 5.0)], self.NOW, None).mark is None

    def test_an_hour_without_checks_is_a_gap(self):
        points = [self.point(30, 1.0), self.point(29, 1.0), self.point(2, 1.0), self.point(1, 1.0)]

        assert len(waterline(points, self.NOW, 300.0).areas) == 2

    def test_each_check_records_the_worst_lag_and_the_share_of_rejected_rows(self, filled, reader):
        oldest = datetime.now(UTC) - timedelta(seconds=100)
        filled.report("running", pending=LAG | {"oldest": oldest.isoformat()})
        checking.check()

        assert HealthSample.objects.get().lag_seconds == pytest.approx(100, abs=20)
        assert "Worst lag, last hour · limit 5 min" in text(reader.get("/"))


def test_a_restricted_person_sees_no_services_and_nothing_of_others(failures, reader, django_user_model):
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    page = text(reader.get("/"))

    assert "The pipeline is well" in page
    assert [word for word in ("Redis", "orders", "SocketTimeout", "API requests, last") if word in page] == []
