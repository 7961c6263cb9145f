"""Saved queries in the admin: from a draft to a version that clients run, and its end."""

import json

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.api.saved_queries.published import TOP, published
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.services import create_version
from tidegauge.webapp.catalog import readers

ADD, LIST = "/admin/saved_queries/savedquery/add/", "/admin/saved_queries/savedquery/"


@pytest.fixture
def signed_in(db, django_user_model):
    """Returns a client of a group's member who may enter the admin."""
    from django.contrib.auth.models import Group

    def signed_in(group):
        user = django_user_model.objects.create_user(group, is_staff=True)
        user.groups.add(Group.objects.get(name=group))
        client = Client()
        client.force_login(user)
        return client

    return signed_in


def written(definition=TOP, name="top", **more):
    return {"name": name, "description": "d", "definition": json.dumps(definition), **more}


def page_of(query):
    return reverse("admin:saved_queries_savedquery_change", args=[query.pk])


def act_of(query, act):
    return reverse(f"admin:saved_queries_savedquery_{act}", args=[query.pk])


class TestDrafts:
    def test_an_operator_writes_one_and_publishes_it(self, filled, signed_in, api):
        operator = signed_in("operator")

        assert operator.post(ADD, written()).status_code == 302
        query = SavedQuery.objects.get()
        assert (query.version, query.status, query.created_by.username) == (1, "draft", "operator")
        assert "top version 1?" in operator.get(act_of(query, "publish")).content.decode()
        assert query.status == "draft"
        operator.post(act_of(query, "publish"), {"confirmed": "yes"})

        assert api.ask("GET", "/saved-queries/top?origin=EWR").json()["version"] == 1
        entries = AuditEntry.objects.filter(actor="operator", target__contains="query").order_by("id")
        assert [entry.action for entry in entries] == ["admin.add", "query.publish"]

    @pytest.mark.parametrize(
        ("definition", "says"),
        [
            ({"reads": []}, "reads must be a list of 1 to 20"),
            ({"reads": [{"state": "none"}]}, "none"),
            ({"reads": [{"state": "totals", "keys": [[]], "measures": ["x"]}]}, "no measure"),
        ],
    )
    def test_a_definition_that_cannot_be_answered_is_explained(self, filled, admin_client, definition, says):
        page = admin_client.post(ADD, written(definition))

        assert page.status_code == 200
        assert says in page.content.decode()
        assert not SavedQuery.objects.exists()

    def test_a_draft_is_edited_and_a_published_version_is_not(self, filled, admin_client):
        query = create_version("top", TOP)
        admin_client.post(page_of(query), written(description="better"))
        query.refresh_from_db()
        assert query.description == "better"
        query = published("other")
        assert act_of(query, "withdraw") in admin_client.get(page_of(query)).content.decode()

        page = admin_client.get(page_of(query)).content.decode()
        admin_client.post(page_of(query), written(description="better"))

        query.refresh_from_db()
        assert ('name="definition"' in page, query.description, query.definition) == (False, "", TOP)

    def test_a_new_version_starts_from_another_one(self, filled, admin_client):
        query = published()

        form = admin_client.get(act_of(query, "new_version"), follow=True).content.decode()
        admin_client.post(ADD, written(description="second"))

        assert "flights_by_carrier" in form
        assert [(each.version, each.status) for each in SavedQuery.objects.all()] == [(2, "draft"), (1, "published")]
        assert admin_client.get(f"{ADD}?from=99999999999999999999").status_code == 200


class TestPublished:
    def test_it_is_withdrawn_after_a_question(self, filled, admin_client, api):
        query = published()

        admin_client.post(act_of(query, "withdraw"), {"confirmed": "yes"})

        assert api.ask("GET", "/saved-queries/top?origin=EWR").status_code == 410
        assert admin_client.post(act_of(query, "withdraw"), {"confirmed": "yes"}).status_code == 403
        assert act_of(query, "withdraw") not in admin_client.get(page_of(query)).content.decode()

    def test_the_list_shows_what_keeps_one_from_being_answered(self, filled, admin_client):
        published()
        assert "ok" in admin_client.get(LIST).content.decode()
        filled.conn.execute("UPDATE tidegauge.state SET name = 'moved' WHERE name = 'flights_by_carrier'")
        readers.clear_cache()

        page = admin_client.get(LIST).content.decode()

        assert "reads[0]: state" in page


class TestPermissions:
    def test_a_viewer_reads_them_and_changes_none(self, filled, signed_in):
        query, viewer = published(), signed_in("viewer")

        assert viewer.get(LIST).status_code == viewer.get(page_of(query)).status_code == 200
        assert viewer.get(ADD).status_code == 403
        assert viewer.post(act_of(query, "withdraw"), {"confirmed": "yes"}).status_code == 403
        query.refresh_from_db()
        assert query.status == "published"

    def test_a_draft_can_be_deleted_and_a_version_that_was_published_cannot(self, filled, admin_client):
        draft, query = create_version("draft", TOP), published()

        for each in (draft, query):
            admin_client.post(f"/admin/saved_queries/savedquery/{each.pk}/delete/", {"post": "yes"})

        assert [each.name for each in SavedQuery.objects.all()] == ["top"]
