"""Dead letters in the API: groups without input, and files with it for those who may read it."""

import csv
import io
import json

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.webapp.accounts.services import create_api_key

GROUPS = "/pipelines/flights/dead-letters/groups"
EXPORT = "/pipelines/flights/dead-letters/export"
RAW = {"line": 'raw, "1"\r\n', "n": 10**30}

REPLAY = "/pipelines/flights/dead-letters/replay"


@pytest.fixture
def letters(lasting):
    bad = [
        DeadLetter("/in/a.jsonl", '{"n": "x1"}', f'n: expected int, got "x{n}"', n, record=RAW if n > 1 else None)
        for n in (1, 2, 3)
    ]
    batch = lasting.commit({("JFK", "C00"): 5}, bad)
    write_dead_letters(lasting.conn, batch, [DeadLetter("state totals", "{}", "too large: 9")], state="totals")
    lasting.open({("JFK", "C00"): 5}, [DeadLetter("/in/b.jsonl", "{", "of an open batch")])
    return lasting


@pytest.fixture
def reading(letters) -> CheckedClient:
    """A client whose key may read the input of dead letters."""
    return CheckedClient(create_api_key("letters", ["dead_letters"])[1])


def body(response) -> str:
    return b"".join(response.streaming_content).decode()


def lines(response) -> list[dict]:
    return [json.loads(line) for line in body(response).splitlines()]


class TestGroups:
    def test_each_has_its_figures_and_an_example_without_input(self, letters, api):
        answer = api.ask("GET", GROUPS).json()

        [largest, other] = answer["groups"]
        assert (answer["letters"], answer["is_whole"], sum(largest["trend"])) == (4, True, 3)
        assert (largest["state"], largest["reason"]) == ("", "n: expected int, got …")
        assert (largest["letters"], largest["share"], largest["replayable"]) == (3, 0.75, 2)
        assert (largest["example"]["line_number"], largest["example"]["reason"]) == (3, 'n: expected int, got "x3"')
        assert (other["state"], other["reason"], other["letters"]) == ("totals", "too large: …", 1)
        assert "raw" not in str(answer)

    @pytest.mark.parametrize(
        ("query", "found"), [("state=totals", 1), ("state=(source)&txid=3", 3), ("txid=2", 0), ("state=&reason=", 4)]
    )
    def test_they_are_filtered(self, letters, api, query, found):
        answer = api.ask("GET", f"{GROUPS}?{query}").json()

        assert sum(group["letters"] for group in answer["groups"]) == answer["letters"] == found

    def test_a_group_is_found_by_its_reason(self, letters, api):
        answer = api.get(f"/api/v1{GROUPS}", {"reason": "n: expected int, got …"}).json()

        assert [group["letters"] for group in answer["groups"]] == [3]

    def test_an_unknown_pipeline_and_a_restricted_key_are_refused(self, letters, api):
        restricted = CheckedClient(create_api_key("one state", ["read", "dead_letters"], states=["totals"])[1])

        assert api.ask("GET", "/pipelines/nosuch/dead-letters/groups").status_code == 404
        for path in (GROUPS, f"{EXPORT}?format=csv"):
            assert restricted.ask("GET", path).json()["code"] == "outside_key_scope"


