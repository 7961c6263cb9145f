"""What the search finds, for whom, and at what cost."""

import json
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.redis_views import redis_views, unavailable_redis
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.api.problems import PROBLEMS
from tidegauge.webapp.console.dashboard.search import keys
from tidegauge.webapp.console.dashboard.search.pages import Result
from tidegauge.webapp.maintenance.operations import pause_pipeline
from tidegauge.webapp.notify.alerts.models import Acknowledgement, Silence


def search(client: Client, asked: str) -> dict[str, list[str]]:
    """The titles that are found, by the name of their group."""
    found = client.get("/search", {"q": asked}).context["found"]
    return {group.name: [result.title for result in group.results] for group in found.groups}


def address(client: Client, asked: str, group: str) -> str:
    found = {each.name: each for each in client.get("/search", {"q": asked}).context["found"].groups}
    return found[group].results[0].address


def result(client: Client, asked: str) -> Result:
    """The first result."""
    return client.get("/search", {"q": asked}).context["found"].groups[0].results[0]


@pytest.fixture
def operator(reader, django_user_model) -> Client:
    user = django_user_model.objects.get(username="reader")
    wanted = ["change_pipeline", "add_maintenancerun", "add_silence"]
    apps = ["states", "tidegauge_alerts"]
    user.user_permissions.set(Permission.objects.filter(codename__in=wanted, content_type__app_label__in=apps))
    return reader


class TestNames:
    def test_pipelines_and_states_are_found_by_every_word_of_their_names(self, filled, reader):
        found = search(reader, "flights")

        assert found["Pipelines"] == ["flights"]
        assert found["States"] == ["flights_by_carrier", "flights_by_hour", "totals"]
        assert search(reader, "By Carrier")["States"] == ["flights_by_carrier"]

    def test_a_pipeline_is_found_by_its_description_and_a_state_by_its_columns_and_measures(self, filled, reader):
        assert search(reader, "three airports")["Pipelines"] == ["flights"]
        assert search(reader, "origin")["States"] == ["flights_by_carrier", "flights_by_hour"]
        assert search(reader, "max_delay")["States"] == ["flights_by_carrier"]

    def test_the_results_lead_to_their_pages(self, filled, reader):
        assert address(reader, "flights", "Pipelines") == "/pipelines/flights/"
        assert address(reader, "totals", "States") == "/states/totals/"

    def test_a_group_says_how_many_more_there_are(self, filled, reader):
        problems = len(PROBLEMS) + 1

        assert f"Pages · {problems - 6} more" in text(reader.get("/search?q=problem"))

    def test_a_short_word_is_found_where_a_word_begins(self, filled, reader):
        assert search(reader, "by")["States"] == ["flights_by_carrier", "flights_by_hour"]
        assert "States" not in search(reader, "ig")


