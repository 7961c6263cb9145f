"""Lineage: what each state is computed from and who reads it, on its page and on those of pipelines and states."""

import re
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission

from tests.webapp.api.saved_queries.published import published
from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.schema.inputs import record_inputs
from tidegauge.webapp.accounts.models import Restriction, UsageHour
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.notify.webhooks.models import Webhook

INPUTS = {
    "flights_by_carrier": {"sources": ["folder '/input'"], "states": [], "lookups": ["totals"]},
    "flights_by_hour": {"sources": [], "states": ["flights_by_carrier"], "lookups": []},
}


@pytest.fixture
def recorded(filled):
    record_inputs(filled.conn, INPUTS)


def row(client, state: str, query: str = "") -> str:
    """The text of a row of the page of lineage; empty if there is none."""
    page = client.get(f"/lineage{query}").content.decode()
    found = re.search(rf'<tr id="lineage-{state}">(.*?)</tr>', page, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", found[1]).split()) if found else ""


def states(client, query: str = "") -> list[str]:
    return re.findall(r'<tr id="lineage-([^"]*)"', client.get(f"/lineage{query}").content.decode())


def allow(django_user_model, codename: str) -> None:
    user = django_user_model.objects.get(username="reader")
    user.user_permissions.add(Permission.objects.get(codename=codename))


class TestInputs:
    def test_a_state_has_its_sources_states_and_lookups(self, recorded, reader):
        of_carrier = row(reader, "flights_by_carrier")

        assert of_carrier.startswith("source folder &#x27;/input&#x27; looks up in totals → flights")
        assert row(reader, "flights_by_hour").startswith("state flights_by_carrier →")

    def test_a_state_that_is_read_by_others_names_them(self, recorded, reader):
        assert row(reader, "totals").endswith("looked up for flights_by_carrier")
        assert row(reader, "flights_by_carrier").endswith("state flights_by_hour")

    def test_what_was_stored_before_is_not_recorded(self, recorded, reader):
        assert "not recorded" in row(reader, "totals")

    def test_the_pages_of_pipeline_and_state_show_theirs(self, recorded, reader):
        assert "folder '/input'" in text(reader.get("/pipelines/flights/states"))
        page = text(reader.get("/states/flights_by_hour/schema"))
        assert "Computed from state flights_by_carrier" in page


class TestConsumers:
    def test_saved_queries_are_shown_to_everybody(self, recorded, reader):
        published("per_carrier", {"reads": [{"state": "flights_by_carrier", "keys": [["JFK", "C00"]]}]})

        assert row(reader, "flights_by_carrier").endswith("saved query per_carrier")

    def test_api_keys_that_have_read_a_state_are_shown_to_those_who_may_view_keys(
        self, recorded, reader, django_user_model
    ):
        key, _ = create_api_key("billing", ["read"])
        UsageHour.objects.create(
            hour=datetime.now(UTC), prefix=key.prefix, state="totals", requests=1_200, keys=1, bytes=1, refusals=0
        )

        assert "billing" not in row(reader, "totals")
        allow(django_user_model, "view_apikey")
        assert row(reader, "totals").endswith("API key billing 1,200 requests in 7 days")

    def test_webhooks_are_shown_to_those_who_may_view_them(self, recorded, reader, django_user_model):
        Webhook.objects.create(name="warehouse", url="https://hooks.example.org", kinds=["commit"], states=["totals"])

        assert "warehouse" not in row(reader, "totals")
        allow(django_user_model, "view_webhook")
        assert row(reader, "totals").endswith("webhook warehouse")


class TestFilter:
    def test_it_takes_part_of_any_name(self, recorded, reader):
        assert states(reader, "?q=/INPUT") == ["flights_by_carrier"]
        assert states(reader, "?q=totals") == ["flights_by_carrier", "totals"]
        assert "Nothing matches the filter." in text(reader.get("/lineage?q=nowhere"))

    def test_around_a_pipeline_are_its_states_and_their_neighbours(self, recorded, filled, reader):
        filled.conn.execute("INSERT INTO tidegauge.pipeline (name) VALUES ('other')")
        filled.conn.execute("UPDATE tidegauge.state SET pipeline = 'other' WHERE name = 'flights_by_hour'")

        assert states(reader, "?pipeline=other") == ["flights_by_carrier", "flights_by_hour"]

    def test_its_rows_have_pages_that_keep_the_filter(self, recorded, reader, monkeypatch):
        monkeypatch.setattr("tidegauge.webapp.console.dashboard.views.lineage.PAGE_ROWS", 1)

        pages = [states(reader, f"?page={page}") for page in (1, 2, 3)]

        assert pages == [["flights_by_carrier"], ["flights_by_hour"], ["totals"]]
        assert 'rel="next" href="?q=flights&amp;page=2#states"' in reader.get("/lineage?q=flights").content.decode()


def test_a_restricted_person_sees_no_sources_consumers_and_other_states(recorded, reader, django_user_model):
    published("per_carrier", {"reads": [{"state": "flights_by_carrier", "keys": [["JFK", "C00"]]}]})
    user = django_user_model.objects.get(username="reader")
    Restriction.objects.create(user=user, states=["flights_by_carrier"])

    page = text(reader.get("/lineage"))

    assert states(reader) == ["flights_by_carrier"]
    for hidden in ("/input", "totals", "flights_by_hour", "per_carrier"):
        assert hidden not in page


def test_its_statements_do_not_grow_with_states(recorded, reader, django_assert_max_num_queries):
    with django_assert_max_num_queries(8):
        reader.get("/lineage")
