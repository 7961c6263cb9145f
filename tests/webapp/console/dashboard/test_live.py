import json
import re
from html import unescape

import pytest
from django.test import Client

from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.console.dashboard.views import live

LIVE = [
    "/",
    "/pipelines/flights/",
    "/pipelines/flights/batches",
    "/pipelines/flights/batches/2",
    "/pipelines/flights/dead-letters",
    "/states/flights_by_carrier/",
    "/states/totals/",
    '/states/flights_by_carrier/key?key=["EWR","C00"]',
]


def next_poll(response) -> dict[str, str]:
    """The query of the page's next poll."""
    return json.loads(unescape(re.search(r'data-query="([^"]*)"', response.content.decode())[1]))


def ask(client: Client, address: str, query: dict[str, str]):
    return client.get(address, query, headers={"HX-Request": "true"})


@pytest.mark.parametrize("address", LIVE)
def test_nothing_is_sent_while_nothing_changed(filled, reader, address):
    page = reader.get(address)

    answer = ask(reader, address, next_poll(page))

    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("address", LIVE)
def test_that_answer_costs_two_statements_besides_those_for_the_user(
    filled, reader, address, django_assert_num_queries
):
    query = next_poll(reader.get(address))

    # The overview has read all pipelines already when it gets to the strip on top.
    with django_assert_num_queries(4 if address == "/" else 5):
        ask(reader, address, query)


def test_a_page_of_many_rows_polls_less_often(filled, reader, monkeypatch):
    assert 'data-seconds="1"' in reader.get("/").content.decode()

    monkeypatch.setattr(live, "ROWS_PER_SECOND", 1)

    assert 'data-seconds="4"' in reader.get("/states/").content.decode()


@pytest.mark.parametrize("address", LIVE)
def test_a_commit_brings_new_content_and_the_next_version(filled, reader, address):
    page = reader.get(address)
    filled.commit({("EWR", "C00"): 7_000})

    answer = ask(reader, address, next_poll(page))

    assert answer.status_code == 200
    assert b'<div id="live"' in answer.content
    assert b"<html" not in answer.content
    assert next_poll(answer)["v"] != next_poll(page)["v"]


def test_a_new_pipeline_replaces_the_instructions_for_the_first_run(db, reader, request):
    page = reader.get("/")
    request.getfixturevalue("filled")

    answer = ask(reader, "/", next_poll(page))

    assert b"No pipelines yet" not in answer.content
    assert b'<tr id="pipeline-flights"' in answer.content


@pytest.mark.parametrize("change", [lambda flights: flights.die(), lambda flights: flights.report("restarting", "why")])
def test_a_failing_driver_brings_new_content(filled, reader, change):
    page = reader.get("/")
    change(filled)

    assert ask(reader, "/", next_poll(page)).status_code == 200


def test_a_pause_request_brings_new_content(filled, reader):
    page = reader.get("/pipelines/flights/")
    driver_status.set_desired_state(filled.conn, "flights", paused=True, by="ann")

    answer = ask(reader, "/pipelines/flights/", next_poll(page))

    assert b"Pausing" in answer.content


def test_a_process_that_starts_or_ends_brings_new_content(filled, reader):
    page = reader.get("/")
    worker = filled.join("worker")
    joined = ask(reader, "/", next_poll(page))
    unchanged = ask(reader, "/", next_poll(joined))
    worker.leave()

    left = ask(reader, "/", next_poll(joined))

    assert [joined.status_code, unchanged.status_code, left.status_code] == [200, 204, 200]
    assert b">worker<" in joined.content
    assert b">worker<" not in left.content


def test_search_sort_and_page_survive_a_refresh(filled, reader):
    place = '[90, ["EWR", "C10"]]'
    asked = {"q": "C", "order": "-flights", "after": place, "n": "25", "by": "max_delay", "prefix": "EWR"}
    page = reader.get("/states/flights_by_carrier/", asked)
    query = next_poll(page)
    filled.commit({("EWR", "C00"): 1})

    answer = ask(reader, "/states/flights_by_carrier/", query)

    assert {name: query[name] for name in asked} == asked
    assert next_poll(answer) == {**query, "v": next_poll(answer)["v"]}


def test_a_search_is_answered_although_nothing_changed(filled, reader):
    answer = ask(reader, "/states/flights_by_carrier/", {"q": "C07"})

    assert answer.status_code == 200
    assert b"1\xe2\x80\x932" in answer.content


def test_a_page_restored_by_the_browser_is_complete(filled, reader):
    headers = {"HX-Request": "true", "HX-History-Restore-Request": "true"}

    assert b"<html" in reader.get("/states/totals/", headers=headers).content


def test_caches_keep_page_and_part_apart(filled, reader):
    page = reader.get("/")

    assert "HX-Request" in page.headers["Vary"]
    assert "no-store" in page.headers["Cache-Control"]
