"""Actions on many rows: a page says what will happen to each, then it happens."""

from datetime import timedelta

import pytest

from state_backends import Catalog, driver_status
from tests.state_backends.feed import let_time_pass
from tests.webapp.flights import BY_CARRIER
from webapp.states.models import MaintenanceRun

PIPELINES = "/admin/states/pipeline/"
STATES = "/admin/states/state/"
RUNS = "/admin/states/maintenancerun/"
CARRIERS = "flights_by_carrier"


def act(client, action, *rows, confirmed=True, at=STATES, **options):
    yes = {"confirmed": "yes"} if confirmed else {}
    return client.post(at, {"action": action, "_selected_action": rows, **yes}, **options)


def asked(page):
    """Return what the page says of each row: its cells as text, the name first."""
    return {
        str(row[0]).split(">")[1].split("<")[0]: [str(cell) for cell in row[1:]]
        for row in page.context["table"]["rows"]
    }


def sends(page):
    """Return what the page's form posts."""
    return {
        name: [value for held, value in page.context["hidden"] if held == name] for name, _ in page.context["hidden"]
    }


class TestQuestion:
    def test_nothing_happens_before_it_is_confirmed(self, filled, admin_client, sent):
        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        assert page.status_code == 200
        assert not MaintenanceRun.objects.exists()
        assert sends(page) == {"action": ["compact"], "_selected_action": [CARRIERS, "totals"], "confirmed": ["yes"]}

    def test_what_its_form_sends_is_what_was_chosen(self, filled, admin_client, sent):
        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        admin_client.post(STATES, sends(page))

        assert {run.state_id for run in MaintenanceRun.objects.all()} == {CARRIERS, "totals"}

    def test_it_leads_back_to_the_list_as_it_was(self, filled, admin_client):
        at = f"{STATES}?q=flights"

        page = act(admin_client, "expire", CARRIERS, confirmed=False, at=at)

        assert f'href="{at}"' in page.content.decode()

    def test_a_compaction_says_how_far_it_goes(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=10))
        filled.commit({("EWR", "C00"): 1})

        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        said = asked(page)
        assert "drop up to 61 entries of its changelog up to batch 2, of" in said[CARRIERS][2]
        assert said["totals"][2] == "drop tombstones, give dead space back; it keeps no changelog"
        assert "older than 7 days" in page.context["question"].says[0]

    def test_a_compaction_of_what_is_young_says_so(self, filled, admin_client):
        page = act(admin_client, "compact", CARRIERS, confirmed=False)

        assert asked(page)[CARRIERS][2] == "give dead space back; nothing is older than 7 days yet"

    def test_an_expiry_says_what_it_would_free(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=401))
        filled.commit({("EWR", "C00"): 1})

        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        assert asked(page)[CARRIERS][2] == "free 59 rows that were not updated for 400 days"

    def test_it_is_counted_by_what_is_set(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=2))
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(days=1))

        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        assert asked(page)[CARRIERS][2] == "free 60 rows that were not updated for 1 day"

    def test_keys_and_bytes_are_those_of_now(self, filled, admin_client):
        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        keys, size, _, busy = asked(page)[CARRIERS]
        assert (keys, busy) == ("60", "nothing")
        assert size.endswith("KB")

    def test_a_run_in_the_way_is_named(self, filled, admin_client):
        going = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        page = act(admin_client, "compact", CARRIERS, confirmed=False)

        assert f"expiry {going.id} is queued: no other is queued" in asked(page)[CARRIERS][3]

    def test_states_without_a_ttl_are_left_out_of_an_expiry(self, filled, admin_client, sent):
        page = act(admin_client, "expire", CARRIERS, "totals", confirmed=False)

        act(admin_client, "expire", CARRIERS, "totals")

        assert asked(page)["totals"][2] == "nothing: it has no ttl, its rows are kept for ever"
        assert page.context["question"].verb == "Expire 1 of them"
        assert [run.state_id for run in MaintenanceRun.objects.all()] == [CARRIERS]

    def test_there_is_no_way_on_where_nothing_would_be_done(self, filled, admin_client):
        page = act(admin_client, "expire", "totals", confirmed=False)

        form = page.content.decode().split('class="flex flex-row flex-wrap gap-3"')[1].split("</form>")[0]
        assert 'type="submit"' not in form

    def test_more_states_take_no_more_statements(self, filled, admin_client, django_assert_num_queries):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        with CaptureQueriesContext(connection) as one:
            act(admin_client, "compact", CARRIERS, confirmed=False)

        with django_assert_num_queries(len(one)):
            act(admin_client, "compact", CARRIERS, "totals", "flights_by_hour", confirmed=False)


