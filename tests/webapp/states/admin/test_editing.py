"""Another ttl or changelog for a state, by those who may, once a page has said what that will do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from state_backends import Catalog, Count, StateSpec
from tests.state_backends.feed import let_time_pass
from tests.webapp.flights import BY_CARRIER, SPECS
from webapp.accounts.audit.models import AuditEntry
from webapp.states import queries
from webapp.states.admin.editing import consequences, loses_something

CARRIERS = "flights_by_carrier"
PAGE = f"/admin/states/state/{CARRIERS}/change/"
DAY = timedelta(days=1)
AS_DECLARED = {"keep": "declared", "amount": "", "unit": "day", "changelog": "declared"}
A_DAY = AS_DECLARED | {"keep": "so_long", "amount": "1"}
NO_LOG = AS_DECLARED | {"changelog": "off"}


def submit(client, answers, *, confirmed=True, page=PAGE):
    return client.post(page, answers | ({"confirmed": "yes"} if confirmed else {}))


def terms(pipeline, name=CARRIERS):
    return Catalog(pipeline.conn).terms(name)


@pytest.fixture
def operator(staff):
    return staff("operator", "view_state", "change_state")


class TestForm:
    def test_it_offers_what_is_declared_and_holds_what_is_set(self, filled, operator):
        Catalog(filled.conn).edit(CARRIERS, ttl=timedelta(hours=36), changelog=True)

        form = operator.get(PAGE).context["adminform"].form

        assert dict(form.fields["keep"].choices)["declared"] == "as declared: 400 days"
        assert dict(form.fields["changelog"].choices)["declared"] == "as declared: on"
        assert form.initial == {"keep": "so_long", "amount": 36, "unit": "hour", "changelog": "on"}

    def test_an_edit_is_made_and_told_of_when_it_is_confirmed(self, filled, operator):
        question = submit(operator, A_DAY | {"changelog": "off"}, confirmed=False)
        asked = terms(filled).edited

        sends = dict(question.context["hidden"])
        answer = operator.post(PAGE, sends)

        assert (question.status_code, asked) == (200, frozenset())
        assert sends == A_DAY | {"changelog": "off", "confirmed": "yes"}
        assert answer.status_code == 302
        assert (terms(filled).ttl, terms(filled).next_changelog) == (DAY, False)
        entry = AuditEntry.objects.get(action="state.edit")
        assert (entry.target, entry.actor) == (f"state {CARRIERS}", "operator")

    def test_an_edit_is_taken_back(self, filled, operator):
        Catalog(filled.conn).edit(CARRIERS, ttl=None, changelog=False)

        submit(operator, AS_DECLARED)

        assert terms(filled).edited == frozenset()
        assert terms(filled).ttl == timedelta(days=400)

    def test_nothing_changed_is_said_and_not_asked(self, filled, operator):
        answer = operator.post(PAGE, AS_DECLARED, follow=True)

        (message,) = answer.context["messages"]
        assert str(message) == f"state '{CARRIERS}': nothing was changed"

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            (A_DAY | {"amount": ""}, "say for how long rows are kept, or choose another answer above"),
            (A_DAY | {"amount": "0"}, "greater than or equal to 1"),
            (A_DAY | {"amount": "9" * 30}, "too large"),
            (A_DAY | {"unit": "fortnight"}, "not one of the available choices"),
            (AS_DECLARED | {"keep": "soon"}, "not one of the available choices"),
        ],
    )
    @pytest.mark.parametrize("confirmed", [False, True])
    def test_nonsense_is_refused_at_the_form(self, filled, operator, answers, reason, confirmed):
        page = submit(operator, answers, confirmed=confirmed)

        assert page.status_code == 200
        assert reason in page.content.decode()
        assert terms(filled).edited == frozenset()

    @pytest.mark.parametrize("confirmed", [False, True])
    def test_an_onlooker_reads_and_cannot_change(self, filled, onlooker, confirmed):
        page = onlooker.get(PAGE)

        assert "400 days" in page.content.decode()
        assert 'name="keep"' not in page.content.decode()
        assert submit(onlooker, A_DAY, confirmed=confirmed).status_code == 403
        assert terms(filled).edited == frozenset()

    def test_other_columns_cannot_be_slipped_in(self, filled, operator):
        submit(operator, A_DAY | {"guarantee": "none", "name": "mine", "pipeline": "other", "version": "9"})

        kept = filled.conn.execute(
            "SELECT pipeline, guarantee, version FROM tidemark.state WHERE name = %s", [CARRIERS]
        )
        assert kept.fetchone() == ("flights", "exactly once", 1)

    def test_the_list_tells_edits_from_declarations(self, filled, operator):
        submit(operator, A_DAY | {"changelog": "off"})

        page = operator.get("/admin/states/state/?edited=yes").content.decode()

        assert "1 day, as set" in page
        assert "on; off once the driver has started again" in page
        assert "totals" not in page.split("result_list")[-1]


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"backend": "redis"}, "Its rows live in Redis and are not copied"),
            ({"kind": "non_transactional"}, "Its rows carry no txid"),
        ],
    )
    def test_a_changelog_that_cannot_be_had_is_not_offered(self, filled, operator, change, reason):
        other = replace(StateSpec("other", key={"a": "text"}, measures={"n": Count()}), **change)
        Catalog(filled.conn).register_states(
            "flights", [*SPECS, other], dict.fromkeys((*(s.name for s in SPECS), "other"), "")
        )
        page = "/admin/states/state/other/change/"

        shown = operator.get(page).content.decode()
        submit(operator, A_DAY | {"changelog": "on"}, page=page)

        assert reason in shown
        assert (terms(filled, "other").ttl, terms(filled, "other").next_changelog) == (DAY, False)


class TestWords:
    """What a page says before an edit is made."""

    @pytest.fixture
    def said(self, filled):
        def said(name=CARRIERS, **wish):
            catalog = Catalog(filled.conn)
            with filled.conn.transaction(force_rollback=True):
                before, after = catalog.edit(name, **wish)
            return " ".join(consequences(queries.state(name), before, after)), loses_something(before, after)

        return said

    def test_a_shorter_ttl(self, filled, said):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", 2 * DAY)
        filled.commit({("EWR", "C00"): 1})

        words, is_danger = said(ttl=DAY)

        assert "kept for 1 day after their last update, instead of for 400 days" in words
        assert "59 rows are that old already: gone for readers at once" in words
        assert "The pipeline goes by it from its next batch on" in words
        assert is_danger

    def test_a_longer_ttl(self, said):
        words, is_danger = said(ttl=None)

        assert "come back where expiry has not freed them yet; what it has freed is gone" in words
        assert not is_danger

    def test_a_changelog_that_begins(self, said):
        words, is_danger = said("totals", changelog=True)

        assert "begins when the driver of pipeline flights starts next, which first copies 1 row." in words
        assert not is_danger

    def test_a_changelog_that_is_dropped(self, said):
        words, is_danger = said(changelog=False)

        assert "is dropped when the driver of pipeline flights starts next" in words
        assert "cannot be had again" in words
        assert is_danger

    def test_a_change_that_has_not_been_made_yet_is_called_off(self, filled, said):
        Catalog(filled.conn).edit(CARRIERS, changelog=False)

        words, is_danger = said(changelog=True)

        assert "stays as it is; what was to change at the driver's next start does not" in words
        assert not is_danger

    def test_a_ttl_that_stays_but_is_set(self, said):
        words, _ = said(ttl=timedelta(days=400))

        assert words == "The ttl stays 400 days, also where the declaration changes."
