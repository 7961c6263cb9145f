"""Changing the retention and the changelog of a state, confirmed on a page that shows the effect."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.feed import let_time_pass
from tests.webapp.flights import BY_CARRIER, SPECS
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.maintenance.admin.editing import consequences, loses_something

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

    def test_a_confirmed_edit_is_made_and_audited(self, filled, operator):
        confirmation = submit(operator, A_DAY | {"changelog": "off"}, confirmed=False)
        asked = terms(filled).edited

        posted = dict(confirmation.context["hidden"])
        answer = operator.post(PAGE, posted)

        assert (confirmation.status_code, asked) == (200, frozenset())
        assert posted == A_DAY | {"changelog": "off", "confirmed": "yes"}
        assert answer.status_code == 302
        assert (terms(filled).ttl, terms(filled).next_changelog) == (DAY, False)
        entry = AuditEntry.objects.get(action="state.edit")
        assert (entry.target, entry.actor) == (f"state {CARRIERS}", "operator")

    def test_an_edit_is_reset(self, filled, operator):
        Catalog(filled.conn).edit(CARRIERS, ttl=None, changelog=False)

        submit(operator, AS_DECLARED)

        assert terms(filled).edited == frozenset()
        assert terms(filled).ttl == timedelta(days=400)

    def test_an_edit_without_a_change_needs_no_confirmation(self, filled, operator):
        answer = operator.post(PAGE, AS_DECLARED, follow=True)

        (message,) = answer.context["messages"]
        assert str(message) == f"state '{CARRIERS}': nothing was changed"

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            (A_DAY | {"amount": ""}, "enter an amount, or choose another retention"),
            (A_DAY | {"amount": "0"}, "greater than or equal to 1"),
            (A_DAY | {"amount": "9" * 30}, "too large"),
            (A_DAY | {"unit": "fortnight"}, "not one of the available choices"),
            (AS_DECLARED | {"keep": "soon"}, "not one of the available choices"),
        ],
    )
    @pytest.mark.parametrize("confirmed", [False, True])
    def test_invalid_input_is_rejected(self, filled, operator, answers, reason, confirmed):
        page = submit(operator, answers, confirmed=confirmed)

        assert page.status_code == 200
        assert reason in page.content.decode()
        assert terms(filled).edited == frozenset()

    @pytest.mark.parametrize("confirmed", [False, True])
    def test_a_viewer_cannot_change_it(self, filled, viewer, confirmed):
        page = viewer.get(PAGE)

        assert "400 days" in page.content.decode()
        assert 'name="keep"' not in page.content.decode()
        assert submit(viewer, A_DAY, confirmed=confirmed).status_code == 403
        assert terms(filled).edited == frozenset()

    def test_other_columns_cannot_be_posted(self, filled, operator):
        submit(operator, A_DAY | {"guarantee": "none", "name": "mine", "pipeline": "other", "version": "9"})

        kept = filled.conn.execute(
            "SELECT pipeline, guarantee, version FROM tidegauge.state WHERE name = %s", [CARRIERS]
        )
        assert kept.fetchone() == ("flights", "exactly once", 1)

    def test_the_list_distinguishes_overrides_from_declarations(self, filled, operator):
        submit(operator, A_DAY | {"changelog": "off"})

        page = operator.get("/admin/states/state/?edited=yes").content.decode()

        assert "1 day (overridden)" in page
        assert "on; off after the next start of the driver" in page
        assert "totals" not in page.split("result_list")[-1]


class TestNoChangelog:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"backend": "redis"}, "Its rows live in Redis and are not copied"),
            ({"kind": "non_transactional"}, "Its rows have no txid"),
        ],
    )
    def test_a_changelog_that_cannot_change_is_disabled(self, filled, operator, change, reason):
        other = replace(StateSpec("other", key={"a": "text"}, measures={"n": Count()}), **change)
        Catalog(filled.conn).register_states(
            "flights", [*SPECS, other], dict.fromkeys((*(s.name for s in SPECS), "other"), "")
        )
        page = "/admin/states/state/other/change/"

        shown = operator.get(page).content.decode()
        submit(operator, A_DAY | {"changelog": "on"}, page=page)

        assert reason in shown
        assert (terms(filled, "other").ttl, terms(filled, "other").next_changelog) == (DAY, False)


class TestConsequences:
    """What the confirmation page says about an edit."""

    @pytest.fixture
    def said(self, filled):
        def said(name=CARRIERS, **changes):
            catalog = Catalog(filled.conn)
            with filled.conn.transaction(force_rollback=True):
                before, after = catalog.edit(name, **changes)
            return " ".join(consequences(queries.state(name), before, after)), loses_something(before, after)

        return said

    def test_a_shorter_ttl(self, filled, said):
        let_time_pass(filled.conn, [BY_CARRIER], "flights", 2 * DAY)
        filled.commit({("EWR", "C00"): 1})

        words, is_danger = said(ttl=DAY)

        assert "The retention changes from 400 days to 1 day." in words
        assert "59 rows are older. They disappear for readers immediately" in words
        assert "The pipeline uses it from its next batch on" in words
        assert is_danger

    def test_a_longer_ttl(self, said):
        words, is_danger = said(ttl=None)

        assert "are visible again unless expiry has removed them" in words
        assert not is_danger

    def test_a_changelog_that_begins(self, said):
        words, is_danger = said("totals", changelog=True)

        assert "starts at the next start of the driver of pipeline flights. The driver copies 1 row first." in words
        assert not is_danger

    def test_a_changelog_that_is_dropped(self, said):
        words, is_danger = said(changelog=False)

        assert "is deleted at the next start of the driver of pipeline flights" in words
        assert "cannot be undone" in words
        assert is_danger

    def test_a_planned_change_is_cancelled(self, filled, said):
        Catalog(filled.conn).edit(CARRIERS, changelog=False)

        words, is_danger = said(changelog=True)

        assert "stays as it is; the change planned for the next start of the driver is cancelled" in words
        assert not is_danger

    def test_a_ttl_that_stays_but_is_set(self, said):
        words, _ = said(ttl=timedelta(days=400))

        assert words == "The retention stays 400 days even if the declaration changes."