class TestMaintenance:
    @pytest.mark.parametrize(("action", "kind"), [("compact", "compaction"), ("expire", "expiry")])
    def test_one_state_leads_to_its_run(
        self, filled, admin_client, sent, action, kind, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            response = act(admin_client, action, CARRIERS)

        run = MaintenanceRun.objects.get()
        assert (run.kind, run.state_id, run.status, run.requested_by) == (kind, CARRIERS, "queued", "admin")
        assert response.headers["Location"] == f"{RUNS}{run.id}/change/"
        assert sent == [("states.run_maintenance", [run.id])]

    def test_several_states_lead_to_the_list_of_their_runs(self, filled, admin_client, sent):
        old = MaintenanceRun.objects.create(kind="expiry", state_id="totals", status="done", requested_by="ann")

        response = act(admin_client, "compact", CARRIERS, "totals")

        listed = admin_client.get(response.headers["Location"]).context["cl"].result_list
        assert {run.state_id for run in listed} == {CARRIERS, "totals"}
        assert old not in listed

    def test_a_state_that_has_a_run_says_so_and_leads_to_it(self, filled, admin_client, sent):
        going = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        response = act(admin_client, "compact", CARRIERS)

        page = admin_client.get(response.headers["Location"])
        assert response.headers["Location"] == f"{RUNS}{going.id}/change/"
        (message,) = page.context["messages"]
        assert f"expiry {going.id} is queued already, asked for by ann" in str(message)

    @pytest.mark.parametrize("confirmed", [False, True])
    def test_an_onlooker_is_offered_no_action_and_has_none(self, filled, onlooker, sent, confirmed):
        page = onlooker.get(STATES)

        answer = act(onlooker, "compact", CARRIERS, confirmed=confirmed)

        assert "Expire .." not in page.content.decode()
        assert "question" not in (answer.context or {})
        assert not MaintenanceRun.objects.exists()


class TestPause:
    @pytest.mark.parametrize(("action", "paused"), [("pause", True), ("resume", False)])
    def test_pipelines_are_paused_and_resumed_by_those_who_may(self, filled, admin_client, onlooker, action, paused):
        driver_status.set_desired_state(filled.conn, "flights", paused=not paused, by="ann")
        act(onlooker, action, "flights", at=PIPELINES)
        refused = driver_status.read_desired_state(filled.conn, "flights")

        page = act(admin_client, action, "flights", at=PIPELINES, follow=True)

        orders = driver_status.read_desired_state(filled.conn, "flights")
        assert (refused.paused, orders.paused, orders.by) == (not paused, paused, "admin")
        assert "pipeline &#x27;flights&#x27;: its driver" in page.content.decode()
        assert f"{action.capitalize()} .." not in onlooker.get(PIPELINES).content.decode()

    @pytest.mark.parametrize(
        ("action", "paused", "dead", "will"),
        [
            ("pause", False, False, "its driver pauses after the batch at hand"),
            ("pause", True, False, "it is to pause already, as ann wished"),
            ("pause", False, True, "no driver lives; one that is started waits until the pipeline is resumed"),
            ("resume", True, False, "its driver goes on within a second"),
            ("resume", False, False, "it is to run already"),
            ("resume", True, True, "no driver lives; one that is started runs"),
        ],
    )
    def test_a_page_says_first_what_will_happen(self, filled, admin_client, action, paused, dead, will):
        driver_status.set_desired_state(filled.conn, "flights", paused=paused, by="ann")
        if dead:
            filled.die()

        page = act(admin_client, action, "flights", at=PIPELINES, confirmed=False)

        assert asked(page)["flights"][2] == will
        assert driver_status.read_desired_state(filled.conn, "flights").by == "ann"
