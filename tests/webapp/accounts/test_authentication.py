import pytest
from django.test import Client

from webapp.accounts.services import create_api_key, revoke_api_key

STATES = "/api/v1/states"


@pytest.fixture
def secret(db) -> str:
    return create_api_key("reader", ["read"])[1]


def get(**headers):
    return Client().get(STATES, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("header", "form"), [("Authorization", "Bearer {}"), ("Authorization", "bearer {}"), ("X-Api-Key", "{}")]
)
def test_a_key_comes_in_either_header(filled, secret, header, form):
    assert Client().get(STATES, headers={header: form.format(secret)}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer tmk_00000000_wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"X_Api_Key": "wrong"},
        {"X_Api_Key": ""},
    ],
)
def test_a_missing_or_wrong_key_is_a_401(secret, headers):
    response = get(**headers)

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="tidemark"'
    assert response.headers["Content-Type"] == "application/problem+json"


def test_a_revoked_key_is_a_401(db):
    key, secret = create_api_key("reader", ["read"])
    revoke_api_key(key)

    response = get(X_Api_Key=secret)

    assert (response.status_code, response.json()["detail"]) == (
        401,
        "this API key is unknown, expired or revoked; ask an administrator for another",
    )


def test_a_key_that_may_only_maintain_may_not_read(db):
    response = get(X_Api_Key=create_api_key("keeper", ["maintain"])[1])

    assert response.status_code == 403
    assert "lacks the scope 'read'" in response.json()["detail"]


def test_a_program_needs_no_csrf_token(filled, secret):
    client = Client(enforce_csrf_checks=True, headers={"X-Api-Key": secret})

    response = client.post(f"{STATES}/totals/query", {"keys": [[]]}, content_type="application/json")

    assert response.status_code == 200
