"""Actions on many rows: a page shows the effect on each, and they run once it is confirmed."""

from datetime import timedelta

import pytest

from tests.state_backends.feed import let_time_pass
from tests.webapp.flights import BY_CARRIER
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.catalog.models import DeadLetter as DeadLetterRow
from tidegauge.webapp.catalog.models import MaintenanceRun

LETTERS = "/admin/states/deadletter/"
PIPELINES = "/admin/states/pipeline/"
STATES = "/admin/states/state/"
RUNS = "/admin/states/maintenancerun/"
CARRIERS = "flights_by_carrier"


def act(client, action, *rows, confirmed=True, at=STATES, **options):
    """Choose an action, and confirm what its page says."""
    page = client.post(at, {"action": action, "_selected_action": rows})
    if not confirmed:
        return page
    posted = form_values(page) if "confirmation" in (page.context or {}) else {"confirmed": "yes"}
    return client.post(at, {"action": action, "_selected_action": rows, **posted}, **options)


def rows_of(page):
    """Return the rows of the page: name to the other cells as text."""
    return {
        str(row[0]).split(">")[1].split("<")[0]: [str(cell) for cell in row[1:]]
        for row in page.context["table"]["rows"]
    }


def form_values(page):
    """Return what the form of the page posts."""
    return {
        name: [value for held, value in page.context["hidden"] if held == name] for name, _ in page.context["hidden"]
    }


