"""The Health page and the list of states: which pipelines and states they show, in which order, and at what cost."""

import re
from html import unescape

import pytest
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.console.dashboard import overview
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge


def pipelines(client: Client, query: str = "") -> list[str]:
    page = client.get(f"/{query}").content.decode()
    return re.findall(r'<(?:tr|div class="troubled") id="pipeline-([^"]*)"', page)


def states(client: Client, query: str = "") -> list[str]:
    return re.findall(r'<tr id="state-([^"]*)"', client.get(f"/states/{query}").content.decode())


def link(client: Client, name: str, query: str = "", path: str = "/") -> str:
    """The address of the link with this id."""
    return unescape(re.search(rf'id="{name}" href="{path}([^"]*)"', client.get(f"{path}{query}").content.decode())[1])


@pytest.fixture
def three(filled) -> None:
    """`flights`, which runs, `broken`, which has failed, and `idle`, which was never started; `idle` has no states."""
    conn = filled.conn
    for name in ("broken", "idle"):
        Catalog(conn).register_pipeline(name, spout="opaque", description=f"Orders of {name}")
    BatchLedger(conn, "broken").acquire()
    spec = StateSpec("orders", key={"shop": "text"}, measures={"orders": Count()})
    Catalog(conn).register_states("broken", [spec], {"orders": "exactly once"})
    driver_status.report(conn, "broken", "failed", "no such column")


class TestOrder:
    def test_the_worst_pipelines_come_first(self, three, reader):
        assert pipelines(reader)[0] == "broken"
        assert sorted(pipelines(reader)) == ["broken", "flights", "idle"]

    def test_a_heading_sorts_and_sorts_the_other_way_when_asked_again(self, three, reader):
        by_txid = link(reader, "sort-txid")
        assert by_txid == "?sort=-txid"
        assert pipelines(reader, by_txid) == ["broken", "flights", "idle"]
        assert link(reader, "sort-txid", by_txid) == "?sort=txid"
        assert pipelines(reader, "?sort=txid") == ["broken", "idle", "flights"]
        assert link(reader, "sort-name") == "?sort=name"

    def test_what_is_not_known_comes_last_in_both_directions(self, three, reader):
        assert pipelines(reader, "?sort=commit") == pipelines(reader, "?sort=-commit") == ["broken", "flights", "idle"]

    def test_states_are_sorted_by_themselves(self, three, reader):
        assert states(reader) == ["flights_by_carrier", "flights_by_hour", "orders", "totals"]
        assert states(reader, "?states=-keys")[0] == "flights_by_carrier"
        assert states(reader, "?states=pipeline")[0] == "orders"
        assert link(reader, "states-size", "?q=o", "/states/") == "?q=o&states=-size"

    def test_what_is_no_order_is_ignored(self, three, reader):
        assert pipelines(reader, "?sort=password&states=-x&show=y") == pipelines(reader)


class TestFilter:
    def test_pipelines_are_found_by_name_description_and_states(self, three, reader):
        assert pipelines(reader, "?q=FLIGHTS") == ["flights"]
        assert pipelines(reader, "?q=orders+of") == ["broken", "idle"]
        assert pipelines(reader, "?q=totals") == ["flights"]

    def test_states_are_found_by_name_pipeline_and_columns(self, three, reader):
        assert states(reader, "?q=broken") == ["orders"]
        assert states(reader, "?q=origin") == ["flights_by_carrier", "flights_by_hour"]

    def test_those_that_need_attention_are_shown_alone(self, three, reader):
        assert link(reader, "show-problems") == "?show=problems"
        assert pipelines(reader, "?show=problems") == ["broken"]
        assert states(reader, "?show=problems") == ["orders"]
        assert "Need attention 1" in text(reader.get("/"))

    def test_those_that_are_acknowledged_need_no_attention(self, three, reader, admin_user):
        acknowledge([queries.pipeline("broken")], admin_user)

        assert pipelines(reader, "?show=problems") == states(reader, "?show=problems") == []
        assert "Need attention 0" in text(reader.get("/"))
        assert pipelines(reader)[0] == "broken"

    def test_a_filter_that_leaves_nothing_says_so_and_leads_back(self, three, reader):
        page = reader.get("/?q=nowhere&sort=name")

        assert "No pipeline has nowhere in its name, description or states." in text(page)
        assert 'href="/?sort=name"' in page.content.decode()

    def test_a_refresh_keeps_filter_and_order(self, three, reader):
        page = reader.get("/?q=flights&sort=-lag&states=-keys").content.decode()

        poll = unescape(re.search(r'data-query="([^"]*)"', page)[1])
        assert all(part in poll for part in ('"q":"flights"', '"sort":"-lag"', '"states":"-keys"'))


class TestPages:
    @pytest.fixture(autouse=True)
    def of_two(self, three, monkeypatch):
        monkeypatch.setattr(overview, "PAGE_ROWS", 2)
        self.one_row = lambda: monkeypatch.setattr(overview, "PAGE_ROWS", 1)

    def test_each_table_has_pages_of_its_own(self, reader):
        assert states(reader) == ["flights_by_carrier", "flights_by_hour"]
        assert states(reader, "?states_page=2") == ["orders", "totals"]
        assert "1 to 2 of 4 Previous Next" in text(reader.get("/states/"))
        self.one_row()
        assert pipelines(reader, "?states_page=2&sort=name") == ["broken", "flights"]
        assert pipelines(reader, "?pipelines_page=2&sort=name") == ["broken", "idle"]

    def test_the_next_page_keeps_filter_order_and_the_page_of_the_other_table(self, reader):
        page = reader.get("/states/?q=o&states=-name&pipelines_page=2&v=x").content.decode()

        assert 'rel="next" href="?q=o&amp;states=-name&amp;pipelines_page=2&amp;states_page=2#states"' in page

    def test_another_order_begins_at_the_first_page(self, reader):
        assert link(reader, "states-size", "?states_page=2&q=o", "/states/") == "?q=o&states=-size"

    def test_a_refresh_keeps_the_pages(self, reader):
        page = reader.get("/?states_page=2").content.decode()

        assert '"states_page":"2"' in unescape(re.search(r'data-query="([^"]*)"', page)[1])

    def test_a_page_that_does_not_exist_is_the_first_or_the_last(self, reader):
        assert states(reader, "?states_page=99") == ["orders", "totals"]
        for asked in ("0", "-1", "x", "2x", "9" * 5_000, "\u0662"):
            assert states(reader, f"?states_page={asked}") == ["flights_by_carrier", "flights_by_hour"]


def test_only_pipelines_that_run_well_are_counted_as_well(three, reader):
    assert "Well 1 pipeline, 1 not running" in text(reader.get("/"))


class TestFigures:
    def test_the_share_of_rejected_rows_links_to_the_dead_letters(self, filled, reader):
        filled.commit({("JFK", "C00"): 9}, [DeadLetter("/in/a.jsonl", "{", "not JSON", line) for line in (1, 2)])

        page = reader.get("/").content.decode()

        assert 'href="/pipelines/flights/dead-letters" title="2 dead letters in total">&lt;1 %</a>' in page

    def test_a_failure_is_explained_in_a_row_of_its_own(self, three, reader):
        assert "broken failed No such column" in text(reader.get("/"))


def test_a_restricted_person_finds_nothing_of_others(three, reader, django_user_model):
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    for query in ("", "?q=o", "?show=problems", "?states_page=2", "?sort=name"):
        assert set(pipelines(reader, query)) <= {"flights"}
        assert set(states(reader, query)) <= {"totals"}