class TestKeys:
    def test_a_whole_key_is_found_and_leads_to_its_page(self, filled, reader):
        assert search(reader, "EWR,C07") == {"Keys": ["EWR · C07"]}
        there = address(reader, "EWR,C07", "Keys")
        assert there == "/states/flights_by_carrier/key?" + urlencode({"key": '["EWR","C07"]'})
        assert "EWR · C07" in text(reader.get(there))

    def test_keys_are_found_by_how_they_begin(self, filled, reader):
        assert search(reader, "JFK,C2")["Keys"] == [f"JFK · C{n}" for n in range(20, 26)]
        assert search(reader, "JF")["Keys"][0].startswith("JFK · ")
        assert search(reader, '["JFK", "C29"]')["Keys"] == ["JFK · C29"]
        assert "Keys · there are more" in text(reader.get("/search?q=JFK"))

    def test_a_time_finds_the_keys_that_begin_with_it(self, filled, reader):
        assert search(reader, "2013-01-01T10:00:00Z")["Keys"] == [
            "2013-01-01T10:00:00+00:00 · EWR",
            "2013-01-01T10:00:00+00:00 · JFK",
        ]

    def test_after_the_name_of_a_state_keys_are_of_that_state(self, filled, reader):
        assert search(reader, "flights_by_carrier EWR,C07")["Keys"] == ["EWR · C07"]
        assert "Keys" not in search(reader, "flights_by_hour EWR,C07")

    def test_no_more_states_are_asked_than_the_limit_and_it_says_so(self, filled, reader, monkeypatch):
        monkeypatch.setattr(keys, "MOST_STATES", 1)
        monkeypatch.setattr("tidegauge.webapp.console.dashboard.search.search.MOST_STATES", 1)

        page = reader.get("/search?q=2013-01-01T10:00:00Z")

        assert "Keys were looked up in 1 of 2 states." in text(page)
        assert "EWR" not in text(page)
        assert search(reader, "flights_by_hour 2013-01-01T10:00:00Z")["Keys"]

    def test_a_state_in_redis_is_asked_for_whole_keys_alone(self, connection, reader):
        with redis_views(connection, key={"page": "text", "hour": "integer"}) as views:
            views.commit({("/home", 9): 3})

            assert search(reader, "/home,9") == {"Keys": ["/home · 9"]}
            assert search(reader, "/home,8") == search(reader, "/home") == {}

    def test_a_store_that_does_not_answer_hides_nothing_else(self, filled, connection, reader, monkeypatch):
        with redis_views(connection, key={"page": "text", "carrier": "text"}), unavailable_redis(monkeypatch):
            assert search(reader, "EWR,C07") == {"Keys": ["EWR · C07"]}


class TestBatches:
    def test_a_number_finds_the_batch_of_each_pipeline(self, filled, reader):
        assert search(reader, "2")["Batches"] == ["flights 2"]
        assert search(reader, "flights 1")["Batches"] == ["flights 1"]
        assert search(reader, "batch #1")["Batches"] == ["flights 1"]
        assert address(reader, "flights 2", "Batches") == "/pipelines/flights/batches/2"

    def test_batches_that_do_not_exist_and_other_pipelines_are_not_found(self, filled, reader):
        for asked in ("3", "weather 1", "9" * 30, "-1"):
            assert "Batches" not in search(reader, asked)


class TestActions:
    def test_an_operator_finds_what_it_may_do(self, filled, operator):
        assert search(operator, "pause") == {"Actions": ["Pause flights"]}
        assert search(operator, "compact totals")["Actions"] == ["Compact totals"]
        assert search(operator, "expire")["Actions"] == ["Expire flights_by_carrier"]
        assert address(operator, "compact totals", "Actions") == "/states/totals/compact"

    def test_a_paused_pipeline_can_be_resumed(self, filled, operator):
        pause_pipeline(name="flights", requested_by="ann")

        assert "Resume flights" in search(operator, "flights")["Actions"]
        assert search(operator, "pause") == {}

    def test_messages_are_silenced_and_only_problems_acknowledged(self, filled, operator):
        silence = "Silence flights for an hour"
        assert search(operator, "flights")["Actions"][-1] == silence
        assert search(operator, "acknowledge") == {}

        filled.fail("disk full", failures=2)

        assert search(operator, "acknowledge")["Actions"] == ["Acknowledge flights"]
        for title in (silence, "Acknowledge flights"):
            chosen = result(operator, title)
            assert operator.post(chosen.address, {"pipeline": chosen.pipeline}).status_code == 302
        assert Silence.objects.get().pipeline == Acknowledgement.objects.get().pipeline == "flights"
        assert "Acknowledge flights" not in search(operator, "acknowledge").get("Actions", [])

    def test_a_key_is_copied_as_the_api_takes_it(self, filled, reader):
        assert result(reader, "copy EWR,C07").copies == '["EWR", "C07"]'
        assert "Copy" not in search(reader, "EWR,C07")

    def test_dead_letters_can_be_replayed_where_there_are_any(self, filled, reader, admin_client):
        assert search(admin_client, "replay").get("Actions") is None
        filled.commit({("JFK", "C01"): 1}, [DeadLetter("a.jsonl", "{", "malformed", 3)])

        assert search(admin_client, "replay")["Actions"] == ["Replay dead letters of flights"]
        assert "Actions" not in search(reader, "replay")

    def test_others_find_no_action(self, filled, reader):
        assert "Actions" not in search(reader, "flights")


