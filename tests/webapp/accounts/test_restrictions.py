"""People restricted to states and keys, by restrictions of their own or of their groups."""

import re

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.accounts.permissions import NO_STATE, KeyScope, person_scope
from tidegauge.webapp.accounts.services import rename_in_key_scopes
from tidegauge.webapp.catalog import readers

CARRIER, TOTALS = "flights_by_carrier", "totals"


@pytest.fixture
def ada(filled, django_user_model):
    user = django_user_model.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    return user


@pytest.fixture
def client(ada) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def in_group(user, name="team", **scope):
    group = Group.objects.create(name=name)
    user.groups.add(group)
    Restriction.objects.create(group=group, **scope)


def scope_of(user) -> KeyScope:
    return person_scope(type(user).objects.get(pk=user.pk))


class TestScopes:
    def test_without_a_restriction_it_is_unrestricted(self, ada):
        in_group(ada)

        assert scope_of(ada).is_unrestricted

    def test_that_of_a_group_applies_to_its_members_alone(self, ada, django_user_model):
        in_group(ada, states=[CARRIER])

        assert scope_of(ada) == KeyScope(frozenset({CARRIER}))
        assert scope_of(django_user_model.objects.create_user("bob")).is_unrestricted

    def test_several_apply_together(self, ada):
        Restriction.objects.create(user=ada, key_prefix=["JFK", "AA"])
        in_group(ada, "states", states=[CARRIER, TOTALS])
        in_group(ada, "keys", states=[CARRIER], key_prefix=["JFK"])

        assert scope_of(ada) == KeyScope(frozenset({CARRIER}), ("JFK", "AA"))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"states": [CARRIER]}, {"states": [TOTALS]}),
            ({"key_prefix": ["JFK"]}, {"key_prefix": ["EWR"]}),
            ({"key_prefix": [1]}, {"key_prefix": [True]}),
        ],
    )
    def test_those_that_exclude_each_other_leave_nothing(self, ada, client, one, other):
        in_group(ada, "one", **one)
        in_group(ada, "other", **other)

        assert scope_of(ada).states == {NO_STATE}
        assert client.get("/api/v1/states").json() == {"states": []}
        assert client.get("/api/v1/maintenance").json() == {"runs": [], "next": None}

    def test_superusers_are_not_restricted(self, ada):
        in_group(ada, states=[CARRIER])
        ada.is_superuser = True
        ada.save()

        assert scope_of(ada).is_unrestricted

    def test_a_renamed_state_stays_allowed(self, ada):
        in_group(ada, states=[CARRIER])

        rename_in_key_scopes(readers.connection(), old=CARRIER, new="by_carrier")

        assert scope_of(ada).states == {"by_carrier"}


class TestTheApi:
    def test_it_refuses_what_is_outside_and_says_that_the_person_is_restricted(self, ada, client):
        in_group(ada, states=[CARRIER])

        refused = client.get("/api/v1/states/totals")

        assert refused.status_code == 403
        assert refused.json()["detail"] == f"you are restricted to the states {CARRIER}, not 'totals'"
        assert client.get(f"/api/v1/states/{CARRIER}").status_code == 200

    def test_actions_on_what_is_outside_are_refused(self, ada, client):
        in_group(ada, states=[CARRIER])

        assert client.post("/api/v1/states/totals/expiry").status_code == 403
        assert client.post("/api/v1/pipelines/flights/pause").status_code == 403


class TestTheDashboard:
    def test_a_lookup_of_other_keys_is_refused(self, ada, client):
        in_group(ada, key_prefix=["JFK"])

        other = client.post(f"/states/{CARRIER}/lookup", {"keys": "JFK,C01\nEWR,C02"}, follow=True).content.decode()
        own = client.post(f"/states/{CARRIER}/lookup", {"keys": "JFK,C01"}, follow=True).content.decode()

        assert "you are restricted to keys that start with" in other
        assert "restricted" not in own

    def test_entries_top_keys_and_exports_are_its_own(self, ada, client):
        in_group(ada, key_prefix=["JFK"])

        page = client.get(f"/states/{CARRIER}/").content.decode()

        assert "JFK" in page
        assert "EWR" not in page

    @pytest.mark.parametrize("path", ["/states/totals/expire", "/pipelines/flights/pause", "/pipelines/flights/resume"])
    def test_actions_on_what_is_outside_are_refused(self, ada, client, path):
        in_group(ada, states=[CARRIER])

        assert client.post(path).status_code == 403

    def test_it_offers_nothing_that_is_closed_and_says_why_it_is(self, ada, client):
        in_group(ada, states=[CARRIER])

        page = client.get("/").content.decode()
        refused = client.get("/pipelines/flights/dead-letters")

        assert "/admin/" not in page
        assert 'href="/keys"' not in page
        assert refused.status_code == 403
        assert "You are restricted to some states or keys, and this concerns others too." in refused.content.decode()

    def test_other_states_are_missing_like_those_that_do_not_exist(self, ada, client):
        in_group(ada, states=[CARRIER])

        answers = [client.get(f"/states/{name}/") for name in ("totals", "nothing")]
        varying = re.compile('(name="csrfmiddlewaretoken" value|data-now)="[^"]*"')
        pages = [varying.sub("", answer.content.decode().replace("totals", "nothing")) for answer in answers]

        assert [answer.status_code for answer in answers] == [404, 404]
        assert pages[0] == pages[1]


class TestTheAdmin:
    def test_restricted_people_have_no_access(self, ada, client):
        assert client.get("/admin/states/state/").status_code == 200

        in_group(ada, states=[CARRIER])

        assert client.get("/admin/states/state/").status_code == 302

    def test_a_form_that_is_left_as_it_is_restricts_nobody(self, ada, admin_client):
        path = f"/admin/auth/user/{ada.pk}/change/"
        fields = {"username": "ada", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        inline = {"restriction-TOTAL_FORMS": 1, "restriction-INITIAL_FORMS": 0, "restriction-0-key_prefix": "[]"}

        assert admin_client.post(path, fields | inline).status_code == 302
        assert not Restriction.objects.exists()

    @pytest.mark.parametrize("of", ["user", "group"])
    def test_a_restriction_is_set_on_the_page_of_a_user_or_group_and_recorded(self, ada, admin_client, of):
        group = Group.objects.create(name="team")
        target = {"user": ada, "group": group}[of]
        path = f"/admin/auth/{of}/{target.pk}/change/"
        form = admin_client.get(path).context["adminform"].form.initial
        fields = {name: form[name] for name in ("username", "name") if name in form}
        dates = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        inline = {"restriction-TOTAL_FORMS": 1, "restriction-INITIAL_FORMS": 0}
        restriction = {"restriction-0-states": [CARRIER], "restriction-0-key_prefix": '["JFK"]'}

        answer = admin_client.post(path, fields | dates | inline | restriction)

        assert answer.status_code == 302
        assert Restriction.objects.values(of, "states", "key_prefix").get() == {
            of: target.pk,
            "states": [CARRIER],
            "key_prefix": ["JFK"],
        }
        entry = AuditEntry.objects.filter(action="admin.change").latest("id")
        assert entry.detail["restricted_to"] == {"states": [CARRIER], "key_prefix": ["JFK"]}
