import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from state_backends.journal import roster
from state_backends.journal.dead_letters import DeadLetter
from webapp.celery import app
from webapp.states.models import Batch, MaintenanceRun

STATES = "/admin/states/state/"
RUNS = "/admin/states/maintenancerun/"
CARRIERS = "flights_by_carrier"


@pytest.fixture
def sent(monkeypatch):
    """What the workers were told; nothing reaches them, for a test's transaction is not theirs to see."""
    messages = []
    monkeypatch.setattr(app, "send_task", lambda name, args: messages.append((name, args)))
    return messages


@pytest.fixture
def onlooker(db, django_user_model) -> Client:
    """Staff that may look at everything and touch nothing."""
    user = django_user_model.objects.create_user("onlooker", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(user)
    return client


def run_action(client, action, *states):
    return client.post(STATES, {"action": action, "_selected_action": states})


@pytest.mark.parametrize("kind", ["pipeline", "state", "batch", "deadletter", "maintenancerun"])
def test_rows_are_listed_and_opened_and_cannot_be_touched(filled, admin_client, kind):
    filled.commit({("JFK", "C01"): 1}, [DeadLetter("a.jsonl", "{<b>", "malformed", 3)])
    MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")
    listing = admin_client.get(f"/admin/states/{kind}/")
    first = listing.context["cl"].result_list[0].pk

    page = admin_client.get(f"/admin/states/{kind}/{first}/change/")

    assert (listing.status_code, page.status_code) == (200, 200)
    assert admin_client.get(f"/admin/states/{kind}/add/").status_code == 403
    assert admin_client.post(f"/admin/states/{kind}/{first}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("pipeline", "q=flights"),
        ("state", "q=carrier"),
        ("state", "pipeline__name__exact=flights"),
        ("batch", "q=2"),
        ("batch", "pipeline__name__exact=flights&committed_at__isempty=0"),
        ("deadletter", "q=malformed"),
        ("deadletter", "pipeline__name__exact=flights&state="),
        ("maintenancerun", "q=ann"),
        ("maintenancerun", "status__exact=queued&kind__exact=expiry&state__name__exact=flights_by_carrier"),
    ],
)
def test_lists_can_be_searched_and_filtered(filled, admin_client, kind, query):
    filled.commit({("JFK", "C01"): 1}, [DeadLetter("a.jsonl", "{", "malformed", 3)])
    MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

    listing = admin_client.get(f"/admin/states/{kind}/?{query}")

    assert listing.status_code == 200
    assert listing.context["cl"].result_count >= 1


def test_a_pipeline_leads_to_its_batches_and_a_state_to_its_runs(filled, admin_client):
    pipeline = admin_client.get("/admin/states/pipeline/flights/change/").content.decode()
    state = admin_client.get(f"{STATES}{CARRIERS}/change/").content.decode()

    assert "/admin/states/batch/?pipeline__name__exact=flights" in pipeline
    assert f"{RUNS}?state__name__exact={CARRIERS}" in state
    assert "/admin/states/pipeline/flights/change/" in state


@pytest.mark.parametrize(("action", "paused"), [("pause", True), ("resume", False)])
def test_pipelines_are_paused_and_resumed_by_those_who_may(filled, admin_client, onlooker, action, paused):
    roster.wish(filled.conn, "flights", paused=not paused, by="ann")
    steer = {"action": action, "_selected_action": ["flights"]}
    onlooker.post("/admin/states/pipeline/", steer)
    refused = roster.orders(filled.conn, "flights")

    page = admin_client.post("/admin/states/pipeline/", steer, follow=True)

    orders = roster.orders(filled.conn, "flights")
    assert (refused.paused, orders.paused, orders.by) == (not paused, paused, "admin")
    assert "pipeline &#x27;flights&#x27;: its driver" in page.content.decode()
    assert action.capitalize() not in onlooker.get("/admin/states/pipeline/").content.decode()


def test_an_open_batch_is_told_from_a_committed_one(filled, admin_client):
    batch = filled.open({("JFK", "C01"): 1})

    page = admin_client.get(f"/admin/states/batch/{Batch.objects.get(txid=batch.txid).pk}/change/").content.decode()

    assert "open" in page


