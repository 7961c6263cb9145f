import json
import re
from html import unescape

import pytest
from django.test import Client

from state_backends import driver_status

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


def next_question(response) -> dict[str, str]:
    """What the page will ask a second from now."""
    return json.loads(unescape(re.search(r'hx-vals="([^"]*)"', response.content.decode())[1]))


def ask(client: Client, address: str, question: dict[str, str]):
    return client.get(address, question, headers={"HX-Request": "true"})


@pytest.mark.parametrize("address", LIVE)
def test_nothing_is_sent_while_nothing_changed(filled, reader, address):
    page = reader.get(address)

    answer = ask(reader, address, next_question(page))

    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("address", LIVE)
def test_that_answer_costs_one_statement_beside_the_session(filled, reader, address, django_assert_num_queries):
    question = next_question(reader.get(address))

    with django_assert_num_queries(3):
        ask(reader, address, question)


@pytest.mark.parametrize("address", LIVE)
def test_a_commit_brings_new_content_and_the_next_version(filled, reader, address):
    page = reader.get(address)
    filled.commit({("EWR", "C00"): 7_000})

    answer = ask(reader, address, next_question(page))

    assert answer.status_code == 200
    assert answer.content.startswith(b'<div id="live"')
    assert b"<html" not in answer.content
    assert next_question(answer)["v"] != next_question(page)["v"]


def test_a_new_pipeline_replaces_the_first_runs_advice(db, reader, request):
    page = reader.get("/")
    request.getfixturevalue("filled")

    answer = ask(reader, "/", next_question(page))

    assert b"No pipeline yet" not in answer.content
    assert b"flights_by_carrier" in answer.content


@pytest.mark.parametrize("change", [lambda flights: flights.die(), lambda flights: flights.report("restarting", "why")])
def test_a_driver_in_trouble_brings_new_content(filled, reader, change):
    page = reader.get("/")
    change(filled)

    assert ask(reader, "/", next_question(page)).status_code == 200


def test_a_wish_brings_new_content(filled, reader):
    page = reader.get("/pipelines/flights/")
    driver_status.set_desired_state(filled.conn, "flights", paused=True, by="ann")

    answer = ask(reader, "/pipelines/flights/", next_question(page))

    assert b"Pausing" in answer.content


def test_a_process_that_comes_or_goes_brings_new_content(filled, reader):
    page = reader.get("/")
    worker = filled.join("worker")
    joined = ask(reader, "/", next_question(page))
    unchanged = ask(reader, "/", next_question(joined))
    worker.leave()

    left = ask(reader, "/", next_question(joined))

    assert [joined.status_code, unchanged.status_code, left.status_code] == [200, 204, 200]
    assert b">worker<" in joined.content
    assert b">worker<" not in left.content


def test_search_sort_and_page_stay_with_the_reader(filled, reader):
    place = '[90, ["EWR", "C10"]]'
    asked = {"q": "C", "order": "-flights", "after": place, "n": "25", "by": "max_delay", "prefix": "EWR"}
    page = reader.get("/states/flights_by_carrier/", asked)
    question = next_question(page)
    filled.commit({("EWR", "C00"): 1})

    answer = ask(reader, "/states/flights_by_carrier/", question)

    assert {name: question[name] for name in asked} == asked
    assert next_question(answer) == {**question, "v": next_question(answer)["v"]}


def test_a_reader_who_searches_is_answered_though_nothing_changed(filled, reader):
    answer = ask(reader, "/states/flights_by_carrier/", {"q": "C07"})

    assert answer.status_code == 200
    assert b"1\xe2\x80\x932" in answer.content


def test_a_page_brought_back_by_the_browser_comes_whole(filled, reader):
    headers = {"HX-Request": "true", "HX-History-Restore-Request": "true"}

    assert b"<html" in reader.get("/states/totals/", headers=headers).content


def test_caches_keep_page_and_part_apart(filled, reader):
    page = reader.get("/")

    assert "HX-Request" in page.headers["Vary"]
    assert "no-store" in page.headers["Cache-Control"]
