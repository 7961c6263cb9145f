"""Authorization of subscriptions: the same credentials, key scopes and problem documents as for lookups."""

import time
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.webapp.events.events_server import Listener, events_server
from tests.webapp.processes import SESSION_ORIGIN, TOKEN_ORIGIN
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import ApiKey, Restriction, UsageHour
from tidegauge.webapp.accounts.revoked_tokens import revoke_token
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key
from tidegauge.webapp.catalog import readers

STATE = "/events/states/flights_by_carrier"
OTHER = "https://other.example"


@pytest.fixture
def cookie(transactional_db):
    """The session of a user."""
    client = Client()
    client.force_login(User.objects.create_user("reader"))
    return f"sessionid={client.cookies['sessionid'].value}"


def refused(listener):
    problem = listener.problem()
    assert problem["status"] == listener.status
    return problem["status"], problem["detail"]


def scoped(**scope):
    key, secret = create_api_key("scoped", ["read"])
    ApiKey.objects.filter(pk=key.pk).update(**scope)
    return secret


class TestCredentials:
    def test_a_request_without_a_key_is_refused(self, flights, listen):
        listener = listen(STATE, key=None)

        assert refused(listener)[0] == 401
        assert listener.headers["www-authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("key", ["tmk_00000000_wrong", "nonsense"])
    def test_a_wrong_key_is_refused(self, flights, listen, key):
        assert refused(listen(STATE, key=key))[0] == 401

    def test_a_key_in_the_url_does_not_count(self, flights, listen, api_key):
        assert refused(listen(f"{STATE}?api_key={api_key}", key=None))[0] == 401
        assert refused(listen(f"{STATE}?api_key=tmk_x"))[0] == 400

    def test_a_key_in_the_header_x_api_key_is_accepted(self, flights, listen, api_key):
        assert listen(STATE, key=None, headers={"X-Api-Key": api_key}).next().event == "ready"

    def test_a_key_without_the_scope_read_is_refused(self, flights, listen):
        _, key = create_api_key("keeper", ["maintain"])

        assert refused(listen(STATE, key=key))[0] == 403

    def test_a_session_of_the_dashboard_is_accepted(self, flights, listen, cookie):
        listener = listen(STATE, key=None, headers={"Cookie": cookie})

        assert listener.next().event == "ready"

    def test_the_stream_of_a_revoked_key_ends(self, flights, listen):
        key, secret = create_api_key("short-lived", ["read"])
        listener = listen(STATE, key=secret)
        listener.until("ready")

        revoke_api_key(key)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)

    def test_the_stream_of_a_revoked_key_ends_while_its_address_sends_wrong_keys(self, flights, listen, narrow):
        key, secret = create_api_key("short-lived", ["read"])
        listener = listen(STATE, key=secret, at=narrow)
        listener.until("ready")
        wrong = [listen(STATE, key=f"tmk_{number:08x}_wrong", at=narrow).status for number in range(4)]
        assert wrong[-1] == 429

        revoke_api_key(key)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)

    def test_a_key_is_accepted_while_its_address_sends_wrong_keys(self, flights, listen, narrow):
        wrong = [listen(STATE, key=f"tmk_{number:08x}_wrong", at=narrow).status for number in range(5)]
        assert wrong[-1] == 429

        assert listen(STATE, at=narrow).next().event == "ready"

    def test_no_event_is_sent_until_it_is_known_whether_the_key_is_still_valid(self, flights, listen):
        revoked, secret = create_api_key("short-lived", ["read"])
        listeners = [listen(STATE), listen(STATE, key=secret)]
        for listener in listeners:
            listener.until("ready")

        with unreadable_api_keys() as conn:
            assert listeners[0].no_more(1.5)
            conn.execute("UPDATE unreadable SET revoked_at = now() WHERE id = %s", [revoked.pk])
            flights.commit({("EWR", "C00"): 5})
            assert listeners[0].no_more(2.0)

        assert listeners[0].next().event == "batch"
        with pytest.raises(EOFError):
            listeners[1].next(5.0)

    def test_the_stream_of_a_user_who_is_deactivated_ends(self, flights, listen, cookie):
        listener = listen(STATE, key=None, headers={"Cookie": cookie})
        listener.until("ready")

        User.objects.filter(username="reader").update(is_active=False)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)