class TestActions:
    @pytest.mark.parametrize(("action", "kind"), [("compact", "compaction"), ("expire", "expiry")])
    def test_one_state_leads_to_its_run(
        self, filled, admin_client, sent, action, kind, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            response = run_action(admin_client, action, CARRIERS)

        run = MaintenanceRun.objects.get()
        assert (run.kind, run.state_id, run.status, run.requested_by) == (kind, CARRIERS, "queued", "admin")
        assert response.headers["Location"] == f"{RUNS}{run.id}/change/"
        assert sent == [("states.run_maintenance", [run.id])]

    def test_several_states_lead_to_the_list_of_their_runs(self, filled, admin_client, sent):
        old = MaintenanceRun.objects.create(kind="expiry", state_id="totals", status="done", requested_by="ann")

        response = run_action(admin_client, "compact", CARRIERS, "totals")

        listed = admin_client.get(response.headers["Location"]).context["cl"].result_list
        assert {run.state_id for run in listed} == {CARRIERS, "totals"}
        assert old not in listed

    def test_a_state_that_has_a_run_says_so_and_leads_to_it(self, filled, admin_client, sent):
        going = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        response = run_action(admin_client, "compact", CARRIERS)

        page = admin_client.get(response.headers["Location"])
        assert response.headers["Location"] == f"{RUNS}{going.id}/change/"
        (message,) = page.context["messages"]
        assert f"expiry {going.id} is queued already, asked for by ann" in str(message)

    def test_an_onlooker_is_offered_no_action(self, filled, onlooker, sent):
        page = onlooker.get(STATES)

        run_action(onlooker, "compact", CARRIERS)

        assert page.status_code == 200
        assert "Expire now" not in page.content.decode()
        assert not MaintenanceRun.objects.exists()


class TestRunPage:
    def test_it_refreshes_itself_only_while_the_run_goes_on(self, filled, admin_client):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, status="running", requested_by="ann")
        going = admin_client.get(f"{RUNS}{run.id}/change/").content.decode()
        MaintenanceRun.objects.update(status="done")

        done = admin_client.get(f"{RUNS}{run.id}/change/").content.decode()

        assert 'http-equiv="refresh"' in going
        assert 'http-equiv="refresh"' not in done

    def test_it_tells_progress_and_figures_before_and_after(self, filled, admin_client):
        run = MaintenanceRun.objects.create(
            kind="compaction",
            state_id=CARRIERS,
            status="done",
            requested_by="ann",
            progress={"steps": [{"step": "changelog entries", "seen": 90_000, "removed": 1_234}]},
            before={"changelog_rows": 90_000, "changelog_bytes": 2_097_152},
            after={"changelog_rows": 88_766, "changelog_bytes": 1_048_576},
        )

        page = admin_client.get(f"{RUNS}{run.id}/change/")

        assert page.context["progress_table"]["rows"] == [["changelog entries", "90,000", "1,234"]]
        assert page.context["figures_table"]["rows"] == [
            ["changelog rows", "90,000", "88,766", "-1,234"],
            ["changelog bytes", "2.0\xa0MB", "1.0\xa0MB", "-1.0\xa0MB"],
        ]
        assert "Compaction of flights_by_carrier: done" in page.content.decode()

    def test_a_run_can_be_cancelled_from_its_page(self, filled, admin_client):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")
        cancel = f"{RUNS}{run.id}/cancel/"

        assert cancel in admin_client.get(f"{RUNS}{run.id}/change/").content.decode()
        assert admin_client.get(cancel).status_code == 405
        assert admin_client.post(cancel).headers["Location"] == f"{RUNS}{run.id}/change/"
        run.refresh_from_db()
        assert run.status == "cancelled"

    def test_an_onlooker_cannot_cancel(self, filled, onlooker):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        assert onlooker.post(f"{RUNS}{run.id}/cancel/").status_code == 403

    def test_an_unknown_run_leads_back(self, admin_client):
        assert admin_client.get(f"{RUNS}4711/change/").status_code == 302


class TestSchedule:
    def test_it_can_be_edited(self, admin_client):
        from django_celery_beat.models import PeriodicTask

        tasks = {task.name: task for task in PeriodicTask.objects.filter(task="states.maintain_all")}
        assert {(task.args, str(task.interval)) for task in tasks.values()} == {
            ('["compaction"]', "every hour"),
            ('["expiry"]', "every 10 minutes"),
        }

        page = admin_client.get(f"/admin/django_celery_beat/periodictask/{tasks['Compact all states'].pk}/change/")

        assert page.status_code == 200

    @pytest.mark.parametrize("kind", ["intervalschedule", "crontabschedule", "solarschedule", "clockedschedule"])
    def test_its_pages_open(self, admin_client, kind):
        assert admin_client.get(f"/admin/django_celery_beat/{kind}/add/").status_code == 200


def test_the_sidebar_offers_what_a_person_may_see(db, django_user_model):
    user = django_user_model.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_deadletter"))
    client = Client()
    client.force_login(user)

    page = client.get("/admin/")

    offered = [item["title"] for group in page.context["sidebar_navigation"] for item in group["items"]]
    assert offered == ["Dashboard", "Dead letters"]
