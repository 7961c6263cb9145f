import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key


def create(*words):
    out, err = StringIO(), StringIO()
    call_command("create_api_key", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_only_the_key_is_on_standard_output(db):
    out, err = create("feed", "--scope", "read", "--scope", "maintain")

    key = verified(out.strip())
    assert (key.name, key.scopes) == ("feed", ["maintain", "read"])
    assert out == out.strip() + "\n"
    assert out.strip() not in err


def test_a_key_has_the_scope_read_by_default(db):
    create("feed")

    assert ApiKey.objects.get().scopes == ["read"]


def test_an_unknown_scope_is_a_usage_error(db):
    with pytest.raises(CommandError, match="scope 'write' is not one of read, maintain") as error:
        create("feed", "--scope", "write")

    assert error.value.returncode == 2


def test_a_key_may_have_a_limit_and_a_key_scope(db):
    create("feed", "--state", "routes", "--key-prefix", '["JFK"]', "--rate", "600", "--burst", "20", "--days", "30")

    key = ApiKey.objects.get()
    assert (key.states, key.key_prefix, key.rate, key.burst) == (["routes"], ["JFK"], 600, 20)
    assert timedelta(days=29) < key.expires_at - timezone.now() < timedelta(days=30)


def test_a_key_may_be_for_saved_queries(db):
    _, err = create("page", "--query", "top", "--query", "share")

    assert ApiKey.objects.get().queries == ["share", "top"]
    assert "for query share, query top" in err
    with pytest.raises(CommandError, match="does nothing else; remove the queries"):
        create("page", "--query", "top", "--scope", "maintain")


def test_a_key_may_expire_at_a_given_time(db):
    create("feed", "--expires-at", "2999-01-01T00:00:00Z")

    assert ApiKey.objects.get().expires_at == datetime(2999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key-prefix", "JFK"], "--key-prefix 'JFK' is not a JSON list"),
        (["--key-prefix", '"JFK"'], "is not a JSON list"),
        (["--expires-at", "tomorrow"], "--expires-at 'tomorrow' is not a time with a time zone"),
        (["--expires-at", "2999-01-01T00:00:00"], "is not a time with a time zone"),
        (["--expires-at", "2999-13-01T00:00:00Z"], "is not a time with a time zone"),
        (["--days", "-1"], "is in the past"),
    ],
)
def test_a_wrong_option_is_a_usage_error(db, words, message):
    with pytest.raises(CommandError, match=message) as error:
        create("feed", *words)

    assert error.value.returncode == 2
    assert not ApiKey.objects.exists()


class TestApiKeys:
    def call(self, *words):
        out, err = StringIO(), StringIO()
        call_command("api_keys", *words, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    def test_the_list_shows_keys_and_no_secrets(self, db):
        key, secret = create_api_key("feed", ["read"], states=["routes"], rate=60)

        out, _ = self.call("list")

        assert f"tmk_{key.prefix}_.." in out
        assert "feed" in out
        assert "active" in out
        assert "60 a minute; routes" in out
        assert secret not in out

    def test_the_list_as_json_has_one_line_per_key(self, db):
        create_api_key("feed", ["read"])
        create_api_key("other", ["read"])

        out, _ = self.call("list", "--json")

        assert [json.loads(line)["name"] for line in out.splitlines()] == ["other", "feed"]

    def test_only_the_new_secret_is_on_standard_output(self, db):
        key, old = create_api_key("feed", ["read"])

        out, err = self.call("rotate", key.prefix, "--grace-seconds", "0")

        assert verified(out.strip()) == key
        assert verified(old) is None
        assert out.strip() not in err

    def test_a_key_is_revoked_by_its_prefix(self, db):
        key, secret = create_api_key("feed", ["read"])

        self.call("revoke", f"tmk_{key.prefix}")

        assert verified(secret) is None

    def test_a_revoked_key_is_not_rotated(self, db):
        key, _ = create_api_key("feed", ["read"])
        self.call("revoke", key.prefix)

        with pytest.raises(CommandError, match="is revoked; create another one"):
            self.call("rotate", key.prefix)

    def test_an_unknown_prefix_is_a_usage_error(self, db):
        with pytest.raises(CommandError, match="there is no API key tmk_00000000") as error:
            self.call("revoke", "00000000")

        assert error.value.returncode == 2


PASSWORD = "a-harbour-master-9"


def test_an_admin_is_created_with_the_password_of_the_environment(db, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_ADMIN_PASSWORD", PASSWORD)

    call_command("create_admin", "ada", "--email", "ada@example.org", stdout=StringIO())

    ada = User.objects.get(username="ada")
    assert (ada.is_superuser, ada.is_staff, ada.check_password(PASSWORD)) == (True, True, True)
    assert AuditEntry.objects.get(action="user.create").target == "user ada"


def test_an_admin_who_exists_keeps_the_password(db, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_ADMIN_PASSWORD", PASSWORD)
    call_command("create_admin", stdout=StringIO())

    with pytest.raises(CommandError, match="'admin' exists already; `tidegauge changepassword admin` gives a new"):
        call_command("create_admin", stdout=StringIO())


def test_an_admin_who_could_not_sign_in_is_not_created(db, settings):
    settings.PASSWORD_SIGN_IN = False

    with pytest.raises(CommandError, match="TIDEGAUGE_PASSWORD_SIGN_IN is 0"):
        call_command("create_admin", stdout=StringIO())


@pytest.mark.parametrize(
    ("password", "said"),
    [("", "no password: set TIDEGAUGE_ADMIN_PASSWORD"), ("short", "too short"), ("password1", "too common")],
)
def test_an_admin_needs_a_password_that_is_not_guessed(db, monkeypatch, password, said):
    monkeypatch.setenv("TIDEGAUGE_ADMIN_PASSWORD", password)

    with pytest.raises(CommandError, match=said):
        call_command("create_admin", stdout=StringIO())
    assert not User.objects.exists()