class TestTokens:
    @pytest.fixture
    def key(self, transactional_db) -> ApiKey:
        return create_api_key("backend", ["issue_tokens", "read"])[0]

    def test_a_token_is_accepted_in_the_header_and_in_the_url(self, flights, listen, key):
        token = issue(key).text

        assert listen(STATE, key=token).next().event == "ready"
        assert listen(f"{STATE}?token={token}", key=None).next().event == "ready"
        assert listen(f'{STATE}?keys=[["JFK","C00"]]&token={token}', key=None).next().event == "snapshot"

    @pytest.mark.parametrize("second", ["&token={0}", ""])
    def test_a_token_beside_other_credentials_is_refused(self, flights, listen, key, api_key, second):
        token = issue(key).text

        status, detail = refused(
            listen(f"{STATE}?token={token}{second.format(token)}", key=None if second else api_key)
        )

        assert (status, "without other credentials" in detail) == (400, True)

    def test_an_api_key_in_the_url_is_refused(self, flights, listen, api_key):
        status, detail = refused(listen(f"{STATE}?token={api_key}", key=None))

        assert (status, "in the header" in detail) == (400, True)

    def test_it_gets_its_own_keys_only(self, flights, listen, key):
        token = issue(key, states=["flights_by_carrier"], key_prefix=["JFK"]).text
        listener = listen(f"{STATE}?token={token}", key=None)
        listener.until("ready")

        flights.commit({("EWR", "C00"): 5, ("JFK", "C00"): 5})

        assert [change["key"] for change in listener.next().data["changes"]] == [["JFK", "C00"]]
        assert refused(listen(f"/events/states/totals?token={token}", key=None))[0] == 403
        assert refused(listen(f'{STATE}?prefix=["EWR"]&token={token}', key=None))[0] == 403

    def test_the_stream_of_a_token_ends_with_its_key(self, flights, listen, key):
        listener = listen(f"{STATE}?token={issue(key).text}", key=None)
        listener.until("ready")

        revoke_api_key(key)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)

    def test_a_token_for_a_saved_query_opens_no_stream(self, flights, listen, key):
        token = issue(key, queries=["top"]).text

        for path in (STATE, "/events/tide"):
            status, detail = refused(listen(f"{path}?token={token}", key=None))
            assert (status, detail) == (403, "this API key is restricted to the saved queries top")

    def test_the_stream_of_a_revoked_token_ends_and_that_of_another_does_not(self, flights, listen, key):
        issued, other = issue(key), issue(key)
        listener, kept = (listen(f"{STATE}?token={each.text}", key=None) for each in (issued, other))
        listener.until("ready")
        kept.until("ready")

        revoke_token(issued.token.id, by=key)

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)
        flights.commit({("JFK", "C00"): 5})
        kept.until("batch", 5.0)
        assert refused(listen(f"{STATE}?token={issued.text}", key=None))[0] == 401

    def test_the_stream_of_a_token_ends_when_it_expires(self, flights, listen, key):
        listener = listen(f"{STATE}?token={issue(key, lifetime_seconds=1).text}", key=None)
        listener.until("ready")

        with pytest.raises(EOFError):
            listener.until("batch", 15.0)

    def test_the_log_has_no_signature(self, flights, listen, key, server):
        token = issue(key).text
        listen(f"{STATE}?token={token}", key=None).until("ready")
        listen(f"/events/states/nothing?token={token}", key=None).problem()

        assert token.rpartition(".")[2] not in server.process.log.read_text()

    def test_the_stream_of_a_user_who_is_restricted_ends(self, flights, listen, cookie):
        listener = listen(STATE, key=None, headers={"Cookie": cookie})
        listener.until("ready")

        Restriction.objects.create(user=User.objects.get(username="reader"), states=["totals"])

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)
        assert listen(STATE, key=None, headers={"Cookie": cookie}).status == 403
        commits = listen("/events/tide", key=None, headers={"Cookie": cookie}).next()
        assert commits.data == {"pipelines": {"flights": 2}}


