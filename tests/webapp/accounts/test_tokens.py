"""Short-lived tokens: restricted as their API key is or more, and valid no longer than it."""

import base64
import hashlib
import hmac
import json
import time
from datetime import timedelta

import jwt
import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from tidegauge.webapp.accounts import authentication, tokens
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.key_options import KeyOptionError
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import OutsideError
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key, rotate_api_key
from tidegauge.webapp.accounts.tokens import RefusedTokenError

SCOPES = ["issue_tokens", "read"]


@pytest.fixture
def key(db) -> ApiKey:
    return create_api_key("backend", SCOPES)[0]


@pytest.fixture
def clock(monkeypatch):
    """Both clocks, of the wall and the monotonic one; the test moves them."""

    class Clock:
        wall, monotonic = timezone.now(), time.monotonic()

        def advance(self, seconds: float) -> None:
            self.wall, self.monotonic = self.wall + timedelta(seconds=seconds), self.monotonic + seconds

    clock = Clock()
    monkeypatch.setattr(timezone, "now", lambda: clock.wall)
    monkeypatch.setattr(time, "monotonic", lambda: clock.monotonic)
    return clock


def forged(key: ApiKey, *, secret: bytes | None = None, algorithm: str = "HS256", header=None, **claims) -> str:
    """A token as `issue` makes it, except for what the test changes. A claim of None is left out."""
    now = int(time.time())
    usual = {
        "iss": "tidegauge", "aud": "tidegauge:read", "iat": now, "nbf": now, "exp": now + 60, "jti": "1", "states": [],
        "key_prefix": [],
    }  # fmt: skip
    claims = {name: value for name, value in (usual | claims).items() if value is not None}
    secret = tokens.signing_key(key.secret_sha512) if secret is None else secret
    return jwt.encode(claims, secret, algorithm, headers={"kid": key.prefix} | (header or {}))


def refused(token: str) -> bool:
    """Whether no API key is found for a token, or its refusal says why."""
    try:
        return verified(token) is None
    except RefusedTokenError:
        return True


def test_a_token_stands_for_its_key_with_its_restrictions(key):
    issued = issue(key, states=["b", "a"], key_prefix=["JFK"], rate=60, burst=5, sub="user-17")

    found = verified(issued.text)

    assert (found.pk, found.prefix, found.states, found.key_prefix) == (key.pk, key.prefix, ["a", "b"], ["JFK"])
    assert (found.token.rate, found.token.burst, found.token.sub) == (60, 5, "user-17")
    assert found.token == issued.token


def test_a_token_reads_only(key):
    found = verified(issue(key).text)

    assert [scope for scope in ("read", "maintain", "issue_tokens") if found.allows(scope)] == ["read"]


def test_a_token_without_restrictions_has_those_of_its_key(db):
    key, _ = create_api_key("backend", SCOPES, states=["a"], key_prefix=["JFK"], rate=60)

    found = verified(issue(key).text)

    assert (found.states, found.key_prefix, found.rate, found.token.rate) == (["a"], ["JFK"], 60, None)


class TestForgery:
    def test_an_unchanged_one_is_accepted(self, key):
        assert verified(forged(key)).pk == key.pk

    @pytest.mark.parametrize("secret", [b"x" * 64, b"stored digest", b"secret key"])
    def test_another_signature(self, key, settings, secret):
        known = {b"stored digest": bytes(key.secret_sha512), b"secret key": settings.SECRET_KEY.encode()}

        assert verified(forged(key, secret=known.get(secret, secret))) is None

    def test_the_signature_of_another_key(self, key):
        other, _ = create_api_key("other", SCOPES)

        assert verified(forged(key, header={"kid": other.prefix})) is None

    def test_no_algorithm(self, key):
        header, claims, _ = forged(key).split(".")
        none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": key.prefix}).encode()).rstrip(b"=").decode()

        assert verified(f"{none}.{claims}.") is None
        assert verified(f"{header}.{claims}.") is None

    @pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
    def test_another_algorithm(self, key, algorithm):
        assert verified(forged(key, algorithm=algorithm)) is None

    def test_claims_that_were_edited(self, key):
        header, _, signature = forged(key, states=["a"]).split(".")

        assert verified(f"{header}.{forged(key).split('.')[1]}.{signature}") is None

    @pytest.mark.parametrize("kid", ["", "00000000", "' OR 1=1", "../../x", 7, None, ["a"]])
    def test_another_key_id(self, key, kid):
        head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": kid}).encode()).rstrip(b"=").decode()
        body = forged(key).split(".")[1]
        seal = hmac.digest(tokens.signing_key(key.secret_sha512), f"{head}.{body}".encode(), hashlib.sha256)

        assert verified(f"{head}.{body}.{base64.urlsafe_b64encode(seal).rstrip(b'=').decode()}") is None

    @pytest.mark.parametrize(
        "text", ["..", "a.b.c", "eyJ.eyJ.x", "\xe9.\xe9.\xe9", "tmk_00000000_a.b.c", "e30.e30.e30"]
    )
    def test_a_malformed_token(self, key, text):
        assert verified(text) is None


