"""Sessions that a process knows: those that a request has found signed in, for ten minutes, and no other cookie."""

import pytest

from tidegauge.webapp.accounts import known_sessions
from tidegauge.webapp.accounts.callers import caller_of
from tidegauge.webapp.accounts.services import create_api_key

STRANGER = ("address 192.0.2.7", False)


@pytest.fixture(autouse=True)
def nobody_is_known():
    known_sessions.clear_cache()
    yield
    known_sessions.clear_cache()


def sent_by(client, **more):
    cookies = "; ".join(f"{name}={cookie.value}" for name, cookie in client.cookies.items())
    return {"REMOTE_ADDR": "192.0.2.7", "HTTP_COOKIE": cookies} | more


@pytest.fixture
def ann(client, django_user_model):
    user = django_user_model.objects.create_user("ann", password="x")
    client.force_login(user)
    return user


def test_a_person_is_a_caller_once_a_page_has_found_the_session(client, ann, django_assert_num_queries):
    assert caller_of(sent_by(client)) == STRANGER

    client.get("/alerts/")

    with django_assert_num_queries(0):
        assert caller_of(sent_by(client)) == (f"user {ann.pk}", True)


def test_beside_an_api_key_a_session_does_not_count(client, ann):
    client.get("/alerts/")

    for wrong in ("Bearer tmk_12345678_x", "Bearer x"):
        assert caller_of(sent_by(client, HTTP_AUTHORIZATION=wrong)) == STRANGER
    _, secret = create_api_key("reader", ["read"])
    assert caller_of(sent_by(client, HTTP_AUTHORIZATION=f"Bearer {secret}")) == STRANGER


@pytest.mark.parametrize("cookie", ["", "sessionid=", "sessionid=made_up", "other=1", "sessionid"])
def test_a_cookie_that_is_nobody_s_session_is_a_stranger_s_however_often_it_comes(client, db, ann, cookie):
    client.get("/alerts/")
    meta = {"REMOTE_ADDR": "192.0.2.7", "HTTP_COOKIE": cookie}

    for _ in range(3):
        client.cookies.clear()
        client.get("/alerts/", headers={"cookie": cookie})

    assert caller_of(meta) == STRANGER


def test_a_session_that_signs_nobody_in_is_a_stranger_s(client, db):
    session = client.session
    session["language"] = "en"
    session.save()

    client.get("/alerts/")

    assert caller_of(sent_by(client)) == STRANGER


def test_after_a_sign_out_the_new_cookie_is_a_stranger_s(client, ann):
    client.get("/alerts/")

    client.post("/logout")

    assert caller_of(sent_by(client)) == STRANGER


def test_a_session_is_known_for_ten_minutes(client, ann, monkeypatch):
    client.get("/alerts/")
    later = known_sessions.time.monotonic() + known_sessions.KNOWN_SECONDS + 1
    monkeypatch.setattr(known_sessions.time, "monotonic", lambda: later)

    assert caller_of(sent_by(client)) == STRANGER


def test_no_more_sessions_are_kept_than_fit_and_the_oldest_goes_first(client, ann, monkeypatch):
    monkeypatch.setattr(known_sessions, "MOST_KNOWN", 2)
    metas = []
    for _ in range(3):
        client.force_login(ann)
        client.get("/alerts/")
        metas.append(sent_by(client))
        client.logout()

    assert [caller_of(meta).is_verified for meta in metas] == [False, True, True]
