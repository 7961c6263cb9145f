from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.console.dashboard.page_text import text, with_steady_ages
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key


@pytest.fixture
def keeper(django_user_model) -> Client:
    """A user who may view API keys and is not staff."""
    user = django_user_model.objects.create_user("keeper")
    user.user_permissions.add(Permission.objects.get(codename="view_apikey"))
    client = Client()
    client.force_login(user)
    return client


def test_each_key_shows_its_scopes_and_never_its_secret(db, keeper):
    until = datetime.now(UTC) + timedelta(days=30, hours=1)
    key, secret = create_api_key(
        "billing", ["read"], states=["routes"], key_prefix=["JFK"], rate=600, burst=20, expires_at=until
    )

    page = with_steady_ages(keeper.get("/keys"))

    assert f'billing tmk_{key.prefix}_.. active read routes, keys ["JFK", ..] 600 a minute, 20 at once just now' in page
    assert "in 30 days never" in page
    assert secret not in page


def test_a_revoked_key_is_marked_and_comes_last(db, keeper):
    for name, revoked_at in (("old", None), ("gone", datetime.now(UTC))):
        key, _ = create_api_key(name, ["read"])
        ApiKey.objects.filter(pk=key.pk).update(revoked_at=revoked_at)

    page = text(keeper.get("/keys"))

    assert page.index("old tmk_") < page.index("gone tmk_")
    assert "revoked read" in page


def test_without_keys_it_says_how_to_create_one(db, keeper):
    assert "No API keys yet. On the command line: tidegauge create_api_key NAME" in text(keeper.get("/keys"))


def test_staff_get_links_to_the_admin_where_keys_are_rotated(db, admin_client):
    key, _ = create_api_key("billing", ["read"])
    page = admin_client.get("/keys").content.decode()

    for address in ("/keys/new", f"/admin/api_keys/apikey/{key.id}/change/"):
        assert f'href="{address}"' in page
        assert admin_client.get(address).status_code == 200


def test_others_get_no_link_and_no_access(db, reader):
    assert "API keys" not in text(reader.get("/"))
    response = reader.get("/keys")

    assert response.status_code == 403
    assert "You don't have access" in text(response)


def test_its_statements_do_not_grow_with_keys(db, keeper, django_assert_num_queries):
    for n in range(3):
        create_api_key(f"key {n}", ["read"])

    # Session, user, permissions and the strip, then the keys with who created them.
    with django_assert_num_queries(7):
        keeper.get("/keys")
