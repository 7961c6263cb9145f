from uuid import uuid4

import pytest
from django.test import Client

from webapp.accounts.audit.models import AuditEntry

PASSWORD = "a long one 4 u"


@pytest.fixture
def ada(db, django_user_model):
    return django_user_model.objects.create_user("ada", password=PASSWORD)


def sign_in(password, name="ada", address="192.0.2.7", door="/login"):
    return Client(REMOTE_ADDR=address).post(door, {"username": name, "password": password})


def noted():
    return [(entry.action, entry.target, entry.actor) for entry in AuditEntry.objects.order_by("id")]


def test_a_sign_in_is_noted_with_the_address(ada):
    sign_in(PASSWORD)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor) == ("user.sign_in", "user ada", "ada")
    assert entry.detail == {"address": "192.0.2.7"}


def test_so_is_a_sign_out(ada):
    client = Client()
    client.force_login(ada)

    client.post("/logout")

    assert noted()[-1] == ("user.sign_out", "user ada", "ada")


@pytest.mark.parametrize("door", ["/login", "/admin/login/"])
def test_a_failed_one_is_noted_at_every_door_and_never_with_the_password(ada, door):
    sign_in("hunter2", door=door)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor) == ("user.failed_sign_in", "user ada", "nobody")
    assert "hunter2" not in str(AuditEntry.objects.values().get())


@pytest.mark.parametrize("name", ["hunter2", "nul\0", ""])
def test_a_name_that_is_none_is_not_noted_for_it_may_be_a_password(ada, name):
    sign_in("x", name=name)

    assert "hunter2" not in str(list(AuditEntry.objects.values()))
    assert noted() in ([("user.failed_sign_in", "an unknown user", "nobody")], [])


class TestGuessing:
    @pytest.fixture(autouse=True)
    def two_a_minute(self, settings):
        settings.TIDEMARK_WRONG_KEY_RATE_PER_MINUTE = 2

    @pytest.fixture
    def address(self):
        part = uuid4().hex
        return f"2001:db8:{part[:4]}:{part[4:8]}::1"

    def test_an_address_that_was_wrong_too_often_may_not_even_be_right(self, ada, address):
        for _ in range(2):
            sign_in("wrong", address=address)

        assert sign_in(PASSWORD, address=address).status_code == 200
        assert sign_in(PASSWORD, address="192.0.2.8").status_code == 302

    def test_who_is_right_at_once_is_not_counted(self, ada, address):
        assert [sign_in(PASSWORD, address=address).status_code for _ in range(4)] == [302] * 4

    def test_guesses_do_not_fill_the_table(self, ada, address):
        for _ in range(5):
            sign_in("wrong", address=address)

        assert noted() == [("user.failed_sign_in", "user ada", "nobody")] * 2
