"""Every page that a browser can open, with something to show on each, for tests that visit all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from tests.webapp.boards import boards
from tests.webapp.committed_flights import committed_flights
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import Batch, MaintenanceRun
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence, VerdictPeriod
from tidegauge.webapp.notify.webhooks import outbox

SIGN_IN = ["/login"]
MISSING = ["/nowhere", "/shared/boards/nothing", "/states/nothing/", "/pipelines/flights/batches/99"]

DASHBOARD = [
    "/",
    "/alerts",
    "/alerts/rules/new",
    "/states/",
    "/pipelines/",
    "/explore",
    "/pipelines/flights/",
    "/pipelines/flights/states",
    "/pipelines/flights/api",
    "/pipelines/flights/operations?to=1",
    "/pipelines/flights/batches",
    "/pipelines/flights/batches/2",
    "/pipelines/flights/dead-letters",
    "/states/flights_by_carrier/",
    "/states/flights_by_carrier/schema",
    "/states/flights_by_carrier/api",
    "/states/flights_by_carrier/maintenance",
    "/states/flights_by_hour/",
    "/states/totals/",
    "/states/flights_by_carrier/compact",
    "/states/flights_by_carrier/expire",
    "/states/flights_by_carrier/audit",
    "/pipelines/flights/dead-letters/replay",
    '/states/flights_by_carrier/compare?key=["EWR","C00"]&key=["LGA","C01"]&than=1',
    "/states/flights_by_carrier/explore?group=origin&order=-flights",
    "/states/flights_by_carrier/explore?where=flights>1&order=-flights&measures=flights,max_delay",
    '/states/flights_by_carrier/key?key=["EWR","C00"]',
    '/states/flights_by_carrier/key?key=["EWR","nothing"]',
    "/states/flights_by_carrier/key?key=EWR",
    "/states/flights_by_carrier/lookup?keys=EWR,C00%0AEWR,nothing%0AEWR",
    "/states/flights_by_carrier/explore/save?group=origin&order=-flights",
    "/states/flights_by_carrier/compare/save?key=EWR,C00",
    "/views",
    "/views?state=totals",
    "/views/origins/edit",
    "/views/origins/delete",
    "/views/last_year",
    "/states/flights_by_carrier/explore?group=origin&view=origins",
    "/lineage",
    "/maintenance",
    "/keys",
    "/keys/new",
    "/problems",
    "/search?q=flights",
    "/sql",
]
ADMIN = [
    "/admin/",
    "/admin/states/state/",
    "/admin/states/state/flights_by_carrier/change/",
    "/admin/states/pipeline/",
    "/admin/states/pipeline/flights/change/",
    "/admin/states/batch/",
    "/admin/states/deadletter/",
    "/admin/states/maintenancerun/",
    "/admin/states/pipelinelimits/",
    "/admin/states/pipelinelimits/add/",
    "/admin/tidegauge_alerts/alertrule/",
    "/admin/tidegauge_alerts/alertrule/add/",
    "/admin/tidegauge_alerts/alert/",
    "/admin/tidegauge_alerts/silence/",
    "/admin/tidegauge_alerts/silence/add/",
    "/admin/saved_queries/savedquery/",
    "/admin/tidegauge_saved_views/savedview/",
    "/admin/tidegauge_saved_views/savedview/origins/change/",
    "/admin/tidegauge_saved_views/savedview/origins/delete/",
    "/admin/webhooks/webhook/",
    "/admin/webhooks/webhook/add/",
    "/admin/webhooks/delivery/",
    "/admin/api_keys/apikey/",
    "/admin/api_keys/apikey/add/",
    "/admin/api_keys/usagehour/",
    "/admin/audit/auditentry/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/group/",
    "/admin/auth/group/add/",
    "/admin/django_celery_beat/periodictask/",
    "/admin/django_celery_beat/crontabschedule/",
    "/admin/django_celery_beat/crontabschedule/add/",
    "/admin/django_celery_beat/intervalschedule/",
    "/admin/password_change/",
]
API_REFERENCE = ["/api/docs", "/api/docs/look_up_state", "/api/docs/list_entries"]


@contextmanager
def every_page(admin: User) -> Iterator[list[str]]:
    """The paths of all pages, which show a pipeline with three batches and a row of each model."""
    key, _ = create_api_key("feed", ["read"])
    entry = record("key.create", "API key feed", by="ada")
    hourly = CrontabSchedule.objects.create(minute="0")
    task = PeriodicTask.objects.create(name="Compact", task="states.maintain_all", crontab=hourly)
    with committed_flights() as flights, boards(admin) as pages_of_boards:
        flights.commit({("LGA", "C01"): 3}, letters=[DeadLetter("day.json", "{", "not JSON", record={"line": "{"})])
        flights.fail("day.json: no such column 'carrier'", failures=2)
        run = MaintenanceRun.objects.create(kind="compaction", state_id="totals", requested_by="ada", status="done")
        batch = Batch.objects.get(txid=2)
        _alerts()
        _saved_views(admin)
        yield [
            *DASHBOARD,
            *pages_of_boards,
            f"/maintenance/{run.id}",
            *ADMIN,
            f"/admin/states/batch/{batch.pk}/change/",
            f"/admin/states/maintenancerun/{run.id}/change/",
            f"/admin/api_keys/apikey/{key.pk}/change/",
            f"/admin/api_keys/apikey/{key.pk}/rotate/",
            f"/keys/{key.pk}/revoke",
            f"/admin/audit/auditentry/{entry.pk}/change/",
            f"/admin/auth/user/{admin.pk}/change/",
            f"/admin/auth/user/{admin.pk}/password/",
            f"/admin/django_celery_beat/periodictask/{task.pk}/change/",
            f"/admin/django_celery_beat/periodictask/{task.pk}/delete/",
            *API_REFERENCE,
        ]


def _saved_views(owner: User) -> None:
    """One of which a column is gone, and one of which the state is."""
    shared = {"owner": owner, "is_shared": True}
    question = {"group": ["origin"], "order": "-flights", "measures": "flights,lost"}
    SavedView.objects.create(
        id="origins", name="Flights by origin", state="flights_by_carrier", question=question, **shared
    )
    SavedView.objects.create(
        id="last_year", name="Busiest carriers of last year", state="flights_2025", question=question, **shared
    )


def _alerts() -> None:
    """Alerts open and over, a limit of an unknown figure, a silence and a message, beside a history of verdicts."""
    now = timezone.now()
    began, changed = now - timedelta(minutes=40), now - timedelta(minutes=10)
    VerdictPeriod.objects.create(
        pipeline="flights", verdict="running", reason="it has counted all input",
        began_at=began, until=changed, is_current=False,
    )  # fmt: skip
    VerdictPeriod.objects.create(
        pipeline="flights", verdict="retrying", reason="it failed and tries again", began_at=changed, until=now
    )
    rule = AlertRule.objects.create(
        name="on call", verdicts=["retrying"], event_age_seconds=60, mail_to=["ann@example.com"]
    )
    told = {"rule": rule, "pipeline": "flights", "reason": "it failed", "began_at": changed}
    Alert.objects.create(verdict="retrying", told="retrying", **told)
    Alert.objects.create(state="totals", verdict="not served", told=Alert.OVER, ended_at=now, **told)
    Silence.objects.create(pipeline="flights", until=now + timedelta(hours=1), reason="a disk is replaced")
    outbox.add_mail(rule.mail_to, "Tidegauge: 2 alerts", "retrying", event="alert.changed", source=f"{rule.source}1")
