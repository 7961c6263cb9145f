"""The API panel follows what a page shows."""

import html
import re
from urllib.parse import urlencode

import pytest

from tests.webapp.console.dashboard.page_text import text

STATE = "/states/flights_by_carrier/"
API = "http://testserver/api/v1/states/flights_by_carrier"


def run(page):
    """Return the request that the button sends: its address, and its body or None."""
    text = page.content.decode()
    url = re.search(r'data-run="([^"]*)"', text)
    body = re.search(r'data-body="([^"]*)"', text)
    return html.unescape(url[1]), body and html.unescape(body[1])


def test_a_state_shows_a_lookup_of_its_first_key(filled, admin_client):
    assert run(admin_client.get(f"{STATE}api")) == (f"{API}/lookup", '{"keys": [["EWR", "C00"]]}')


def test_a_filtered_and_sorted_table_is_asked_for_as_it_is_shown(filled, admin_client):
    page = admin_client.get(f"{STATE}api", {"prefix": "JFK", "where": "flights>70", "order": "-flights", "as_of": "1"})

    asked = "where=flights%3E70&order_by=-flights&at_txid=1&limit=25"
    assert run(page) == (f"{API}/entries?prefix=%5B%22JFK%22%5D&{asked}", None)
    assert admin_client.get(run(page)[0].removeprefix("http://testserver")).status_code == 200


def test_a_search_is_asked_for(filled, admin_client):
    assert run(admin_client.get(f"{STATE}api", {"q": "jf"})) == (f"{API}/entries?limit=25&search=jf", None)


@pytest.mark.parametrize("asked", [{"where": "nothing>1"}, {"prefix": "a,b,c"}])
def test_a_filter_that_is_refused_leaves_an_example(filled, admin_client, asked):
    page = admin_client.get(f"{STATE}api", asked)

    assert run(page) == (f"{API}/lookup", '{"keys": [["EWR", "C00"]]}')
    assert "Looks up one key of this state." in text(page)


def test_a_state_without_entries_has_names_of_columns_in_the_example(flights, admin_client):
    assert run(admin_client.get(f"{STATE}api")) == (f"{API}/lookup", '{"keys": [["<origin>", "<carrier>"]]}')


def test_a_lookup_of_pasted_keys_is_asked_for_without_invalid_lines(filled, admin_client):
    page = admin_client.get(f"{STATE}lookup", {"keys": "EWR,C00\nJFK\nJFK,ZZ", "as_of": "1"})

    assert run(page) == (f"{API}/lookup", '{"keys": [["EWR", "C00"], ["JFK", "ZZ"]], "at_txid": 1}')


def test_very_many_keys_have_no_panel(filled, admin_client):
    page = admin_client.get(f"{STATE}lookup", {"keys": "\n".join(f"EWR,C{n}" for n in range(101))})

    assert b"data-run" not in page.content


PIPELINES = "http://testserver/api/v1/pipelines/flights"


def test_a_pipeline_shows_the_series_of_its_charts_in_the_shown_range(filled, admin_client):
    shown = {"from": "2013-01-01T10:00:00+00:00", "to": "2013-01-01T11:00:00+00:00"}

    assert run(admin_client.get("/pipelines/flights/api", {"range": "24h"})) == (f"{PIPELINES}/series?last=86400", None)
    assert run(admin_client.get("/pipelines/flights/api", shown)) == (f"{PIPELINES}/series?{urlencode(shown)}", None)


def test_a_key_shows_the_series_of_its_chart_too(filled, admin_client):
    page = admin_client.get(f"{STATE}key", {"key": '["EWR","C00"]', "by": "max_delay", "range": "15m"})

    [_, chart] = re.findall(r'data-run="([^"]*)"', page.content.decode())
    asked = urlencode({"key": '["EWR", "C00"]', "measures": "max_delay", "last": 900})
    assert html.unescape(chart) == f"{API}/series?{asked}"


def test_batches_show_the_list_of_the_newest_ones(filled, admin_client):
    assert run(admin_client.get("/pipelines/flights/batches")) == (f"{PIPELINES}/batches?limit=50", None)
    assert b"data-run" not in admin_client.get("/pipelines/flights/batches?before=2").content
