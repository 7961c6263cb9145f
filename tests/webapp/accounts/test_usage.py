"""What API keys use is counted by hour and state, stored in batches, and shown to who may see it."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from tests.harness.waiting import eventually
from tests.webapp.web_server import Server, all_of, asked, web_server
from tidegauge.webapp.accounts import authentication, usage
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import ApiKey, UsageHour
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.core.metrics import REGISTRY

JFK = ["JFK", "C01"]
LOOKUP = "/api/v1/states/flights_by_carrier/lookup"


@pytest.fixture(autouse=True)
def counting(settings, monkeypatch):
    """Counted, and stored by the test alone."""
    settings.TIDEGAUGE_USAGE_FLUSH_SECONDS = 3_600
    monkeypatch.setattr(usage, "_counts", {})
    monkeypatch.setattr(usage, "_known_states", set())
    monkeypatch.setattr(usage._flusher, "ensure_started", lambda: None)


@pytest.fixture
def key(db) -> ApiKey:
    return with_secret("feed", ["read", "maintain", "issue_tokens"])


def with_secret(name, scopes, **options) -> ApiKey:
    key, key.shown_once = create_api_key(name, scopes, **options)
    return key


def client(key: ApiKey | str) -> Client:
    return Client(headers={"X-Api-Key": key.shown_once if isinstance(key, ApiKey) else key})


def lookup(key: ApiKey | str, *keys, path: str = LOOKUP, **headers):
    return client(key).post(path, {"keys": keys}, content_type="application/json", headers=headers)


def stored(**filters) -> list[tuple]:
    usage.flush()
    return list(UsageHour.objects.filter(**filters).order_by("state").values_list("state", *usage.FIGURES))


class TestCounting:
    def test_a_lookup(self, filled, key):
        answers = [lookup(key, JFK, ["EWR", "C01"]), lookup(key, JFK)]

        assert stored(prefix=key.prefix) == [
            ("flights_by_carrier", 2, 3, sum(len(answer.content) for answer in answers), 0)
        ]

    def test_a_poll_without_news(self, filled, key):
        etag = lookup(key, JFK).headers["ETag"]
        first = stored()[0]

        lookup(key, JFK, **{"If-None-Match": etag})

        assert stored() == [(first[0], 2, 2, first[3], 0)]

    def test_a_lookup_in_several_states_counts_for_each(self, filled, key):
        queries = [{"state": "totals", "keys": [[]]}, {"state": "flights_by_carrier", "keys": [JFK, JFK]}]

        answer = client(key).post("/api/v1/lookup", {"lookups": queries}, content_type="application/json")

        rows = stored()
        assert [row[:3] for row in rows] == [("flights_by_carrier", 1, 2), ("totals", 1, 1)]
        assert sum(row[3] for row in rows) == len(answer.content)

    def test_other_reads_of_a_state_and_reads_of_none(self, filled, key):
        client(key).get("/api/v1/states/totals")
        client(key).get("/api/v1/states/totals/entries")
        client(key).get("/api/v1/pipelines/flights")

        assert [row[:3] for row in stored()] == [("", 1, 0), ("totals", 2, 0)]

    def test_the_bytes_of_a_compressed_answer_are_those_sent(self, filled, key):
        headers = {"X-Api-Key": key.shown_once, "Accept-Encoding": "gzip"}
        answer = Client().get("/api/v1/states/flights_by_carrier/entries?limit=60", headers=headers)

        assert answer.headers["Content-Encoding"] == "gzip"
        assert stored()[0][3] == len(answer.content)

    def test_refusals(self, filled, key):
        narrow = with_secret("narrow", ["read"], states=["totals"], rate=6, burst=3)
        for path in ("/api/v1/states/totals/entries", LOOKUP.removesuffix("/lookup"), "/api/v1/states/nothing"):
            client(narrow).get(path)
        client(narrow).get("/api/v1/states/totals/entries")

        assert [(state, requests, refused) for state, requests, _, _, refused in stored(prefix=narrow.prefix)] == [
            ("", 2, 2),
            ("totals", 2, 1),
        ]

    def test_names_that_do_not_exist_make_no_rows(self, filled, key):
        for n in range(5):
            client(key).get(f"/api/v1/states/invented_{n}")
            client(key).options(f"/api/v1/states/invented_{n}/entries")

        assert [row[:2] for row in stored()] == [("", 10)]
        assert not usage._known_states

    def test_a_token_counts_for_its_key(self, filled, key):
        authentication.clear_cache()
        Client().get("/api/v1/states", headers={"Authorization": f"Bearer {issue(key).text}"})

        assert [row[:2] for row in stored(prefix=key.prefix)] == [("", 1)]

    def test_a_session_and_a_wrong_key_are_not_counted(self, filled, reader):
        reader.get("/api/v1/states")
        client("tmk_00000000_wrong").get("/api/v1/states")

        assert stored() == []

    def test_a_file_counts_its_bytes_when_it_was_sent(self, lasting, key):
        answer = client(key).get("/api/v1/states/flights_by_carrier/export?format=csv")
        body = b"".join(answer)
        answer.close()

        assert stored() == [("flights_by_carrier", 1, 0, len(body), 0)]

    def test_it_can_be_turned_off(self, filled, key, settings):
        settings.TIDEGAUGE_USAGE_FLUSH_SECONDS = 0

        lookup(key, JFK)

        assert stored() == []


class TestStoring:
    def test_counts_of_several_processes_add_up(self, db):
        for _ in range(3):
            usage.count("0123abcd", {"totals": 2}, 10)
            usage.flush()

        assert stored() == [("totals", 3, 6, 30, 0)]

    def test_hours_are_apart(self, db, monkeypatch):
        usage.count("0123abcd", {"totals": 1}, 0)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        usage.count("0123abcd", {"totals": 1}, 0)
        usage.flush()

        now = timezone.now().replace(minute=0, second=0, microsecond=0)
        hours = list(UsageHour.objects.order_by("hour").values_list("hour", flat=True))
        assert hours[0] == datetime(1970, 1, 1, tzinfo=UTC)
        assert hours[1] >= now

    def test_counts_wait_while_the_database_is_unavailable(self, db, monkeypatch):
        usage.count("0123abcd", {"totals": 1}, 5)
        with monkeypatch.context() as away:
            away.setattr(usage, "_add", unavailable)
            usage.flush()
            usage.count("0123abcd", {"totals": 1}, 5)
            usage.flush()
        usage.count("0123abcd", {"": 0}, 1)

        assert stored() == [("", 1, 0, 1, 0), ("totals", 2, 2, 10, 0)]

    def test_memory_is_bounded(self, db, monkeypatch):
        monkeypatch.setattr(usage, "MAX_ROWS", 3)

        for n in range(5):
            usage.count("0123abcd", {f"state_{n}": 1}, 0)

        assert len(stored()) == 3

    def test_the_metrics_of_a_key_grow_when_it_is_stored(self, db):
        usage.count("0123abcd", {"a": 1, "b": 2}, 7, refused=True)
        usage.flush()

        names = ("requests_total", "lookup_keys_total", "sent_bytes_total", "refusals_total")
        sent = [REGISTRY.get_sample_value(f"tidegauge_key_{name}", {"key": "0123abcd"}) for name in names]
        assert sent[0] >= 2
        assert None not in sent

    def test_old_rows_are_deleted(self, db, settings):
        settings.TIDEGAUGE_AUDIT_KEEP_DAYS = 7
        for days in (1, 6, 8, 30):
            row(hour=timezone.now() - timedelta(days=days))

        usage.forget_old()

        assert UsageHour.objects.count() == 2


def unavailable(*args):
    raise OperationalError("no database")


def row(**values) -> UsageHour:
    usual = {"hour": timezone.now(), "prefix": "0123abcd", "state": "totals", "requests": 1, "keys": 2, "bytes": 3}
    return UsageHour.objects.create(**usual | {"refusals": 4} | values)


class TestReading:
    @pytest.fixture
    def rows(self, db):
        for hours, prefix, state in [
            (30, "aaaaaaaa", "a"),
            (3, "aaaaaaaa", "a"),
            (2, "aaaaaaaa", "b"),
            (1, "bbbbbbbb", "a"),
        ]:
            row(hour=timezone.now() - timedelta(hours=hours), prefix=prefix, state=state)

    def listed(self, client, query=""):
        answer = client.get(f"/api/v1/usage{query}")
        assert answer.status_code == 200, answer.content
        return [(each["key"], each["state"]) for each in answer.json()["usage"]]

    def test_a_session_sees_all_the_newest_first(self, rows, admin_client):
        assert self.listed(admin_client) == [("bbbbbbbb", "a"), ("aaaaaaaa", "b"), ("aaaaaaaa", "a")]
        of_a = [("bbbbbbbb", "a"), ("aaaaaaaa", "a"), ("aaaaaaaa", "a")]
        assert self.listed(admin_client, "?hours=48&state=a") == of_a
        assert self.listed(admin_client, "?key=bbbbbbbb") == [("bbbbbbbb", "a")]
        assert self.listed(admin_client, "?limit=1") == [("bbbbbbbb", "a")]

    def test_pages_follow_each_other_by_their_cursor_alone(self, db, admin_client):
        at = timezone.now().replace(minute=0)
        rows = [
            (at - timedelta(hours=n), prefix, state) for n in (0, 30) for prefix in "ab" for state in ("", "x", "y")
        ]
        made = [row(hour=hour, prefix=prefix, state=state) for hour, prefix, state in rows]

        first = admin_client.get("/api/v1/usage?hours=48&key=b&limit=2").json()
        found, cursor = first["usage"], first["next"]
        while cursor:
            page = admin_client.get("/api/v1/usage", {"cursor": cursor, "limit": 1}).json()
            found, cursor = found + page["usage"], page["next"]

        assert [(each["key"], each["state"]) for each in found] == [("b", state) for state in ["", "x", "y"] * 2]
        assert admin_client.get("/api/v1/usage", {"cursor": first["next"], "hours": 3}).status_code == 400
        made[4].delete()  # the last one of the first page
        assert "was deleted" in admin_client.get("/api/v1/usage", {"cursor": first["next"]}).json()["detail"]

    @pytest.mark.parametrize("restrictions", [{}, {"states": ["a"]}])
    def test_a_key_sees_its_own_alone(self, rows, db, restrictions):
        own = with_secret("own", ["read"], **restrictions)
        row(prefix=own.prefix)

        assert self.listed(client(own)) == [(own.prefix, "totals")]
        assert client(own).get("/api/v1/usage?key=aaaaaaaa").status_code == 403

    def test_a_key_with_a_prefix_does_not_learn_from_it_which_states_exist(self, filled, db):
        near = with_secret("near", ["read"], key_prefix=["JFK"])
        client(with_secret("all", ["read"])).get("/api/v1/states/totals")

        for state in ("totals", "nothing"):
            client(near).get(f"/api/v1/states/{state}")
        usage.flush()

        assert set(self.listed(client(near))) == {(near.prefix, "")}

    def test_a_token_sees_none(self, rows, key):
        authentication.clear_cache()
        answer = Client().get("/api/v1/usage", headers={"Authorization": f"Bearer {issue(key).text}"})

        assert answer.status_code == 403

    def test_a_session_needs_the_permission(self, rows, reader):
        assert reader.get("/api/v1/usage").status_code == 403

    @pytest.mark.parametrize("query", ["?hours=0", "?hours=9601", "?limit=0", "?limit=10001", "?hour=1"])
    def test_an_invalid_parameter_is_a_400(self, key, query):
        assert client(key).get(f"/api/v1/usage{query}").status_code == 400

    def test_the_admin_shows_it_by_key_and_by_state(self, rows, key, admin_client):
        row(prefix=key.prefix, requests=1_234)

        page = admin_client.get("/admin/api_keys/usagehour/?state=a").content.decode()
        of_key = admin_client.get(f"/admin/api_keys/apikey/{key.pk}/change/").content.decode()

        assert "tmk_bbbbbbbb_.." in page
        assert "1,234 requests, 2 keys looked up, 3 bytes, 4 refusals" in of_key


@pytest.mark.processes
class TestProcess:
    """A real web process."""

    def test_it_stores_its_counts_in_time_and_what_is_left_when_it_stops(self, transactional_db, key, tmp_path):
        with web_server(tmp_path, TIDEGAUGE_USAGE_FLUSH_SECONDS=4) as server:
            read(server, key)
            eventually(lambda: UsageHour.objects.filter(requests=1).exists())

            assert [read(server, key) for _ in range(3)] == [200] * 3

        assert [each.requests for each in UsageHour.objects.all()] == [4]


def read(server: Server, key: ApiKey) -> int:
    with asked(server.port, "/api/v1/states", key.shown_once) as client:
        return int(all_of(client).split()[1])
