"""What the page before an act says, and when a page that was confirmed is refused."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.core import signing

from tests.state_backends.feed import let_time_pass
from tests.webapp.confirming import confirm
from tests.webapp.console.dashboard.page_text import text
from tests.webapp.flights import BY_CARRIER
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog.models import DeadLetter as DeadLetterRow
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.maintenance import runner, services

CARRIERS = "flights_by_carrier"
COMPACT, EXPIRE, AUDIT = (f"/states/{CARRIERS}/{act}" for act in ("compact", "expire", "audit"))
REPLAY = "/pipelines/flights/dead-letters/replay"


@pytest.fixture
def operator(reader, django_user_model):
    user = django_user_model.objects.get(username="reader")
    user.user_permissions.set(Permission.objects.filter(codename__in=["add_maintenancerun", "replay_dead_letters"]))
    return reader


@pytest.fixture
def aged(filled):
    """Its first two batches are older than compaction keeps."""
    let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=10))
    filled.commit({("EWR", "C00"): 1})
    return filled


def posted(client, address):
    return dict(client.get(address).context["confirmation"].posted)


class TestWhatThePageSays:
    def test_it_says_what_goes_and_what_can_no_longer_be_read(self, aged, operator):
        page = text(operator.get(COMPACT))

        assert "remove 1 of 62 entries of its changelog, up to batch 2 of" in page
        assert "; batch 1 can no longer be read" in page

    def test_a_compaction_removes_as_many_entries_as_its_page_says(self, lasting):
        let_time_pass(lasting.conn, [BY_CARRIER], "flights", timedelta(days=2))
        lasting.commit({("EWR", "C00"): 1})
        let_time_pass(lasting.conn, [BY_CARRIER], "flights", timedelta(days=10))
        Catalog(lasting.conn).edit(CARRIERS, ttl=timedelta(days=1))
        lasting.commit({("EWR", "C01"): 1})
        [plan] = runner.plans("compaction", [CARRIERS])

        run = services.maintain_now(kind="compaction", state=CARRIERS, requested_by="ann")

        removed = {step["step"]: step["removed"] for step in run.progress["steps"]}
        assert plan.removable == removed["changelog entries"] + removed["dead entries"] == plan.rows - 2
        assert run.after["changelog_rows"] == 2

    def test_an_act_without_an_effect_has_no_button(self, filled, operator):
        assert "none: its retention is unlimited" in text(operator.get("/states/totals/expire"))
        assert "<button" not in operator.get("/states/totals/expire").content.decode().partition('"decision"')[2]

    def test_no_act_happens_before_it_is_confirmed(self, filled, operator):
        for address in (COMPACT, EXPIRE, AUDIT, REPLAY):
            assert operator.get(address).status_code == operator.post(address).status_code == 200, address
        assert not MaintenanceRun.objects.exists()

    def test_an_audit_is_offered_for_states_with_a_changelog(self, filled, operator):
        page = operator.get("/maintenance").content.decode()

        assert AUDIT in page
        assert "/states/totals/audit" not in page


class TestWhatHasMoved:
    def test_a_pipeline_that_goes_on_hinders_nothing(self, aged, operator):
        form = posted(operator, COMPACT)
        aged.commit({("EWR", "C00"): 1})

        assert operator.post(COMPACT, form).status_code == 302

    def test_another_retention_is_named(self, filled, operator):
        form = posted(operator, EXPIRE)
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(days=1))

        refused = operator.post(EXPIRE, form)

        assert refused.status_code == 409
        assert (
            "Nothing was done. State 'flights_by_carrier' has changed since this page was drawn: "
            "retention was 400 days, is 1 day now; look at it again." in text(refused)
        )
        assert not MaintenanceRun.objects.exists()

    def test_the_page_that_refuses_can_be_confirmed(self, filled, operator):
        form = posted(operator, EXPIRE)
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(days=1))
        refused = operator.post(EXPIRE, form)

        accepted = operator.post(EXPIRE, dict(refused.context["confirmation"].posted))

        assert accepted.status_code == 302

    def test_a_rewind_is_named(self, filled, operator):
        form = posted(operator, COMPACT)
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 1")

        assert "committed batch was 2, is 1 now" in text(operator.post(COMPACT, form))

    def test_another_ledger_is_named(self, filled, operator):
        form = posted(operator, COMPACT)
        new_epoch(filled.conn, "restored", filled.name)

        assert "has changed since this page was drawn: ledger was" in text(operator.post(COMPACT, form))

    def test_many_more_rows_than_shown_are_named(self, filled, operator, monkeypatch):
        form = posted(operator, EXPIRE)
        monkeypatch.setattr("tidegauge.webapp.core.confirmation.FEW_ROWS", 10)
        let_time_pass(filled.conn, [BY_CARRIER], "flights", timedelta(days=401))

        assert "rows to be removed was 0, is 60 now" in text(operator.post(EXPIRE, form))

    @pytest.mark.parametrize(
        "seen", [None, "", "no signature", signing.dumps({}, salt="another")], ids=["none", "empty", "text", "salt"]
    )
    def test_a_form_of_no_page_is_refused(self, filled, operator, seen):
        form = {"confirmed": "yes"} | ({} if seen is None else {"seen": seen})

        refused = operator.post(COMPACT, form)

        assert refused.status_code == 409
        assert not MaintenanceRun.objects.exists()

    def test_the_page_of_another_state_confirms_nothing(self, filled, operator):
        refused = operator.post(COMPACT, posted(operator, "/states/totals/compact"))

        assert refused.status_code == 409

    def test_the_admin_refuses_as_the_dashboard_does(self, filled, admin_client):
        chosen = {"action": "expire", "_selected_action": [CARRIERS]}
        page = admin_client.post("/admin/states/state/", chosen)
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(days=1))

        refused = admin_client.post("/admin/states/state/", chosen | dict(page.context["confirmation"].posted))

        assert "retention was 400 days, is 1 day now" in refused.content.decode()
        assert not MaintenanceRun.objects.exists()


class TestReplay:
    @pytest.fixture
    def letters(self, filled):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("a.jsonl", "{", "no", n, record={"n": n}) for n in (1, 2)])
        return filled

    def test_letters_that_came_after_the_page_are_left_alone(self, letters, operator):
        page = operator.get(REPLAY)
        letters.commit({("JFK", "C00"): 5}, [DeadLetter("b.jsonl", "{", "no", 9, record={"n": 9})])

        done = operator.post(REPLAY, dict(page.context["confirmation"].posted), follow=True)

        assert "Replay 2 dead letters?" in text(page)
        assert "Replay requested: 2 dead letters" in text(done)
        assert DeadLetterRow.objects.exclude(replay_at=None).count() == 2

    def test_letters_that_another_person_has_replayed_are_named(self, letters, operator):
        form = posted(operator, REPLAY)
        letters.conn.execute(
            "UPDATE tidegauge.dead_letter SET replay_at = now(), replay_txid = 3 WHERE line_number = 1"
        )

        refused = text(operator.post(REPLAY, form))

        assert "Pipeline 'flights' has changed since this page was drawn: dead letters was 2, is 1 now" in refused

    def test_a_replay_is_confirmed_on_its_page(self, letters, operator):
        confirm(operator, f"{REPLAY}?reason=no")

        assert DeadLetterRow.objects.exclude(replay_at=None).count() == 2


class TestConfinement:
    @pytest.mark.parametrize(
        "scope", [{"states": ["totals"]}, {"states": [CARRIERS], "key_prefix": ["EWR"]}], ids=["state", "keys"]
    )
    def test_a_restricted_person_sees_no_numbers_of_what_is_outside(self, filled, operator, django_user_model, scope):
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), **scope)

        for address in (COMPACT, EXPIRE, AUDIT, REPLAY):
            assert operator.get(address).status_code == operator.post(address).status_code == 403, address
