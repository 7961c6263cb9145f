"""Saved views of the explorer: what is saved, and what opens, changes, replaces and deletes it."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import call_command

from tests.webapp.confirming import confirm
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.console.saved_views import services
from tidegauge.webapp.console.saved_views.models import SavedView

STATE = "/states/flights_by_carrier"
EXPLORE = f"{STATE}/explore"
ASKED = f"{EXPLORE}?where=flights%3E1&where=carrier%3DC00&order=-flights&measures=flights,max_delay&limit=100&as_of=1"
GROUPED = f"{EXPLORE}?group=origin&order=-flights"
COMPARED = f'{STATE}/compare?key=["EWR","C00"]&key=["JFK","C00"]&than=1&range=24h'


def asked(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


def shown(page) -> list[tuple[Any, Any]]:
    return [(row.key, row.cells) for row in page.context["table"].rows]


class TestSaving:
    @pytest.mark.parametrize("page", [EXPLORE, ASKED, GROUPED])
    def test_the_short_address_asks_again_what_was_saved(self, filled, reader, saved, page):
        view = saved(page)

        opened = reader.get(view.get_absolute_url(), follow=True)

        [(address, _)] = opened.redirect_chain
        assert len(view.get_absolute_url()) < 20
        assert urlsplit(address).path == EXPLORE
        assert asked(address) == {**asked(page), "view": [view.pk]}
        assert shown(opened) == shown(reader.get(page))
        assert b'aria-current="true">Busiest</a>' in opened.content
        assert b"Replace view" not in opened.content

    def test_a_comparison_is_saved_with_its_range(self, filled, reader, saved):
        view = saved(COMPARED)

        opened = reader.get(view.get_absolute_url(), follow=True)

        assert urlsplit(opened.redirect_chain[0][0]).path == f"{STATE}/compare"
        assert opened.context["compared"].rows == reader.get(COMPARED).context["compared"].rows
        assert opened.context["range"].name == "24h"
        assert b"Replace view" not in opened.content

    def test_where_the_table_goes_on_is_not_saved(self, filled, saved):
        assert saved(f'{EXPLORE}?after=["EWR","C03"]&n=25&order=-flights').question == {"order": "-flights"}

    def test_the_form_says_in_words_what_is_saved(self, filled, reader):
        page = text(reader.get(ASKED.replace("/explore", "/explore/save")))

        words = "flights>1 · carrier=C00 · flights, largest first · columns flights, max_delay · as of 1 ."
        assert words in page
        assert 'compare ["EWR", "C00"]' in text(reader.get(COMPARED.replace("/compare", "/compare/save")))

    @pytest.mark.parametrize(
        ("page", "reason"),
        [
            (f"{EXPLORE}?where=nothing%3E1", "no column 'nothing'"),
            (f"{EXPLORE}?as_of=yesterday", "'yesterday' is neither a batch number nor a time"),
            (f"{STATE}/compare", "There is no key to compare; add one first."),
            (f"{STATE}/compare?key=EWR", "'EWR'"),
        ],
    )
    def test_what_cannot_be_answered_is_not_saved(self, filled, reader, page, reason):
        path, _, query = page.partition("?")

        refused = reader.post(f"{path}/save?{query}", {"name": "Busiest"}, follow=True)

        assert "The view was not saved." in text(refused)
        assert reason in text(refused)
        assert not SavedView.objects.exists()
        assert f"{path}/save".encode() not in reader.get(page).content

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            (" ", "This field is required."),
            ("x" * 81, "at most 80 characters"),
            ("a\x07b", "Use a name without control characters"),
            ("Busiest", "You already have a view named 'Busiest'; choose another name, or replace that view"),
        ],
    )
    def test_a_name_that_cannot_be_is_refused(self, filled, reader, saved, name, reason):
        saved(EXPLORE)

        refused = reader.post(f"{EXPLORE}/save", {"name": name, "is_shared": "on"})

        assert refused.status_code == 400
        assert reason in text(refused)
        assert b"checked" in refused.content
        assert SavedView.objects.count() == 1

    def test_a_person_has_so_many_at_most(self, filled, reader, saved, monkeypatch):
        monkeypatch.setattr(services, "MOST_OF_A_PERSON", 1)
        saved(EXPLORE)

        refused = text(reader.post(f"{EXPLORE}/save", {"name": "Second"}))

        assert "You already have 1 saved views, the most allowed; delete one first" in refused

    def test_a_state_that_does_not_exist_has_no_form(self, filled, reader):
        assert reader.get("/states/nothing/explore/save").status_code == 404


class TestChanging:
    def test_it_is_renamed_and_shared(self, filled, reader, saved, person):
        view = saved(EXPLORE)

        reader.post(f"/views/{view.pk}/edit", {"name": "Least  busy", "is_shared": "on"})

        page = text(person("another").get("/views"))
        assert "Least busy flights_by_carrier all keys, in key order shared by reader" in page

    def test_it_is_not_renamed_to_another_one(self, filled, reader, saved):
        saved(EXPLORE)
        view = saved(GROUPED, "By origin")

        assert reader.post(f"/views/{view.pk}/edit", {"name": "Busiest"}).status_code == 400
        assert reader.post(f"/views/{view.pk}/edit", {"name": "By origin"}).status_code == 302

    def test_the_page_offers_to_replace_it_once_it_asks_something_else(self, filled, reader, saved):
        view = saved(GROUPED)
        changed = f"{GROUPED}&limit=100&view={view.pk}"

        assert b"Replace view" in reader.get(changed).content
        reader.post(f"/views/{view.pk}/replace?group=origin&order=-flights&limit=100")

        assert b"Replace view" not in reader.get(changed).content
        assert asked(reader.get(view.get_absolute_url()).url) == asked(changed)

    def test_a_comparison_is_replaced_by_a_comparison(self, filled, reader, saved):
        view = saved(COMPARED)

        reader.post(f'/views/{view.pk}/replace?key=["EWR","C01"]')
        refused = reader.post(f"/views/{view.pk}/replace?group=origin", follow=True)

        view.refresh_from_db()
        assert view.question == {"key": ['["EWR", "C01"]']}
        assert "The view Busiest was not changed. There is no key to compare; add one first." in text(refused)

    def test_a_question_without_an_answer_leaves_it_as_it_was(self, filled, reader, saved):
        view = saved(GROUPED)

        refused = reader.post(f"/views/{view.pk}/replace?where=nothing%3E1", follow=True)

        view.refresh_from_db()
        assert view.question == {"group": ["origin"], "order": "-flights"}
        assert "The view Busiest was not changed. " in text(refused)

    def test_it_is_deleted_after_a_question(self, filled, reader, saved):
        view = saved(EXPLORE)
        delete = f"/views/{view.pk}/delete"

        reader.post(delete)
        assert SavedView.objects.exists()
        confirm(reader, delete)

        assert not SavedView.objects.exists()
        assert reader.get(view.get_absolute_url()).status_code == 404

    def test_a_confirmation_of_before_it_was_shared_is_refused(self, filled, reader, saved):
        view = saved(EXPLORE)
        posted = dict(reader.get(f"/views/{view.pk}/delete").context["confirmation"].posted)
        reader.post(f"/views/{view.pk}/edit", {"name": "Busiest", "is_shared": "on"})

        assert reader.post(f"/views/{view.pk}/delete", posted).status_code == 409

    def test_each_act_is_in_the_audit_log(self, filled, reader, saved):
        view = saved(GROUPED)
        reader.post(f"/views/{view.pk}/edit", {"name": "By origin", "is_shared": "on"})
        reader.post(f"/views/{view.pk}/replace?group=carrier")
        confirm(reader, f"/views/{view.pk}/delete")

        entries = AuditEntry.objects.filter(action__startswith="view.").order_by("id")
        assert [(entry.action, entry.target, entry.actor) for entry in entries] == [
            ("view.create", "saved view Busiest", "reader"),
            ("view.change", "saved view Busiest", "reader"),
            ("view.replace", "saved view By origin", "reader"),
            ("view.delete", "saved view By origin", "reader"),
        ]
        assert entries[1].detail == {"state": "flights_by_carrier", "name": "By origin", "is_shared": True}


class TestWhatIsGone:
    def test_the_page_names_the_columns_that_are_gone(self, filled, reader, saved):
        view = saved(GROUPED)
        question = {"measures": "flights,lost", "group": ["origin", "old"], "order": "-lost"}
        SavedView.objects.update(question=question)

        page = reader.get(view.get_absolute_url(), follow=True)

        said = "The view Busiest is only partly shown. The state no longer has lost , old , which the view names."
        assert said in text(page)
        assert b"Replace view" in page.content

    def test_the_page_names_the_column_of_a_condition_that_is_gone(self, filled, reader, saved):
        view = saved(GROUPED)
        SavedView.objects.update(question={"where": ["lost>1"]})

        assert "no column 'lost'" in text(reader.get(view.get_absolute_url(), follow=True))

    @pytest.mark.django_db(transaction=True)
    def test_views_follow_a_state_that_is_renamed(self, lasting, reader, saved):
        view = saved("/states/totals/explore")
        lasting.die()

        call_command("rename", "totals", "sums")

        try:
            assert reader.get(view.get_absolute_url()).url == f"/states/sums/explore?view={view.pk}"
        finally:
            call_command("rename", "sums", "totals")

    @pytest.mark.django_db(transaction=True)
    def test_a_view_of_a_state_that_is_gone_says_so_and_can_be_deleted(self, lasting, reader, saved):
        view = saved("/states/totals/explore")
        lasting.die()
        call_command("retire", "totals", "--drop", "--yes")

        page = reader.get(view.get_absolute_url())

        assert page.status_code == 410
        assert "View Busiest It asks about the state totals , which no longer exists." in text(page)
        assert "was retired" in text(page)
        assert "totals no longer exists" in text(reader.get("/views"))
        assert reader.get(f"/views/{view.pk}/edit").status_code == 200
        confirm(reader, f"/views/{view.pk}/delete")
        assert "No views yet." in text(reader.get("/views"))
