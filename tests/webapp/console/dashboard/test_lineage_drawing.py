"""The graph of lineage as SVG: its boxes are links, its lines lead from what is read to what reads it."""

import re
from html import unescape

import pytest
from django.test import Client

from tests.webapp.api.saved_queries.published import published
from tests.webapp.console.dashboard.page_text import text
from tests.webapp.console.dashboard.test_lineage import recorded
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.state_backends.schema.inputs import record_inputs
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.console.dashboard import lineage_drawing
from tidegauge.webapp.console.system_snapshot import clear_cache

__all__ = ["recorded"]

BOX = re.compile(r'<a href="([^"]*)" class="([^"]*)" data-box="(\d+)"[^>]*><title>([^<]*)')
LINE = re.compile(r'<path class="line ([^"]*)" data-start="(\d+)" data-end="(\d+)"')


def page(client: Client, query: str = "") -> str:
    return client.get(f"/lineage{query}").content.decode()


def boxes(client: Client, query: str = "") -> dict[str, str]:
    """The address of each box, by its accessible name."""
    return {unescape(label): unescape(address) for address, _, _, label in BOX.findall(page(client, query))}


def lines(client: Client, query: str = "") -> set[tuple[str, str, str]]:
    """Kind, start and end of each line."""
    html = page(client, query)
    names = {number: ",".join(unescape(label).split(",")[:2]) for _, _, number, label in BOX.findall(html)}
    return {(kind, names[start], names[end]) for kind, start, end in LINE.findall(html)}


def many(conn, pipelines: int, states: int) -> None:
    """Pipelines that read a topic each, with states that nobody reads."""
    for pipeline in (f"region_{n:02}" for n in range(pipelines)):
        Catalog(conn).register_pipeline(pipeline, spout="opaque", description="")
        specs = [StateSpec(f"{pipeline}_{n}", measures={"orders": Count()}) for n in range(states)]
        Catalog(conn).register_states(pipeline, specs, {spec.name: "exactly once" for spec in specs})
        inputs = {"sources": [f"topic '{pipeline}'"], "states": [], "lookups": []}
        record_inputs(conn, {spec.name: inputs for spec in specs})
    clear_cache()


class TestGraph:
    def test_each_box_links_to_its_page_and_says_kind_name_and_verdict(self, recorded, filled, reader):
        filled.report("failed")
        clear_cache()
        published("per_carrier", {"reads": [{"state": "flights_by_carrier", "keys": [["JFK", "C00"]]}]})

        assert boxes(reader) == {
            "folder '/input', source": "/lineage?q=folder+%27%2Finput%27",
            "flights, pipeline, failed": "/pipelines/flights/",
            "flights_by_carrier, state, served": "/states/flights_by_carrier/",
            "flights_by_hour, state, served": "/states/flights_by_hour/",
            "totals, state, served": "/states/totals/",
            "per_carrier, saved query": "/api/v1/saved-queries/per_carrier",
        }

    def test_a_state_that_is_not_served_says_so(self, recorded, filled, reader):
        filled.conn.execute("UPDATE tidegauge.state SET finding = 'store was restored' WHERE name = 'totals'")

        assert "totals, state, not served" in boxes(reader)

    def test_lines_lead_from_sources_through_pipelines_and_states_to_consumers(self, recorded, reader):
        published("per_carrier", {"reads": [{"state": "flights_by_carrier", "keys": [["JFK", "C00"]]}]})

        assert lines(reader) == {
            ("", "folder '/input', source", "flights, pipeline"),
            ("", "flights, pipeline", "flights_by_carrier, state"),
            ("", "flights, pipeline", "totals, state"),
            ("lookup", "totals, state", "flights_by_carrier, state"),
            ("", "flights_by_carrier, state", "flights_by_hour, state"),
            ("", "flights_by_carrier, state", "per_carrier, saved query"),
        }
        assert "Dashed: values are only looked up." in text(reader.get("/lineage"))

    def test_a_state_of_another_pipeline_leads_to_the_pipeline_that_reads_it(self, recorded, filled, reader):
        filled.conn.execute("INSERT INTO tidegauge.pipeline (name) VALUES ('other')")
        filled.conn.execute("UPDATE tidegauge.state SET pipeline = 'other' WHERE name = 'flights_by_hour'")
        clear_cache()

        found = lines(reader)

        assert ("", "flights_by_carrier, state", "other, pipeline") in found
        assert ("", "other, pipeline", "flights_by_hour, state") in found
        assert ("", "flights_by_carrier, state", "flights_by_hour, state") not in found

    def test_a_line_that_leads_back_says_so(self, recorded, filled, reader):
        record_inputs(filled.conn, {"totals": {"sources": [], "states": [], "lookups": ["flights_by_hour"]}})

        assert [line for line in lines(reader) if "feedback" in line[0]] == [
            ("lookup feedback", "flights_by_hour, state", "totals, state")
        ]
        assert "Lines along the top lead back" in text(reader.get("/lineage"))

    def test_long_names_are_cut_in_the_middle_and_whole_for_screen_readers(self, filled, reader):
        topic = "kafka topic 'departures-of-all-airports'"
        record_inputs(filled.conn, {"totals": {"sources": [topic], "states": [], "lookups": []}})

        assert f"{topic}, source" in boxes(reader)
        assert "kafka topic…l-airports&#x27;</text>" in page(reader)