class TestExport:
    def test_json_lines_have_each_letter_of_committed_batches_newest_first_with_its_raw_record(self, reading):
        response = reading.ask("GET", f"{EXPORT}?format=ndjson")

        found = lines(response)
        assert [(each["source"], each["line_number"], each["record"]) for each in found] == [
            ("state totals", None, None),
            ("/in/a.jsonl", 3, RAW),
            ("/in/a.jsonl", 2, RAW),
            ("/in/a.jsonl", 1, None),
        ]
        assert response.headers["Content-Disposition"] == 'attachment; filename="flights-dead-letters.ndjson"'

    def test_csv_has_the_same_columns_and_rows(self, reading):
        rows = list(csv.DictReader(io.StringIO(body(reading.ask("GET", f"{EXPORT}?format=csv")), newline="")))

        assert list(rows[0]) == list(lines(reading.ask("GET", f"{EXPORT}?format=ndjson"))[0])
        assert [row["line_number"] for row in rows] == ["", "3", "2", "1"]
        assert json.loads(rows[1]["record"]) == RAW

    def test_it_takes_the_filters_of_the_groups_and_a_limit(self, reading):
        asked = {"state": "(source)", "txid": "3", "reason": "n: expected int, got …", "limit": "2", "format": "ndjson"}

        assert [each["line_number"] for each in lines(reading.get(f"/api/v1{EXPORT}", asked))] == [3, 2]

    @pytest.mark.parametrize("scopes", [["read"], ["read", "maintain"], ["issue_tokens", "read"]])
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_a_key_without_the_scope_is_refused(self, letters, scopes, method):
        client = CheckedClient(create_api_key("other", scopes)[1])

        response = client.generic(method, f"/api/v1{EXPORT}?format=csv")

        assert (response.status_code, response.streaming) == (403, False)

    @pytest.mark.parametrize(("permissions", "status"), [([], 403), (["view_dead_letters"], 200)])
    def test_a_person_needs_the_permission(self, letters, django_user_model, permissions, status):
        user = django_user_model.objects.create_user("ann")
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)

        assert client.get(f"/api/v1{EXPORT}?format=csv").status_code == status

    def test_it_counts_among_the_exports_of_its_client_and_leaves_no_session(self, reading, letters, settings):
        settings.TIDEGAUGE_EXPORTS_EACH = 1
        first = reading.ask("GET", f"{EXPORT}?format=csv")

        refused = reading.ask("GET", f"{EXPORT}?format=csv")
        first.close()
        head = reading.generic("HEAD", f"/api/v1{EXPORT}?format=csv")

        assert refused.json()["code"] == "too_many_at_once"
        assert (head.status_code, b"".join(head.streaming_content)) == (200, b"")
        # One that still counted would be refused.
        assert body(reading.ask("GET", f"{EXPORT}?format=csv"))


class TestReplay:
    def test_a_request_is_answered_with_what_waits_and_another_is_refused_by_name(self, letters, keeper):
        none = keeper.ask("GET", REPLAY)
        asked = keeper.ask("POST", REPLAY, {"reason": "n: expected int, got …"})
        again = keeper.ask("POST", REPLAY, {})

        assert (none.status_code, none.json()["requested_at"], none.json()["letters"]) == (200, None, 0)
        assert (asked.status_code, again.status_code) == (202, 409)
        assert (asked.json()["letters"], asked.json()["waiting"], asked.json()["remaining"]) == (2, 2, 0)
        assert asked.json()["requested_by"] == "API key keeper"
        assert again.json()["code"] == "replay_under_way"
        assert keeper.ask("GET", REPLAY).json() == asked.json()

    def test_one_that_is_sent_again_with_its_key_is_not_refused(self, letters, keeper):
        first, again, other = (
            keeper.ask("POST", REPLAY, body, headers={"Idempotency-Key": "once"})
            for body in ({}, {}, {"reason": "n: expected int, got …"})
        )

        assert (first.status_code, again.status_code, other.status_code) == (202, 202, 422)
        assert (again.json(), again.headers["Idempotent-Replayed"]) == (first.json(), "true")

    def test_nothing_to_replay_and_no_driver_have_codes(self, letters, keeper):
        nothing = keeper.ask("POST", REPLAY, {"reason": "no such"}).json()
        letters.die()
        alone = keeper.ask("POST", REPLAY, {}).json()

        assert (nothing["code"], alone["code"]) == ("nothing_to_replay", "pipeline_not_driven")
        assert "`tidegauge replay_dead_letters flights`" in alone["detail"]

    @pytest.mark.parametrize("body", [[], {"reason": 7}, {"reason": "\0"}, {"reasons": "x"}])
    def test_a_wrong_body_is_refused(self, letters, keeper, body):
        assert keeper.ask("POST", REPLAY, body).status_code == 400

    def test_a_key_that_reads_alone_or_is_restricted_does_not_replay(self, letters, api):
        restricted = CheckedClient(create_api_key("one state", ["read", "maintain"], states=["totals"])[1])

        assert api.ask("POST", REPLAY, {}).status_code == 403
        for method in ("GET", "POST"):
            assert restricted.ask(method, REPLAY, {} if method == "POST" else None).status_code == 403
        assert marked_letters(letters) == 0


def marked_letters(letters) -> int:
    marked = "SELECT count(*) FROM tidegauge.dead_letter WHERE replay_at IS NOT NULL"
    return letters.conn.execute(marked).fetchone()[0]
