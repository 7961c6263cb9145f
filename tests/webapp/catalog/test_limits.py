"""Limits of single pipelines: what they judge, who edits them, and that they follow a rename."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.limits import Limits, limits_of, own_limits
from tidegauge.webapp.catalog.models import PipelineLimits
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.console.system_snapshot import clear_cache, system_snapshot
from tidegauge.webapp.serving.health import freshness

ADD = "/admin/states/pipelinelimits/add/"


@pytest.fixture
def waiting(filled):
    """Its oldest input has waited for 90 s."""
    oldest = datetime.now(UTC) - timedelta(seconds=90)
    filled.report("running", pending={"count": 1, "unit": "files", "oldest": oldest.isoformat()})
    return filled


def limit(**limits) -> None:
    PipelineLimits.objects.create(pipeline="flights", **limits)
    own_limits.clear()


def test_a_pipeline_has_the_limits_of_the_settings_where_it_has_none_of_its_own(db, settings):
    settings.TIDEGAUGE_STALE_AFTER_SECONDS, settings.TIDEGAUGE_REJECTED_SHARE = 300.0, 0.05
    limit(stale_seconds=60)

    assert limits_of("flights") == Limits(60, 0.05)
    assert limits_of("another") == Limits(300, 0.05)


def test_pages_readiness_and_metrics_judge_a_pipeline_by_its_own_limits(waiting, admin_client):
    limit(stale_seconds=60)
    clear_cache()

    assert verdict(queries.pipeline("flights")).name == "stale"
    assert [one.verdict.name for one in freshness(system_snapshot())] == ["stale"]
    assert b'tidegauge_pipeline_verdict{pipeline="flights",verdict="stale"} 1.0' in admin_client.get("/metrics").content
    assert "1 lagging of 1 pipeline" in text(admin_client.get("/"))


def test_a_limit_may_be_wider_than_that_of_the_settings(waiting, settings):
    settings.TIDEGAUGE_STALE_AFTER_SECONDS = 60
    limit(stale_seconds=3_600)

    assert verdict(queries.pipeline("flights")).name == "catching up"


class TestInTheAdmin:
    @pytest.fixture
    def operator(self, filled, django_user_model) -> Client:
        client = Client()
        user = django_user_model.objects.create_user("ann", is_staff=True)
        codenames = ["view_pipeline", *(f"{act}_pipelinelimits" for act in ("view", "add", "change"))]
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client.force_login(user)
        return client

    def test_limits_are_set_and_audited_with_the_pipeline(self, operator):
        limits_of("flights")

        operator.post(ADD, {"pipeline": "flights", "stale_seconds": "60", "rejected_share": "0.2"})

        assert limits_of("flights") == Limits(60, 0.2)
        entry = AuditEntry.objects.get(target="pipeline flights")
        assert (entry.actor, entry.action) == ("ann", "pipeline.limits_add")
        assert entry.detail == {"stale_seconds": 60, "rejected_share": 0.2}

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("stale_seconds", "0", "enter a number of seconds above 0, or nothing"),
            ("stale_seconds", "inf", "number"),
            ("rejected_share", "20", "enter a share from 0 to 1, such as 0.2 for 20 %, or nothing"),
            ("pipeline", "nothing", "Select a valid choice"),
        ],
    )
    def test_an_impossible_limit_is_refused(self, operator, field, value, said):
        answer = operator.post(ADD, {"pipeline": "flights", "stale_seconds": "", "rejected_share": "", field: value})

        assert said in text(answer)
        assert not PipelineLimits.objects.exists()

    def test_the_page_of_a_pipeline_leads_to_its_limits(self, operator):
        without = operator.get("/admin/states/pipeline/flights/change/")
        limit(stale_seconds=60)

        page = operator.get("/admin/states/pipeline/flights/change/")

        assert f'href="{ADD}?pipeline=flights"' in without.content.decode()
        assert 'value="flights" selected' in operator.get(f"{ADD}?pipeline=flights").content.decode()
        own = PipelineLimits.objects.get()
        assert f'href="/admin/states/pipelinelimits/{own.pk}/change/"' in page.content.decode()
        assert "lag up to 60 s, dead letters up to 5 % of recent rows" in text(page)

    def test_who_may_only_view_pipelines_cannot_set_limits(self, filled, django_user_model):
        client = Client()
        user = django_user_model.objects.create_user("bob", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
        client.force_login(user)

        assert client.post(ADD, {"pipeline": "flights", "stale_seconds": "60"}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_limits_follow_a_pipeline_that_is_renamed(lasting):
    lasting.die()
    limit(stale_seconds=60)

    call_command("rename", "--pipeline", "flights", "departures")

    assert PipelineLimits.objects.values_list("pipeline", "stale_seconds").get() == ("departures", 60)
    assert limits_of("departures").stale_seconds == 60
