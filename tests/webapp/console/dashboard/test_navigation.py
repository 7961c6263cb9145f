"""The rail, the bar of a phone and the tabs: where a reader may go, and what needs attention there."""

import re

import pytest

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.models import Restriction


def places(response) -> list[str]:
    rail = re.search('<header class="rail">.*?</header>', response.content.decode(), re.DOTALL)[0]
    return re.findall(r'<li><a href="[^"]*" title="([^"]*)"', rail)


def current(response) -> set[str]:
    return set(re.findall(r'title="([^"]*)" aria-current="\w+"', response.content.decode()))


def test_a_reader_sees_the_places_that_need_no_permission_and_an_admin_all(filled, reader, admin_client):
    common = ["Health", "Pipelines", "States", "Lineage", "Explore", "Boards", "Saved views", "Alerts", "Maintenance"]

    assert places(reader.get("/")) == [*common, "API docs"]
    assert places(admin_client.get("/")) == [*common, "API keys", "API docs", "Admin"]


def test_sql_is_a_place_where_it_is_switched_on_for_those_who_may_run_it(filled, reader, admin_client, settings):
    settings.TIDEGAUGE_SQL = "postgresql://tidegauge_sql@127.0.0.1/tidegauge"

    assert "SQL" not in places(reader.get("/"))
    assert places(admin_client.get("/")).index("SQL") == 7


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/pipelines/flights/batches", "Pipelines"),
        ("/states/flights_by_carrier/schema", "States"),
        ("/states/flights_by_carrier/explore", "Explore"),
        ("/maintenance", "Maintenance"),
    ],
)
def test_a_page_marks_its_place(filled, reader, address, place):
    assert current(reader.get(address)) == {place}


def test_the_number_of_pipelines_with_a_problem_and_the_icon_follow_the_strip(filled, reader):
    well = reader.get("/states/").content.decode()
    filled.die()

    lost = reader.get("/states/").content.decode()

    assert well.count('<b class="needs" data-needs hidden>') == lost.count('<b class="needs" data-needs>') == 2
    assert 'data-troubled="1"' in lost
    assert 'id="favicon" href="/static/dashboard/favicon.svg"' in well
    assert 'id="favicon" href="/static/dashboard/favicon-trouble.svg"' in lost


def test_a_restricted_reader_has_no_tabs_for_what_he_or_she_may_not_see(filled, reader, django_user_model):
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    assert "Health Batches States & lineage API" in text(reader.get("/pipelines/flights/"))
    assert "Data Schema & lineage API" in text(reader.get("/states/totals/"))


@pytest.mark.parametrize("tab", ["", "batches", "states", "api"])
def test_every_tab_of_a_pipeline_is_a_page_with_its_name_as_heading(filled, reader, tab):
    page = reader.get(f"/pipelines/flights/{tab}").content.decode()

    assert re.search(r'<h1 class="mono">flights', page)
    assert re.search(rf'<a href="/pipelines/flights/{tab}" aria-current="page">', page)
