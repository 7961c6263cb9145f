"""Who sees a saved view: its owner, everybody who may see its state if it is shared, and admins in the admin."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.console.saved_views.models import SavedView

EXPLORE = "/states/flights_by_carrier/explore"
ADMIN = "/admin/tidegauge_saved_views/savedview/"


def sees(client: Client, view: SavedView) -> set[str]:
    """Where a person meets a view."""
    pages = {
        "list": "/views",
        "list of the state": f"/views?state={view.state}",
        "explorer": f"/states/{view.state}/explore",
        "opened": f"/states/{view.state}/explore?view={view.pk}",
        "comparison": f"/states/{view.state}/compare",
        "search": f"/search?q={view.name}",
    }
    link = f'"{view.get_absolute_url()}"'.encode()
    found = {where for where, page in pages.items() if link in client.get(page).content}
    return found | ({"address"} if client.get(view.get_absolute_url()).status_code == 302 else set())


EVERYWHERE = {"list", "list of the state", "explorer", "opened", "comparison", "search", "address"}


def test_a_private_view_is_its_owners_alone(filled, reader, saved, person, admin_client):
    view = saved(EXPLORE)

    assert sees(reader, view) == EVERYWHERE
    assert sees(person("another"), view) == set()
    assert sees(admin_client, view) == set()


@pytest.mark.parametrize(
    ("scope", "where"),
    [
        ({}, EVERYWHERE),
        ({"states": ["flights_by_carrier"]}, EVERYWHERE),
        ({"states": ["totals"]}, set()),
        ({"key_prefix": ["EWR"]}, set()),
    ],
)
def test_a_shared_view_is_seen_by_who_may_see_its_state_whole(filled, saved, person, scope, where):
    view = saved(EXPLORE, is_shared="on")

    assert sees(person("another", **scope), view) == where


def test_who_is_restricted_does_not_learn_who_shares(filled, saved, person):
    saved(EXPLORE, is_shared="on")

    assert "shared by reader" in text(person("another").get("/views"))
    assert "reader" not in text(person("confined", states=["flights_by_carrier"]).get("/views"))


def test_who_is_restricted_to_a_key_prefix_saves_views_within_it(filled, person):
    confined = person("confined", key_prefix=["EWR"])

    confined.post(f"{EXPLORE}/save?prefix=EWR,C01", {"name": "Mine", "is_shared": "on"})
    confined.post(f"{EXPLORE}/save?prefix=JFK", {"name": "Theirs"})
    confined.post("/states/totals/explore/save", {"name": "Totals"})

    view = SavedView.objects.get()
    assert view.question == {"prefix": "EWR,C01"}
    assert sees(confined, view) == EVERYWHERE


def test_own_views_of_a_state_that_one_may_no_longer_see_are_not_shown(filled, reader, saved, django_user_model):
    view = saved(EXPLORE)
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    assert sees(reader, view) == set()
    assert reader.get(f"/views/{view.pk}/edit").status_code == 404
    assert "flights_by_carrier" not in text(reader.get("/views"))


@pytest.mark.parametrize("act", ["edit", "replace", "delete"])
def test_another_person_does_not_change_a_shared_view(filled, saved, person, act):
    view = saved(EXPLORE, is_shared="on")
    another = person("another")

    refused = another.post(f"/views/{view.pk}/{act}", {"name": "Mine now", "confirmed": "yes"})

    assert refused.status_code == 404
    assert SavedView.objects.get().name == "Busiest"
    assert b"Edit view" not in another.get(f"{EXPLORE}?view={view.pk}").content


@pytest.mark.parametrize("page", ["/views", "/views/any", f"{EXPLORE}/save"])
def test_it_takes_a_login(filled, client, page):
    assert client.get(page).url.startswith("/login?next=")


def test_two_people_may_use_one_name(filled, saved, person):
    saved(EXPLORE)

    person("another").post(f"{EXPLORE}/save", {"name": "Busiest"})

    assert SavedView.objects.filter(name="Busiest").count() == 2


def test_an_admin_sees_all_views_and_deletes_them(filled, saved, django_user_model):
    view = saved(f"{EXPLORE}?order=-flights")
    user = django_user_model.objects.create_user("boss", is_staff=True)
    user.groups.add(Group.objects.get(name="admin"))
    boss = Client()
    boss.force_login(user)

    assert "Busiest reader flights_by_carrier" in text(boss.get(ADMIN))
    page = boss.get(f"{ADMIN}{view.pk}/change/").content.decode()
    assert f'href="{EXPLORE}?order=-flights&amp;view={view.pk}"' in page
    boss.post(f"{ADMIN}{view.pk}/delete/", {"post": "yes"})

    assert not SavedView.objects.exists()
    assert AuditEntry.objects.get(action="admin.delete").target == "saved view Busiest"


@pytest.mark.parametrize("group", ["viewer", "operator"])
def test_others_do_not_see_them_in_the_admin(filled, saved, django_user_model, group):
    saved(EXPLORE)
    user = django_user_model.objects.create_user(group, is_staff=True)
    user.groups.add(Group.objects.get(name=group))
    staff = Client()
    staff.force_login(user)

    assert staff.get(ADMIN).status_code == 403


def test_the_explorer_shows_some_and_leads_to_all(filled, reader, saved):
    views = [saved(f"{EXPLORE}?limit=100", f"View {n:02}") for n in range(10)]

    page = reader.get(f"{EXPLORE}?view={views[9].pk}").content.decode()

    assert page.count('<a id="view-') == 8
    assert 'aria-current="true">View 09</a>' in page
    assert ">All views</a>" in page
