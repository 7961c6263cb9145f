import hashlib

import pytest

from webapp.api_keys.models import ApiKey
from webapp.api_keys.services import UnknownScopeError, create_api_key, revoke_api_key
from webapp.api_keys.verification import verified


def test_a_key_is_told_once_and_stored_as_a_digest(db):
    key, secret = create_api_key("feed", ["read"])

    mark, prefix, rest = secret.split("_", 2)
    stored = ApiKey.objects.get()
    assert (mark, prefix) == ("tmk", key.prefix)
    assert bytes(stored.secret_sha512) == hashlib.sha512(rest.encode()).digest()
    assert rest not in str(ApiKey.objects.values().get())


def test_every_key_has_256_bits_of_its_own(db):
    secrets = {create_api_key("feed", ["read"])[1].split("_", 2)[2] for _ in range(5)}

    assert len(secrets) == 5
    assert all(len(secret) == 43 for secret in secrets)


def test_scopes_are_kept_once_each(db):
    assert create_api_key("feed", ["read", "maintain", "read"])[0].scopes == ["maintain", "read"]


def test_an_unknown_scope_is_refused(db):
    with pytest.raises(UnknownScopeError, match="API key 'feed': scope 'write' is none of read, maintain"):
        create_api_key("feed", ["read", "write"])

    assert not ApiKey.objects.exists()


def test_a_revoked_key_is_refused_at_once(db):
    key, secret = create_api_key("feed", ["read"])
    assert verified(secret) == key

    revoke_api_key(key)

    assert verified(secret) is None


def test_revoking_twice_keeps_the_first_time(db):
    key, _ = create_api_key("feed", ["read"])
    revoke_api_key(key)
    first = key.revoked_at

    revoke_api_key(key)

    assert ApiKey.objects.get().revoked_at == first
