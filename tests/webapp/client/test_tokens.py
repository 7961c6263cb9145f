"""Tokens of a client: made with an API key, used in its place, and renewed before they end or when they are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import jwt
import pytest

from tests.webapp.client.scripted_server import STATES, answer, scripted_server
from tests.webapp.events.follower import commit, views_feed
from tidegauge.client import (
    AuthenticationError,
    Client,
    ForbiddenError,
    InvalidArgumentError,
    RequestError,
    Token,
)
from tidegauge.client.tokens import RETRY_SECONDS, Renewal
from tidegauge.webapp.accounts.services import create_api_key, rotate_api_key

KEY = ("JFK", "C01")
REFUSED = answer(b'{"code": "token_refused"}', "401 Unauthorized")


@pytest.fixture
def issuing(transactional_db):
    """An API key that may make tokens, and its secret."""
    return create_api_key("backend", ["read", "issue_tokens"])


@pytest.fixture
def issuer(web, flights, connect, issuing):
    return connect(web.url, issuing[1])


def made(seconds, name="t"):
    """A token as the server makes them, that lasts so long."""
    now = int(datetime.now(UTC).timestamp())
    return jwt.encode({"iat": now, "exp": now + seconds, "jti": name}, "x" * 32, "HS256")


def issued(url, secret):
    with Client(url, secret) as issuer:
        return issuer.make_token()


class TestMaking:
    def test_a_token_reads_what_it_is_restricted_to(self, web, issuer, connect):
        token = issuer.make_token(states="flights_by_carrier", key_prefix="JFK", lifetime_seconds=60, sub="user-17")

        client = connect(web.url, token.text)
        assert client.state("flights_by_carrier").get(KEY, measures=["flights"]) == {"flights": 99}
        with pytest.raises(ForbiddenError):
            client.state("flights_by_carrier").get(("EWR", "C01"))
        with pytest.raises(ForbiddenError):
            client.state("totals").get(())
        with pytest.raises(ForbiddenError):
            client.make_token()

    def test_a_token_says_what_it_is(self, issuer):
        token = issuer.make_token(states=["totals"], rate=120, burst=5, lifetime_seconds=60)

        assert (token.states, token.key_prefix, token.rate, token.burst, token.sub) == (["totals"], [], 120, 5, "")
        assert timedelta(0) < token.expires_at - datetime.now(UTC) <= timedelta(seconds=60)
        assert isinstance(token, Token)
        assert token.text not in repr(token)

    def test_what_the_api_key_may_not_is_refused(self, web, flights, connect, issuer, api_key):
        with pytest.raises(ForbiddenError):
            connect(web.url, api_key).make_token()
        with pytest.raises(RequestError, match="lifetime_seconds"):
            issuer.make_token(lifetime_seconds=1)


class TestRenewing:
    def test_one_token_serves_many_calls(self, web, issuing, flights, connect):
        texts = []
        client = connect(web.url, None, renew=lambda: texts.append(token := issued(web.url, issuing[1])) or token)

        for _ in range(3):
            assert client.state("totals").get(()) == {"flights": 6130}

        assert len(texts) == 1

    def test_a_token_that_is_refused_is_replaced_once(self, web, issuing, flights, connect):
        secrets = [issuing[1]]
        client = connect(web.url, None, renew=lambda: issued(web.url, secrets[-1]).text)
        assert len(client.states()) == 3
        # Its tokens end with the secret.
        secrets.append(rotate_api_key(issuing[0], grace=timedelta()))

        assert len(client.states()) == 3

    def test_one_that_is_refused_again_is_an_error(self, connect):
        calls = []
        with scripted_server(REFUSED) as server, pytest.raises(AuthenticationError):
            connect(server.url, None, renew=lambda: calls.append(1) or made(60)).states()

        assert (len(calls), len(server.requests)) == (2, 2)

    def test_a_token_is_replaced_before_it_ends(self, connect):
        names = iter(["first", "second", "third"])
        with scripted_server(STATES) as server:
            client = connect(server.url, None, renew=lambda: made(0, next(names)))
            client.states()
            client.states()

        sent = [request.split(b"Bearer ")[1].split(b"\r\n")[0].decode() for request in server.requests]
        assert [jwt.decode(text, options={"verify_signature": False})["jti"] for text in sent] == ["first", "second"]

    def test_threads_have_one_made_together(self):
        calls = []
        with (
            scripted_server(STATES) as server,
            Client(server.url, renew=lambda: calls.append(1) or made(60)) as client,
            ThreadPoolExecutor(8) as threads,
        ):
            list(threads.map(lambda _: client.states(), range(40)))

        assert len(calls) == 1

    def test_an_error_of_the_function_is_the_callers(self, connect):
        def fail():
            raise LookupError("no session")

        with scripted_server(STATES) as server, pytest.raises(LookupError, match="no session"):
            connect(server.url, None, renew=fail).states()

        assert server.requests == []

    @pytest.mark.parametrize("made", ["tmk_secret", "a.b.c", "a.e30.c", 7, None])
    def test_what_is_no_token_is_refused_and_not_shown(self, connect, made):
        with scripted_server(STATES) as server, pytest.raises(InvalidArgumentError, match="did not return") as caught:
            connect(server.url, None, renew=lambda: made).states()

        assert "secret" not in str(caught.value)

    def test_an_api_key_beside_it_is_refused(self, connect):
        with pytest.raises(InvalidArgumentError, match="either an API key or `renew`"):
            connect("http://localhost", "tmk_x", renew=lambda: "")

    def test_a_stream_goes_on_with_another_token(self, web, events_process, issuing, connect):
        secrets = [issuing[1]]
        with views_feed() as feed:
            commit(feed, a=1)
            client = connect(web.url, None, renew=lambda: issued(web.url, secrets[-1]), events_url=events_process.url)
            stream = client.watch(feed.specs[0].name)
            assert next(stream).txid == 1
            secrets.append(rotate_api_key(issuing[0], grace=timedelta()))
            commit(feed, a=1)

            txids = [next(stream).txid for _ in range(2)]
            stream.close()

        assert txids[-1] == 2


class TestWhenATokenIsRenewed:
    """A token of 100 seconds."""

    @pytest.fixture
    def seconds(self):
        return [0.0]

    @pytest.fixture
    def renewal(self, seconds):
        renewal = Renewal(lambda: None, clock=lambda: seconds[0])
        assert renewal.is_due
        renewal.take(made(100), asked_at=0.0)
        return renewal

    def test_is_after_four_fifths_of_its_time(self, renewal, seconds):
        due = []
        for seconds[0] in (0, 79, 81, 200):
            due.append(renewal.is_due)

        assert due == [False, False, True, True]

    def test_is_at_once_when_it_is_refused(self, renewal):
        renewal.refused("another")
        assert not renewal.is_due

        renewal.refused(renewal.text())

        assert renewal.is_due

    def test_is_tried_again_after_a_failure_while_it_lasts(self, renewal, seconds, caplog):
        seconds[0] = 90
        renewal.failed(LookupError("no session"))
        assert not renewal.is_due
        assert "used until it expires" in caplog.text

        seconds[0] = 90 + RETRY_SECONDS
        assert renewal.is_due
        seconds[0] = 100
        with pytest.raises(LookupError):
            renewal.failed(LookupError("no session"))