class TestConfirmation:
    def test_nothing_happens_before_it_is_confirmed(self, filled, admin_client, sent):
        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        assert page.status_code == 200
        assert not MaintenanceRun.objects.exists()
        posted = form_values(page)
        assert posted.pop("seen")
        assert posted == {"action": ["compact"], "_selected_action": [CARRIERS, "totals"], "confirmed": ["yes"]}

    def test_its_form_posts_the_selection(self, filled, admin_client, sent):
        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        admin_client.post(STATES, form_values(page))

        assert {run.state_id for run in MaintenanceRun.objects.all()} == {CARRIERS, "totals"}

    def test_cancel_returns_to_the_list_as_it_was(self, filled, admin_client):
        at = f"{STATES}?q=flights"

        page = act(admin_client, "expire", CARRIERS, confirmed=False, at=at)

        assert f'href="{at}"' in page.content.decode()

    def test_a_compaction_says_how_far_it_goes(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=10))
        filled.commit({("EWR", "C00"): 1})

        page = act(admin_client, "compact", CARRIERS, "totals", confirmed=False)

        rows = rows_of(page)
        assert "remove 1 of 62 entries of its changelog, up to batch 2 of" in rows[CARRIERS][2]
        assert rows[CARRIERS][2].endswith("UTC; batch 1 can no longer be read")
        assert rows["totals"][2] == "remove tombstones and free unused space; it has no changelog"
        assert "older than 7 days" in page.context["confirmation"].notes[0]

    def test_a_compaction_without_old_history_says_so(self, filled, admin_client):
        page = act(admin_client, "compact", CARRIERS, confirmed=False)

        assert rows_of(page)[CARRIERS][2] == "free unused space; no history is older than 7 days yet"

    def test_an_expiry_says_what_it_would_remove(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=401))
        filled.commit({("EWR", "C00"): 1})

        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        assert rows_of(page)[CARRIERS][2] == "remove 59 of 60 rows, not updated for 400 days"

    def test_it_counts_by_the_overridden_ttl(self, filled, admin_client):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=2))
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(days=1))

        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        assert rows_of(page)[CARRIERS][2] == "remove 60 of 60 rows, not updated for 1 day"

    def test_keys_and_bytes_are_those_of_now(self, filled, admin_client):
        page = act(admin_client, "expire", CARRIERS, confirmed=False)

        keys, size, _, active = rows_of(page)[CARRIERS]
        assert (keys, active) == ("60", "none")
        assert size.endswith("kB")

    def test_an_active_run_is_named(self, filled, admin_client):
        going = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        page = act(admin_client, "compact", CARRIERS, confirmed=False)

        assert f"expiry {going.id} is queued: no other run is queued" in rows_of(page)[CARRIERS][3]

    def test_states_without_a_ttl_are_left_out_of_an_expiry(self, filled, admin_client, sent):
        page = act(admin_client, "expire", CARRIERS, "totals", confirmed=False)

        act(admin_client, "expire", CARRIERS, "totals")

        assert rows_of(page)["totals"][2] == "none: its retention is unlimited"
        assert page.context["confirmation"].button == "Expire 1 of them"
        assert [run.state_id for run in MaintenanceRun.objects.all()] == [CARRIERS]

    def test_without_an_effect_there_is_no_button(self, filled, admin_client):
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
    def test_one_state_redirects_to_its_run(
        self, filled, admin_client, sent, action, kind, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            response = act(admin_client, action, CARRIERS)

        run = MaintenanceRun.objects.get()
        assert (run.kind, run.state_id, run.status, run.requested_by) == (kind, CARRIERS, "queued", "admin")
        assert response.headers["Location"] == f"{RUNS}{run.id}/change/"
        assert sent == [("states.run_maintenance", [run.id])]

    def test_several_states_redirect_to_the_list_of_their_runs(self, filled, admin_client, sent):
        old = MaintenanceRun.objects.create(kind="expiry", state_id="totals", status="done", requested_by="ann")

        response = act(admin_client, "compact", CARRIERS, "totals")

        listed = admin_client.get(response.headers["Location"]).context["cl"].result_list
        assert {run.state_id for run in listed} == {CARRIERS, "totals"}
        assert old not in listed

    def test_a_state_with_an_active_run_redirects_to_it(self, filled, admin_client, sent):
        going = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        response = act(admin_client, "compact", CARRIERS)

        page = admin_client.get(response.headers["Location"])
        assert response.headers["Location"] == f"{RUNS}{going.id}/change/"
        (message,) = page.context["messages"]
        assert f"expiry {going.id} is queued already, asked for by ann" in str(message)

    @pytest.mark.parametrize("confirmed", [False, True])
    def test_a_viewer_gets_no_action_and_no_access(self, filled, viewer, sent, confirmed):
        page = viewer.get(STATES)

        answer = act(viewer, "compact", CARRIERS, confirmed=confirmed)

        assert "Expire…" not in page.content.decode()
        assert "confirmation" not in (answer.context or {})
        assert not MaintenanceRun.objects.exists()


class TestPause:
    @pytest.mark.parametrize(("action", "paused"), [("pause", True), ("resume", False)])
    def test_operators_pause_and_resume_pipelines(self, filled, admin_client, viewer, action, paused):
        driver_status.set_desired_state(filled.conn, "flights", paused=not paused, by="ann")
        act(viewer, action, "flights", at=PIPELINES)
        refused = driver_status.read_desired_state(filled.conn, "flights")

        page = act(admin_client, action, "flights", at=PIPELINES, follow=True)

        orders = driver_status.read_desired_state(filled.conn, "flights")
        assert (refused.paused, orders.paused, orders.by) == (not paused, paused, "admin")
        assert "pipeline &#x27;flights&#x27;: the driver" in page.content.decode()
        assert f"{action.capitalize()}…" not in viewer.get(PIPELINES).content.decode()

    @pytest.mark.parametrize(
        ("action", "paused", "dead", "will"),
        [
            ("pause", False, False, "the driver pauses after the current batch"),
            ("pause", True, False, "no change: ann has already requested it"),
            ("pause", False, True, "no driver is running; one that starts waits until the pipeline is resumed"),
            ("resume", True, False, "the driver continues within a second"),
            ("resume", False, False, "no change: it is not paused"),
            ("resume", True, True, "no driver is running; one that starts processes input"),
        ],
    )
    def test_a_page_shows_the_effect_first(self, filled, admin_client, action, paused, dead, will):
        driver_status.set_desired_state(filled.conn, "flights", paused=paused, by="ann")
        if dead:
            filled.die()

        page = act(admin_client, action, "flights", at=PIPELINES, confirmed=False)

        assert rows_of(page)["flights"][2] == will
        assert driver_status.read_desired_state(filled.conn, "flights").by == "ann"


class TestReplay:
    @pytest.fixture
    def letters(self, filled):
        records = [{"n": 1}, {"n": 2}, None]
        filled.commit({("JFK", "C00"): 1}, [DeadLetter("a.json", "{", "not JSON", record=each) for each in records])
        return [str(letter.pk) for letter in DeadLetterRow.objects.order_by("id")]

    def test_chosen_letters_are_replayed_once_it_is_confirmed(self, filled, letters, admin_client):
        page = act(admin_client, "replay", letters[0], letters[2], at=LETTERS, confirmed=False)
        before = DeadLetterRow.objects.exclude(replay_at=None).count()
        done = act(admin_client, "replay", letters[0], letters[2], at=LETTERS, follow=True)

        assert rows_of(page)["flights"] == ["1", "1", "0", "3"]
        assert before == 0
        assert "replay of 1 letters requested" in done.content.decode()
        assert [str(letter.pk) for letter in DeadLetterRow.objects.exclude(replay_at=None)] == letters[:1]

    def test_a_refusal_is_shown(self, filled, letters, admin_client):
        page = act(admin_client, "replay", letters[2], at=LETTERS, follow=True)

        assert "none of the chosen dead letters can be replayed" in page.content.decode()

    def test_a_viewer_is_not_offered_it(self, letters, viewer):
        assert "Replay…" not in viewer.get(LETTERS).content.decode()