class TestClaims:
    @pytest.mark.parametrize(
        "claims",
        [
            {"exp": int(time.time()) - 3_600},
            {"nbf": int(time.time()) + 3_600},
            {"iat": int(time.time()) + 3_600},
            {"iss": "another installation"},
            {"aud": "another:service"},
            {"exp": None},
            {"jti": None},
            {"states": None},
        ],
    )
    def test_a_token_for_another_time_or_place_is_refused(self, key, claims):
        with pytest.raises(RefusedTokenError):
            verified(forged(key, **claims))

    def test_another_issuer_in_the_settings_ends_tokens(self, key, settings):
        token = issue(key).text
        settings.TIDEGAUGE_TOKEN_ISSUER = "staging"

        with pytest.raises(RefusedTokenError, match="issuer"):
            verified(token)

    def test_another_secret_key_ends_tokens(self, key, settings):
        token = issue(key).text
        settings.SECRET_KEY = "that of another installation"

        assert verified(token) is None

    def test_a_cached_token_expires_at_its_time(self, key, clock):
        token = issue(key, lifetime_seconds=60).text
        assert verified(token) is not None

        clock.advance(59)
        assert verified(token) is not None
        clock.advance(1 + tokens.CLOCK_SKEW.total_seconds())
        with pytest.raises(RefusedTokenError, match="expired"):
            verified(token)

    def test_a_lifetime_ends_with_the_key(self, db, clock):
        until = (clock.wall + timedelta(seconds=30)).replace(microsecond=0)
        key, _ = create_api_key("backend", SCOPES, expires_at=until)

        issued = issue(key, lifetime_seconds=600)

        assert issued.token.expires_at == until
        clock.advance(31)
        assert refused(issued.text)


class TestWider:
    @pytest.fixture
    def key(self, db) -> ApiKey:
        return create_api_key("backend", SCOPES, states=["a", "b"], key_prefix=["JFK", 1], rate=600, burst=20)[0]

    @pytest.mark.parametrize(
        "wider",
        [
            {"states": ["a", "c"]},
            {"key_prefix": ["EWR"]},
            {"key_prefix": ["JFK"]},
            {"key_prefix": ["JFK", True]},
            {"key_prefix": ["JFK", 1.0]},
            {"rate": 601},
            {"rate": 60, "burst": 21},
        ],
    )
    def test_a_token_that_would_be_wider_than_its_key_is_refused(self, key, wider):
        with pytest.raises(OutsideError):
            issue(key, **wider)

    def test_a_narrower_one_is_not(self, key):
        found = verified(issue(key, states=["b"], key_prefix=["JFK", 1, "x"], rate=600, burst=20).text)

        assert (found.states, found.key_prefix) == (["b"], ["JFK", 1, "x"])

    @pytest.mark.parametrize(
        ("now", "left"),
        [
            ({"states": ["b", "c"]}, (["b"], ["JFK", 1])),
            ({"states": ["c"]}, None),
            ({"states": []}, (["a", "b"], ["JFK", 1])),
            ({"key_prefix": ["JFK", 1, "x"]}, (["a", "b"], ["JFK", 1, "x"])),
            ({"key_prefix": ["EWR"]}, None),
            ({"key_prefix": ["EWR", 1]}, None),
            ({"key_prefix": []}, (["a", "b"], ["JFK", 1])),
        ],
    )
    def test_a_key_that_is_restricted_further_restricts_its_tokens(self, key, now, left):
        token = issue(key).text
        ApiKey.objects.update(**now)

        found = verified(token)

        assert left == (found and (found.states, found.key_prefix))

    @pytest.mark.parametrize(
        ("now", "left"),
        [
            ({"states": ["a"]}, (["a"], ["JFK"])),
            ({"key_prefix": ["JFK", 1]}, (["a", "b"], ["JFK", 1])),
            ({"key_prefix": ["EWR"]}, None),
        ],
    )
    def test_a_token_in_use_is_restricted_as_soon_as_its_key_is(self, db, clock, settings, now, left):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 5
        token = issue(create_api_key("backend", SCOPES)[0], states=["a", "b"], key_prefix=["JFK"]).text
        assert verified(token).key_prefix == ["JFK"]
        ApiKey.objects.update(**now)

        clock.advance(5)

        found = verified(token)
        assert left == (found and (found.states, found.key_prefix))

    def test_a_key_that_may_not_read_any_more_ends_what_its_tokens_may(self, key):
        token = issue(key).text
        ApiKey.objects.update(scopes=["issue_tokens"])

        assert not verified(token).allows("read")


