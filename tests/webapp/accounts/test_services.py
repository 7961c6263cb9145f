import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.key_options import KeyOptionError, UnknownScopeError
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import missing_to_give
from tidegauge.webapp.accounts.services import (
    KeyRevokedError,
    change_api_key,
    create_api_key,
    revoke_api_key,
    rotate_api_key,
)


def test_a_secret_is_returned_once_and_stored_as_a_digest(db):
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
    with pytest.raises(UnknownScopeError, match="API key 'feed': scope 'write' is not one of read, maintain"):
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


class TestOptions:
    def test_all_options_are_stored(self, db):
        until = timezone.now() + timedelta(days=1)

        create_api_key(
            "feed", ["read"], states=["routes", "airlines"], key_prefix=["JFK", 9], rate=600, burst=20, expires_at=until
        )

        key = ApiKey.objects.get()
        assert (key.states, key.key_prefix) == (["airlines", "routes"], ["JFK", 9])
        assert (key.rate, key.burst, key.expires_at) == (600, 20, until)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"key_prefix": [["JFK"]]}, "a key prefix is a list of strings, numbers and booleans"),
            ({"key_prefix": [None]}, "a key prefix is a list of strings, numbers and booleans"),
            ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "is in the past"),
            ({"rate": -1}, "a rate of -1 with a burst of None allows nothing"),
            ({"burst": 0}, "a rate of None with a burst of 0 allows nothing"),
        ],
    )
    def test_invalid_options_are_refused(self, db, options, message):
        with pytest.raises(KeyOptionError, match=message):
            create_api_key("feed", ["read"], **options)

        assert not ApiKey.objects.exists()

    def test_a_key_with_a_key_prefix_cannot_have_the_scope_maintain(self, db):
        with pytest.raises(KeyOptionError, match="remove the key prefix or the scope 'maintain'"):
            create_api_key("feed", ["read", "maintain"], key_prefix=["JFK"])


class TestRotation:
    def test_old_and_new_secret_are_both_valid_during_the_grace_period(self, db):
        key, old = create_api_key("feed", ["read"])

        new = rotate_api_key(key, timedelta(hours=1))

        assert new.split("_")[:2] == old.split("_")[:2]
        assert new != old
        assert verified(new) == verified(old) == key

    def test_the_old_secret_is_refused_after_the_grace_period(self, db):
        key, old = create_api_key("feed", ["read"])
        new = rotate_api_key(key, timedelta(hours=1))
        verified(old)
        ApiKey.objects.update(previous_until=timezone.now())
        authentication.clear_cache()

        assert verified(old) is None
        assert verified(new) == key

    def test_without_a_grace_period_the_old_secret_is_refused_at_once(self, db):
        key, old = create_api_key("feed", ["read"])
        verified(old)

        new = rotate_api_key(key, timedelta())

        assert verified(old) is None
        assert verified(new) == key

    def test_a_second_rotation_ends_the_grace_period_of_the_first(self, db):
        key, first = create_api_key("feed", ["read"])
        second, third = rotate_api_key(key), rotate_api_key(key)

        assert verified(first) is None
        assert verified(second) == verified(third) == key

    def test_a_revoked_key_is_not_rotated(self, db):
        key, _ = create_api_key("feed", ["read"])
        revoke_api_key(key)

        with pytest.raises(KeyRevokedError, match="API key 'feed' is revoked; create another one"):
            rotate_api_key(key)

    def test_both_secrets_of_a_revoked_key_are_refused(self, db):
        key, old = create_api_key("feed", ["read"])
        new = rotate_api_key(key)

        revoke_api_key(key)

        assert verified(old) is verified(new) is None

    def test_a_negative_grace_period_is_refused(self, db):
        key, _ = create_api_key("feed", ["read"])

        with pytest.raises(KeyOptionError, match="is negative"):
            rotate_api_key(key, timedelta(seconds=-1))

    def test_no_secret_is_stored(self, db):
        key, old = create_api_key("feed", ["read"])
        new = rotate_api_key(key)

        stored = str(ApiKey.objects.values().get()) + str(list(AuditEntry.objects.values()))
        assert old.split("_", 2)[2] not in stored
        assert new.split("_", 2)[2] not in stored


class TestAudit:
    def test_every_action_on_a_key_is_recorded_with_its_actor(self, db, django_user_model):
        ada = django_user_model.objects.create_user("ada")

        key, _ = create_api_key("feed", ["read"], created_by=ada, states=["routes"], rate=60)
        rotate_api_key(key, timedelta(hours=1), by=ada)
        revoke_api_key(key, by=ada)

        noted = AuditEntry.objects.order_by("id")
        assert [(entry.action, entry.actor) for entry in noted] == [
            ("key.create", "ada"),
            ("key.rotate", "ada"),
            ("key.revoke", "ada"),
        ]
        assert {entry.target for entry in noted} == {f"API key {key}"}
        assert [entry.detail for entry in noted] == [
            {"scopes": ["read"], "states": ["routes"], "rate": 60},
            {"grace_seconds": 3600.0},
            {},
        ]

    def test_the_actor_of_a_command_is_the_command_line(self, db):
        create_api_key("feed", ["read"])

        assert AuditEntry.objects.get().actor == "the command line"

    def test_a_second_revocation_is_not_recorded(self, db):
        key, _ = create_api_key("feed", ["read"])
        revoke_api_key(key)
        revoke_api_key(key)

        assert AuditEntry.objects.filter(action="key.revoke").count() == 1


class TestChanging:
    def test_a_changed_key_keeps_its_secret_and_follows_at_once(self, db):
        key, secret = create_api_key("feed", ["read"], states=["totals"])
        assert verified(secret).states == ["totals"]

        change_api_key(key, states=[], rate=60)

        assert (verified(secret).states, verified(secret).rate) == ([], 60)

    def test_the_entry_has_the_options_before_and_after(self, db):
        key, _ = create_api_key("feed", ["read"])

        change_api_key(key, scopes=["read", "maintain"])

        entry = AuditEntry.objects.get(action="key.change")
        assert (entry.actor, entry.target) == ("the command line", f"API key {key}")
        assert entry.detail == {"before": {"scopes": ["read"]}, "after": {"scopes": ["maintain", "read"]}}

    def test_a_revoked_key_is_not_changed(self, db):
        key, _ = create_api_key("feed", ["read"])
        revoke_api_key(key)

        with pytest.raises(KeyRevokedError, match="API key 'feed' is revoked"):
            change_api_key(key, rate=60)

    @pytest.mark.parametrize("options", [{"scopes": ["write"]}, {"scopes": ["maintain"], "key_prefix": ["JFK"]}])
    def test_options_that_a_new_key_may_not_have_are_refused(self, db, options):
        key, _ = create_api_key("feed", ["read"])

        with pytest.raises(KeyOptionError):
            change_api_key(key, **options)

        assert ApiKey.objects.get().scopes == ["read"]

    def test_a_key_gives_only_scopes_that_it_has(self, db):
        giver, _ = create_api_key("ci", ["configuration", "read"])

        assert missing_to_give(giver, "read") == []
        assert missing_to_give(giver, "maintain") == ["the scope 'maintain'"]