@pytest.mark.processes
def test_a_stream_counts_as_usage_of_its_key(flights, listen, tmp_path):
    key, secret = create_api_key("listener", ["read"], states=["flights_by_carrier"])
    with events_server(tmp_path, TIDEGAUGE_USAGE_FLUSH_SECONDS=0.1) as server:
        listener = listen(STATE, at=server, key=secret)
        listener.until("ready")
        refused(listen("/events/states/totals", at=server, key=secret))

        rows = UsageHour.objects.filter(prefix=key.prefix).order_by("state")
        assert soon(lambda: rows.filter(state="flights_by_carrier", bytes__gt=50).exists())
        assert soon(lambda: rows.filter(refusals=1).exists())

    assert list(rows.values_list("state", "requests", "refusals")) == [("", 1, 1), ("flights_by_carrier", 1, 0)]


class TestKeyScope:
    def test_a_key_for_other_states_is_refused(self, flights, listen):
        status, detail = refused(listen(STATE, key=scoped(states=["totals"])))

        assert (status, "totals" in detail) == (403, True)

    def test_it_does_not_learn_which_other_states_exist(self, flights, listen):
        assert refused(listen("/events/states/nothing", key=scoped(states=["totals"])))[0] == 403

    def test_a_key_with_a_prefix_gets_no_other_keys(self, flights, listen):
        listener = listen(STATE, key=scoped(key_prefix=["JFK"]))
        listener.until("ready")

        flights.commit({("EWR", "C00"): 5, ("JFK", "C00"): 5})

        assert [change["key"] for change in listener.next().data["changes"]] == [["JFK", "C00"]]

    def test_keys_and_prefixes_outside_the_scope_are_refused(self, flights, listen):
        key = scoped(key_prefix=["JFK"])

        assert refused(listen(STATE + '?keys=[["JFK","C00"],["EWR","C00"]]', key=key))[0] == 403
        assert refused(listen(STATE + '?prefix=["EWR"]', key=key))[0] == 403

    def test_commits_of_pipelines_that_feed_other_states_are_not_sent(self, flights, listen):
        assert listen("/events/tide", key=scoped(states=["another"])).next().data == {"pipelines": {}}
        assert listen("/events/tide", key=scoped(states=["totals"])).next().data == {"pipelines": {"flights": 2}}

    def test_the_stream_of_a_key_whose_scope_changes_ends(self, flights, listen):
        key, secret = create_api_key("free", ["read"])
        listener = listen(STATE, key=secret)
        listener.until("ready")

        ApiKey.objects.filter(pk=key.pk).update(key_prefix=["JFK"])

        with pytest.raises(EOFError):
            listener.until("batch", 5.0)


class TestRequests:
    @pytest.mark.parametrize(
        ("path", "status", "text"),
        [
            ("/events/states/nothing", 404, "nothing"),
            ("/events/elsewhere", 404, ""),
            ("/events/states/a/b", 404, ""),
            (STATE + "?keys=[[1,2]]", 400, "origin must be text"),
            (STATE + '?keys=["JFK"]', 400, "key 0"),
            (STATE + "?keys={}", 400, "must be a JSON list"),
            (STATE + "?keys=[", 400, "keys is not JSON"),
            (STATE + '?keys=[["JFK","AA"]]&prefix=["JFK"]', 400, "exclude each other"),
            (STATE + "?prefix=[1]", 400, "origin must be text"),
            (STATE + "?measures=nothing", 400, "no measure 'nothing'"),
            (STATE + "?key=1", 400, "unknown parameter 'key'"),
            ("/events/tide?state=a", 400, "unknown parameter 'state'; there are none"),
            (STATE + "?keys=" + "[" + ",".join(["[]"] * 1_001) + "]", 400, "over the limit of 1000"),
        ],
    )
    def test_an_invalid_request_is_refused_with_the_reason(self, flights, listen, path, status, text):
        answer, detail = refused(listen(path))

        assert (answer, text in detail) == (status, True), detail

    def test_a_request_for_another_media_type_is_refused(self, flights, listen):
        assert refused(listen(STATE, headers={"Accept": "application/json"}))[0] == 406
        assert listen(STATE, headers={"Accept": "text/event-stream"}).status == 200

    def test_a_request_keeps_its_id_if_it_is_valid_and_gets_one_otherwise(self, flights, listen):
        assert listen(STATE, headers={"X-Request-ID": "abc-1"}).until("ready")
        mine = listen("/events/states/nothing", headers={"X-Request-ID": "abc-1"})
        made = listen("/events/states/nothing", headers={"X-Request-ID": "<script>"})

        assert mine.problem()["request_id"] == mine.headers["x-request-id"] == "abc-1"
        assert made.problem()["request_id"] == made.headers["x-request-id"] != "<script>"

    def test_a_request_to_another_host_is_refused(self, flights, server, api_key):
        listener = Listener(server, STATE, {"Host": "evil.example", "Authorization": f"Bearer {api_key}"})

        assert listener.status == 400