class TestFilter:
    def test_it_narrows_the_graph_as_the_table(self, recorded, filled, reader):
        many(filled.conn, pipelines=2, states=1)

        assert set(boxes(reader, "?q=region_01")) == {
            "topic 'region_01', source",
            "region_01, pipeline, never started",
            "region_01_0, state, served",
        }
        assert set(boxes(reader, "?pipeline=region_00")) == {
            "topic 'region_00', source",
            "region_00, pipeline, never started",
            "region_00_0, state, served",
        }
        assert boxes(reader, "?q=nowhere") == {}

    def test_what_it_names_is_marked(self, recorded, reader):
        assert re.findall(r'aria-current="true"[^>]*><title>([^<]*)', page(reader, "?q=totals")) == [
            "totals, state, served"
        ]

    def test_the_page_of_a_state_links_to_its_neighbourhood(self, recorded, reader):
        assert 'href="/lineage?q=totals">With its neighbours' in reader.get("/states/totals/schema").content.decode()


class TestMany:
    def test_states_with_the_same_neighbours_are_one_box_that_links_to_them(self, filled, reader):
        many(filled.conn, pipelines=8, states=6)

        found = boxes(reader, "?q=region")

        names = ", ".join(f"region_07_{n}" for n in range(6))
        assert found[f"6 states, served: {names}"] == "/lineage?pipeline=region_07"
        assert len(found) == 3 * 8
        assert len(boxes(reader, "?pipeline=region_07")) == 1 + 1 + 6

    def test_too_many_are_not_drawn_and_the_page_says_what_to_do(self, recorded, filled, reader, monkeypatch):
        monkeypatch.setattr(lineage_drawing, "MOST_NODES", 4)

        assert boxes(reader) == {}
        assert "5 sources, pipelines, states and consumers are too many to draw" in text(reader.get("/lineage"))
        assert '<tr id="lineage-totals">' in page(reader)

    def test_with_50_pipelines_and_300_states_all_pipelines_are_drawn(
        self, filled, reader, django_assert_max_num_queries
    ):
        many(filled.conn, pipelines=50, states=6)

        # One more than without cleared caches: the limits of pipelines.
        with django_assert_max_num_queries(9):
            html = page(reader)

        assert len(re.findall("<title>region_[^<]*, pipeline", html)) == 50
        assert len(html) < 160_000  # of which 13 kB are the style sheets of a first visit


@pytest.mark.parametrize("query", ["", "?q=flights", "?pipeline=flights"])
def test_a_restricted_person_sees_boxes_of_visible_states_only(recorded, reader, django_user_model, query):
    published("per_carrier", {"reads": [{"state": "flights_by_carrier", "keys": [["JFK", "C00"]]}]})
    user = django_user_model.objects.get(username="reader")
    Restriction.objects.create(user=user, states=["flights_by_carrier"])

    assert {label.split(",")[0] for label in boxes(reader, query)} == {"flights", "flights_by_carrier"}
    for hidden in ("/input", "totals", "flights_by_hour", "per_carrier"):
        assert hidden not in page(reader, query)


def test_lineage_is_in_the_main_navigation(filled, reader):
    assert '<a href="/lineage" title="Lineage">' in reader.get("/").content.decode()
    assert '<a href="/lineage" title="Lineage" aria-current="page">' in page(reader)
