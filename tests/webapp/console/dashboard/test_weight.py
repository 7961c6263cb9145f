"""Size, safety and accessibility of the pages' HTML."""

import gzip
import json
import re
from html import unescape
from itertools import pairwise
from urllib.parse import quote

import pytest
from django.test import Client

from tests.webapp.flights import Flights

KEY = quote(json.dumps(["EWR", "C00"]))
PAGES = [
    "/",
    "/pipelines/flights/",
    "/pipelines/flights/batches",
    "/pipelines/flights/batches/2",
    "/pipelines/flights/dead-letters",
    "/states/flights_by_carrier/",
    "/states/flights_by_hour/",
    "/states/totals/",
    f"/states/flights_by_carrier/key?key={KEY}",
    "/lineage",
    "/maintenance",
    "/keys",
    "/search?q=flights",
]
MOST_BYTES = 500_000


def linked(html: str) -> list[str]:
    """The files that a browser loads with a page, those after its first paint last."""
    found = re.findall(r'(?:src|rel="(?:icon|stylesheet)" href)="([^"]*)"', html.replace("<noscript><link", ""))
    return [unescape(file) for file in [*found, *re.findall(r'name="late-\w+" content="([^"]*)"', html)]]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_with_all_its_files_is_small_without_compression(filled, admin_client, address):
    page = admin_client.get(address)
    files = {file: b"".join(admin_client.get(file).streaming_content) for file in linked(page.content.decode())}

    assert len(files) >= 4
    assert len(page.content) + sum(map(len, files.values())) < MOST_BYTES / 2


@pytest.mark.parametrize("address", [*PAGES, "/states/flights_by_hour/explore", "/login"])
def test_a_first_visit_takes_50_kb_over_the_wire_and_34_for_charts(filled, admin_client, address):
    taken = {"HTTP_ACCEPT_ENCODING": "gzip"}
    page = admin_client.get(address, **taken)
    html = gzip.decompress(page.content) if page.headers.get("Content-Encoding") else page.content

    files = [len(admin_client.get(file, **taken).content) for file in linked(html.decode())]

    most = 84_000 if b"uplot" in html else 50_000
    assert len(page.content) + sum(files) < most


def test_a_page_of_many_batches_stays_small(filled: Flights, admin_client):
    for n in range(60):
        filled.commit({("EWR", "C00"): n})

    assert len(admin_client.get("/pipelines/flights/batches").content) < MOST_BYTES / 4


@pytest.mark.parametrize("address", [*PAGES, "/login", "/states/nothing/"])
def test_pages_have_no_inline_script_or_style_and_load_nothing_from_other_hosts(filled, admin_client, address):
    html = (Client() if address == "/login" else admin_client).get(address).content.decode()

    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert all(' src="/static/' in script for script in re.findall("<script[^>]*>", html))
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)


@pytest.mark.parametrize("address", PAGES)
def test_ids_are_unique_and_every_label_has_its_field(filled, admin_client, address):
    html = admin_client.get(address).content.decode()
    ids = re.findall(r'\sid="([^"]*)"', html)
    named = re.findall(r'aria-(?:labelledby|describedby)="([^"]*)"', html) + re.findall(
        r'<label[^>]* for="([^"]*)"', html
    )

    assert sorted(ids) == sorted(set(ids))
    assert set(named) <= set(ids)


@pytest.mark.parametrize("address", PAGES)
def test_headings_start_with_h1_and_skip_no_level(filled, admin_client, address):
    levels = [int(level) for level in re.findall(r"<h(\d)", admin_client.get(address).content.decode())]

    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("address", PAGES)
def test_without_scripts_times_are_in_utc_and_marked_so(filled, admin_client, address):
    html = admin_client.get(address).content.decode()

    times = re.findall(r'<time datetime="([^"]*)" title="([^"]*)" data-form="(\w+)"[^>]*>([^<]*)<', html)
    assert all(moment.endswith("+00:00") and title.endswith(" UTC") for moment, title, _, _ in times)
    assert all(text.endswith(" UTC") for _, _, form, text in times if form == "at")
    assert 'Times are in <span id="zone">UTC</span>' in html