class TestPages:
    def test_pages_are_found_that_the_user_may_open(self, filled, reader, admin_client):
        assert search(reader, "maintenance")["Pages"] == ["Maintenance"]
        assert search(reader, "invalid_key")["Pages"] == ["invalid_key"]
        assert search(reader, "admin") == search(reader, "api keys") == {}
        assert "Admin" in search(admin_client, "admin")["Pages"]
        assert search(admin_client, "api keys")["Pages"] == ["API keys"]
        assert "New API key" in search(admin_client, "api key")["Actions"]

    def test_every_page_that_is_found_answers(self, filled, admin_client):
        for asked in ("a", "e", "flights", "pipeline"):
            for group in admin_client.get("/search", {"q": asked}).context["found"].groups:
                for result in group.results:
                    if not result.is_button:
                        assert admin_client.get(result.address).status_code == 200, result


class TestAnswers:
    def test_it_says_when_it_finds_nothing(self, filled, reader):
        assert "Nothing found for nowhere ." in text(reader.get("/search?q=nowhere"))
        assert "Type the name of a pipeline" in text(reader.get("/search?q=+"))

    def test_the_dialog_gets_the_results_alone(self, filled, reader):
        part = reader.get("/search?q=totals", headers={"HX-Request": "true"})

        assert part.content.decode().strip().startswith('<div id="search-results" data-text="totals"')
        assert "HX-Request" in part.headers["Vary"]

    @pytest.mark.parametrize(
        "asked", ["\0", "%", "[", "[1", "{}", "''", '"', "\ud83d\ude00", "a" * 5000, "1e999", "NaN"]
    )
    def test_no_text_is_an_error(self, filled, reader, asked):
        assert reader.get("/search?" + urlencode({"q": asked}, errors="replace")).status_code == 200

    def test_what_was_typed_is_no_markup(self, filled, reader):
        assert "<img" not in reader.get("/search", {"q": "<img src=x>"}).content.decode()

    def test_without_a_login_it_leads_to_one(self, db, client):
        assert client.get("/search?q=a").headers["Location"] == "/login?next=/search%3Fq%3Da"

    def test_it_asks_the_database_once_for_each_state_with_keys(self, filled, reader, django_assert_max_num_queries):
        reader.get("/search?q=EWR")

        # Session, user, restrictions, states, pipelines, views, permissions of user and groups; problems on top.
        with django_assert_max_num_queries(9):
            reader.get("/search?q=EWR")


class TestRestrictedPeople:
    @pytest.fixture
    def restrict(self, reader, django_user_model):
        user = django_user_model.objects.get(username="reader")
        return lambda **scope: Restriction.objects.create(user=user, **scope)

    def test_keys_outside_the_prefix_are_not_found(self, filled, reader, restrict):
        restrict(key_prefix=["EWR"])

        assert search(reader, "JFK") == {}
        assert search(reader, "JFK,C07") == {}
        assert search(reader, "EWR,C07")["Keys"] == ["EWR · C07"]
        assert search(reader, "flights")["States"] == ["flights_by_carrier"]

    def test_states_outside_are_not_found_nor_their_keys(self, filled, reader, restrict):
        restrict(states=["totals"])

        assert search(reader, "EWR,C07") == {}
        assert search(reader, "carrier") == {}
        assert search(reader, "flights_by_carrier EWR,C07") == {}
        assert search(reader, "flights")["States"] == ["totals"]

    def test_a_pipeline_that_feeds_no_visible_state_is_not_found(self, filled, reader, restrict):
        restrict(states=["nothing"])

        assert search(reader, "flights") == {}
        assert search(reader, "1") == {}


def test_the_key_in_an_address_is_json(filled, reader):
    there = address(reader, "EWR,C07", "Keys")

    assert json.loads(reader.get(there).context["key_json"]) == ["EWR", "C07"]