class TestTheEndOfAKey:
    def test_revoked_here(self, key):
        token = issue(key).text
        verified(token)

        revoke_api_key(key)

        assert verified(token) is None

    def test_revoked_by_another_process(self, key, clock, settings):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 5
        token = issue(key).text
        verified(token)
        ApiKey.objects.update(revoked_at=timezone.now())

        assert verified(token) is not None
        clock.advance(5)
        assert verified(token) is None

    def test_rotated(self, key, clock):
        token = issue(key).text
        rotate_api_key(key, timedelta(seconds=30))
        new = issue(ApiKey.objects.get()).text

        assert verified(token) is not None
        clock.advance(31)
        assert verified(token) is None
        assert verified(new) is not None

    def test_rotated_twice(self, key):
        token = issue(key).text
        rotate_api_key(key, timedelta(days=1))
        rotate_api_key(ApiKey.objects.get(), timedelta(days=1))

        assert verified(token) is None

    def test_expired_while_cached(self, key, clock, settings):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 3_600
        token = issue(key).text
        ApiKey.objects.update(expires_at=F("created_at") + timedelta(seconds=30))
        assert verified(token) is not None

        clock.advance(31)

        assert verified(token) is None


class TestSavedQueries:
    def test_a_token_may_be_for_some_of_those_of_its_key(self, db):
        key, _ = create_api_key("backend", SCOPES, queries=["share", "top"])

        assert verified(issue(key).text).queries == ["share", "top"]
        assert verified(issue(key, queries=["top"]).text).queries == ["top"]
        with pytest.raises(OutsideError, match="restricted to the saved queries share, top"):
            issue(key, queries=["other"])

    def test_a_key_of_all_states_makes_tokens_for_one_query(self, key):
        assert verified(issue(key, queries=["top"]).text).queries == ["top"]

    @pytest.mark.parametrize(("now", "left"), [(["top"], ["top"]), (["other"], None)])
    def test_a_key_that_is_restricted_further_restricts_its_tokens(self, key, now, left):
        token = issue(key, queries=["share", "top"]).text
        ApiKey.objects.update(queries=now)

        found = verified(token)

        assert (found and found.queries) == left

    def test_a_server_that_does_not_know_the_restriction_refuses_the_token(self, key):
        token = issue(key, queries=["top"]).text

        with pytest.raises(jwt.InvalidAudienceError):
            jwt.decode(token, tokens.signing_key(key.secret_sha512), ["HS256"], audience="tidegauge:read")


class TestCache:
    def test_a_token_in_use_costs_no_query(self, key, clock, django_assert_num_queries):
        token = issue(key).text
        verified(token)

        with django_assert_num_queries(0):
            verified(token)

    def test_many_tokens_of_a_key_cost_one_query(self, key, clock, django_assert_num_queries):
        made = [issue(key).text for _ in range(20)]
        verified(made[0])
        clock.advance(6)

        with django_assert_num_queries(1):
            assert None not in [verified(token) for token in made]

    def test_a_wrong_token_is_cached(self, key, clock, django_assert_num_queries):
        token = forged(key, header={"kid": "00000000"})

        with django_assert_num_queries(1):
            assert [verified(token) for _ in range(3)] == [None] * 3

    def test_it_is_bounded(self, key, monkeypatch):
        monkeypatch.setattr(tokens, "MAX_CACHED", 3)

        made = [issue(key).text for _ in range(5)]

        assert None not in [verified(token) for token in made]
        assert len(tokens._checked) == 3

    def test_the_use_of_a_token_is_a_use_of_its_key(self, key):
        verified(issue(key).text)

        assert ApiKey.objects.get().last_used_at is not None


class TestRequests:
    STATES = "/api/v1/states"

    def get(self, token: str, path: str = STATES):
        return Client().get(path, headers={"Authorization": f"Bearer {token}"})

    def test_expired_tokens_do_not_count_as_wrong_keys(self, filled, key, settings, monkeypatch):
        settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 1
        old = forged(key, exp=int(time.time()) - 3_600)

        answers = [self.get(old) for _ in range(5)]

        assert {answer.status_code for answer in answers} == {401}
        assert (answers[0].json()["code"], "expired" in answers[0].json()["detail"]) == ("token_refused", True)
        assert self.get(issue(key).text).status_code == 200

    def test_wrong_keys_of_an_address_do_not_block_tokens_of_a_key_in_use(self, filled, key, settings):
        settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 1
        assert self.get(issue(key).text).status_code == 200
        [self.get(f"tmk_00000000_{n}") for n in range(3)]

        assert self.get(issue(key).text).status_code == 200

    def test_the_rate_of_a_token_counts_the_tokens_of_a_user_together(self, filled, key):
        first, second = (issue(key, rate=6, burst=1, sub="ada").text for _ in range(2))
        other = issue(key, rate=6, burst=1, sub="bob").text

        assert [self.get(token).status_code for token in (first, second, other)] == [200, 429, 200]
        assert "this token has sent too many requests" in self.get(first).json()["detail"]

    def test_tokens_are_within_the_rate_of_their_key(self, filled, db):
        key, _ = create_api_key("backend", SCOPES, rate=6, burst=1)
        first, second = (issue(key, rate=6, burst=1, sub=sub).text for sub in ("ada", "bob"))

        assert [self.get(token).status_code for token in (first, second)] == [200, 429]


def test_a_key_for_tokens_must_be_able_to_read(db):
    with pytest.raises(KeyOptionError, match="read"):
        create_api_key("backend", ["issue_tokens"])


def test_a_cleared_cache_forgets_tokens(key):
    verified(issue(key).text)

    authentication.clear_cache()

    assert not tokens._checked
    assert not tokens._keys
