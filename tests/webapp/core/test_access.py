"""Metrics tell how the business goes: they are for whoever has the token, or for the machine itself."""

import pytest

TOKEN = "scrape-me-0123456789"


def scrape(client, address="127.0.0.1", **headers):
    return client.get("/metrics", headers=headers, REMOTE_ADDR=address)


@pytest.fixture
def with_token(settings):
    settings.TIDEMARK_METRICS_TOKEN = TOKEN


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_the_machine_itself_may_look_where_there_is_no_token(client, db, address):
    response = scrape(client, address)

    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=")
    assert b"tidemark_database_up 1.0" in response.content


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.2", "8.8.8.8", "2001:db8::1", ""])
def test_nobody_else_may(client, db, address):
    assert scrape(client, address).status_code == 403


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_proxy_on_the_machine_is_not_the_machine(client, db, header):
    assert scrape(client, **{header: "127.0.0.1"}).status_code == 403


@pytest.mark.usefixtures("with_token")
class TestToken:
    def test_it_opens_from_everywhere(self, client, db):
        assert scrape(client, "8.8.8.8", Authorization=f"Bearer {TOKEN}").status_code == 200

    @pytest.mark.parametrize("given", ["", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ", TOKEN, "Bearer é"])
    def test_another_one_does_not(self, client, db, given):
        response = scrape(client, Authorization=given)

        assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN.encode() not in response.content

    def test_the_machine_itself_needs_it_too(self, client, db):
        assert scrape(client).status_code == 401


def test_only_reading(client, db):
    assert client.post("/metrics").status_code == 405
