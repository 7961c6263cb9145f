import re

import pytest

from webapp.api_keys.models import ApiKey
from webapp.api_keys.services import create_api_key
from webapp.api_keys.verification import verified

KEYS = "/admin/api_keys/apikey/"


def test_a_new_key_is_shown_once_and_kept_by_nobody(admin_client):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read", "maintain"]})

    secret = re.search(r"tmk_[0-9a-f]{8}_[\w-]{43}", page.content.decode())[0]
    key = verified(secret)
    assert (key.name, key.scopes, key.created_by.username) == ("feed", ["maintain", "read"], "admin")
    assert "no-store" in page.headers["Cache-Control"]
    for address in (KEYS, f"{KEYS}{key.pk}/change/"):
        assert secret not in admin_client.get(address).content.decode()
    assert ApiKey.objects.count() == 1


def test_a_key_without_scopes_is_refused(admin_client):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed"})

    assert "This field is required." in page.content.decode()
    assert not ApiKey.objects.exists()


def test_a_key_can_be_revoked_but_not_changed_or_deleted(admin_client):
    key, secret = create_api_key("feed", ["read"])

    admin_client.post(KEYS, {"action": "revoke", "_selected_action": [key.pk]})

    assert verified(secret) is None
    assert admin_client.post(f"{KEYS}{key.pk}/change/", {"name": "other", "scopes": ["maintain"]}).status_code == 403
    assert admin_client.post(f"{KEYS}{key.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("address", ["/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/", "/admin/"])
def test_people_have_their_pages(admin_client, address):
    assert admin_client.get(address).status_code == 200