class TestOtherOrigins:
    def test_only_pages_of_the_origins_in_the_settings_may_subscribe(self, flights, listen, server):
        allowed = listen(STATE, headers={"Origin": SESSION_ORIGIN})
        own = listen(STATE, headers={"Origin": server.url})
        other = listen(STATE, headers={"Origin": OTHER})

        assert [allowed.status, own.status, other.status] == [200, 200, 403]
        assert allowed.headers["access-control-allow-origin"] == SESSION_ORIGIN
        assert allowed.headers["access-control-allow-credentials"] == "true"
        assert "access-control-allow-origin" not in other.headers
        assert [each.headers["vary"] for each in (allowed, own, other)] == ["Origin"] * 3

    def test_pages_of_the_origins_for_tokens_subscribe_without_a_session(self, flights, listen, cookie):
        allowed = listen(STATE, headers={"Origin": TOKEN_ORIGIN})
        session = listen(STATE, key=None, headers={"Origin": TOKEN_ORIGIN, "Cookie": cookie})
        other = listen(STATE, headers={"Origin": OTHER})

        assert [allowed.status, session.status, other.status] == [200, 403, 403]
        assert allowed.headers["access-control-allow-origin"] == TOKEN_ORIGIN
        assert "access-control-allow-credentials" not in allowed.headers
        assert "token" in session.problem()["detail"]
        assert "access-control-allow-origin" not in other.headers


class TestTheWebProcess:
    def test_it_names_the_url_of_the_events_process(self, settings, db):
        settings.TIDEGAUGE_EVENTS_URL = "https://events.example"

        answer = Client().get(STATE)

        assert (answer.status_code, answer.headers["Content-Type"]) == (421, "application/problem+json")
        assert f"https://events.example{STATE}" in answer.json()["detail"]

    def test_without_a_url_it_names_the_proxy(self, settings, db):
        settings.TIDEGAUGE_EVENTS_URL = ""

        assert "proxy" in Client().get("/events/tide").json()["detail"]

    def test_a_page_of_the_dashboard_gets_no_error_that_its_console_would_report(self, admin_client):
        answer = admin_client.get("/events/tide")

        assert (answer.status_code, answer.content) == (204, b"")
        assert admin_client.get(STATE).status_code == 421


class TestLimits:
    def test_clients_are_limited_per_process_and_per_key(self, flights, listen, narrow):
        _, other = create_api_key("other", ["read"])
        mine = [listen(STATE, at=narrow) for _ in range(2)]
        [listener.until("ready") for listener in mine]
        too_many = listen(STATE, at=narrow)
        assert (too_many.status, too_many.headers["retry-after"]) == (429, "15")

        listen(STATE, at=narrow, key=other).until("ready")
        full = listen(STATE, at=narrow, key=other)
        assert (full.status, full.headers["retry-after"]) == (503, "15")

        mine[0].close()
        assert soon(lambda: listen(STATE, at=narrow).status == 200)


def soon(condition, within=5.0):
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


@contextmanager
def unreadable_api_keys():
    """API keys cannot be checked until the end, because their table has the name `unreadable`."""
    with readers.own_connection() as conn:
        conn.execute("ALTER TABLE api_keys_apikey RENAME TO unreadable")
        try:
            yield conn
        finally:
            conn.execute("ALTER TABLE unreadable RENAME TO api_keys_apikey")
