"""Signing in: each one is recorded, guessing is limited, and nobody is locked out by others."""

from uuid import uuid4

import pytest
from django.core import signing
from django.test import Client

from tidegauge.webapp.accounts import password_checks as module_of_checks
from tidegauge.webapp.accounts import sign_in as sign_in_module
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.password_checks import password_checks
from tidegauge.webapp.accounts.sign_in import DEVICE_COOKIE

PASSWORD = "a long one 4 u"
OTHER = "192.0.2.8"


@pytest.fixture
def address() -> str:
    """An address that no other test uses."""
    part = uuid4().hex
    return f"2001:db8:{part[:4]}:{part[4:8]}::1"


@pytest.fixture
def ada(db, django_user_model):
    return django_user_model.objects.create_user("ada", password=PASSWORD)


def sign_in(password, name="ada", address="192.0.2.7"):
    return Client(REMOTE_ADDR=address).post("/login", {"username": name, "password": password})


def entries():
    return [(entry.action, entry.target, entry.actor) for entry in AuditEntry.objects.order_by("id")]


def test_a_sign_in_is_recorded_with_the_address(ada):
    sign_in(PASSWORD)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor) == ("user.sign_in", "user ada", "ada")
    assert entry.detail == {"address": "192.0.2.7"}


def test_a_sign_out_is_recorded(ada):
    client = Client()
    client.force_login(ada)

    client.post("/logout")

    assert entries()[-1] == ("user.sign_out", "user ada", "ada")


def test_a_failed_sign_in_is_recorded_without_the_password(ada):
    sign_in("hunter2")

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor) == ("user.failed_sign_in", "user ada", "nobody")
    assert "hunter2" not in str(AuditEntry.objects.values().get())


@pytest.mark.parametrize("name", ["hunter2", "nul\0", ""])
def test_an_unknown_name_is_not_recorded(ada, name):
    sign_in("x", name=name)

    assert "hunter2" not in str(list(AuditEntry.objects.values()))
    assert entries() in ([("user.failed_sign_in", "an unknown user", "nobody")], [])


class TestGuessing:
    @pytest.fixture(autouse=True)
    def two_a_minute(self, settings):
        settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 2

    def test_after_too_many_wrong_passwords_the_right_one_is_refused(self, ada, address):
        for _ in range(2):
            sign_in("wrong", address=address)

        assert sign_in(PASSWORD, address=address).status_code == 200
        assert sign_in(PASSWORD, address=OTHER).status_code == 302

    def test_right_passwords_are_not_counted(self, ada, address):
        assert [sign_in(PASSWORD, address=address).status_code for _ in range(4)] == [302] * 4

    def test_wrong_passwords_of_others_at_the_address_do_not_count(self, ada, address):
        for n in range(8):
            sign_in("wrong", name=f"other{n % 2}", address=address)

        assert sign_in(PASSWORD, address=address).status_code == 302

    def test_a_browser_in_which_the_user_has_signed_in_is_not_limited_by_others(self, ada, address):
        mine = Client(REMOTE_ADDR=address)
        mine.post("/login", {"username": "ada", "password": PASSWORD})
        mine.post("/logout")
        for _ in range(4):
            sign_in("wrong", address=address)

        assert mine.post("/login", {"username": "ada", "password": PASSWORD}).status_code == 302

    def test_such_a_browser_has_a_limit_of_its_own(self, ada, address):
        mine = Client(REMOTE_ADDR=address)
        mine.post("/login", {"username": "ada", "password": PASSWORD})
        mine.post("/logout")

        guesses = [mine.post("/login", {"username": "ada", "password": word}) for word in ("a", "b", PASSWORD)]

        assert [guess.status_code for guess in guesses] == [200, 200, 200]

    @pytest.mark.parametrize("cookie", ["", "nonsense", "WyJhIiwiYiJd:1abcde:forged"])
    def test_a_forged_cookie_counts_like_none(self, ada, address, cookie):
        for _ in range(2):
            sign_in("wrong", address=address)
        forged = Client(REMOTE_ADDR=address)
        forged.cookies[DEVICE_COOKIE] = cookie

        assert forged.post("/login", {"username": "ada", "password": PASSWORD}).status_code == 200

    def test_the_cookie_of_another_user_counts_like_none(self, ada, address, django_user_model):
        django_user_model.objects.create_user("bob", password=PASSWORD)
        browser = Client(REMOTE_ADDR=address)
        browser.post("/login", {"username": "bob", "password": PASSWORD})
        browser.post("/logout")
        for _ in range(2):
            sign_in("wrong", address=address)

        assert browser.post("/login", {"username": "ada", "password": PASSWORD}).status_code == 200

    def test_a_name_guessed_from_everywhere_can_still_sign_in_elsewhere(self, django_user_model, db, monkeypatch):
        name = f"ada-{uuid4().hex[:8]}"
        django_user_model.objects.create_user(name, password=PASSWORD)
        monkeypatch.setattr(sign_in_module, "EVERYWHERE", 1)
        for n in range(4):
            sign_in("wrong", name=name, address=f"2001:db8:1:{uuid4().hex[:4]}::{n}")

        assert sign_in(PASSWORD, name=name, address=f"2001:db8:2:{uuid4().hex[:4]}::1").status_code == 302

    def test_a_name_guessed_from_everywhere_is_refused_where_it_was_guessed_often(
        self, django_user_model, db, monkeypatch, settings, address
    ):
        settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 4
        name = f"ada-{uuid4().hex[:8]}"
        django_user_model.objects.create_user(name, password=PASSWORD)
        monkeypatch.setattr(sign_in_module, "EVERYWHERE", 1)
        for _ in range(3):
            sign_in("wrong", name=name, address=address)
        assert sign_in(PASSWORD, name=name, address=address).status_code == 302

        sign_in("wrong", name=name, address=OTHER)

        assert sign_in(PASSWORD, name=name, address=address).status_code == 200

    def test_recorded_guesses_are_limited(self, ada, address):
        for _ in range(5):
            sign_in("wrong", address=address)

        assert entries() == [("user.failed_sign_in", "user ada", "nobody")] * 2


def test_an_address_with_too_many_wrong_passwords_waits_for_its_turn_and_a_known_browser_does_not(
    ada, address, settings, monkeypatch
):
    settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 1
    monkeypatch.setattr(module_of_checks, "SUSPECT_WAIT_SECONDS", 0.01)
    browser = Client(REMOTE_ADDR=address)
    browser.post("/login", {"username": "ada", "password": PASSWORD})
    browser.post("/logout")
    sign_in("wrong", name="other", address=address)

    with password_checks.turn("elsewhere", is_suspect=False):
        busy = sign_in(PASSWORD, address=address)
        known = browser.post("/login", {"username": "ada", "password": PASSWORD})

    assert [busy.status_code, known.status_code] == [200, 302]
    assert sign_in(PASSWORD, address=address).status_code == 302


def test_the_cookie_of_a_browser_does_not_show_the_name(ada, address):
    cookie = sign_in(PASSWORD, address=address).cookies[DEVICE_COOKIE]

    assert cookie["httponly"]
    assert b"ada" not in signing.b64_decode(cookie.value.partition(":")[0].encode())
