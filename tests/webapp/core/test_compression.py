"""Pages and static files are compressed where their size tells an attacker nothing."""

import gzip
import re

import pytest

GZIP = {"HTTP_ACCEPT_ENCODING": "gzip, br"}
PAGES = ["/", "/states/flights_by_carrier/", "/api/docs", "/admin/"]


def body(response) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


@pytest.mark.parametrize("address", PAGES)
def test_pages_are_compressed_for_browsers_that_accept_it(filled, admin_client, address):
    plain, packed = admin_client.get(address), admin_client.get(address, **GZIP)

    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.content) < len(plain.content) / 2
    assert b"<title>" in gzip.decompress(packed.content)


def test_a_page_that_another_site_asks_for_is_not(filled, admin_client):
    for site, encoding in (("cross-site", None), ("same-site", None), ("same-origin", "gzip"), ("none", "gzip")):
        page = admin_client.get("/?q=guess", HTTP_SEC_FETCH_SITE=site, **GZIP)

        assert page.headers.get("Content-Encoding") == encoding


def test_a_new_secret_is_not(filled, admin_client):
    page = admin_client.post("/keys/new", {"name": "feed", "scopes": "read", "key_prefix": "[]"}, **GZIP)

    assert re.search(rb"tmk_\w{8}_", page.content)
    assert "Content-Encoding" not in page.headers


def test_a_page_with_a_form_has_another_token_and_another_length_each_time(filled, admin_client):
    packed = [admin_client.get("/keys/new", **GZIP).content for _ in range(8)]
    tokens = {re.search(rb'csrfmiddlewaretoken" value="(\w+)"', gzip.decompress(page))[1] for page in packed}

    assert len(tokens) == len(packed)
    assert len(set(map(len, packed))) > 1


def test_static_files_are_compressed_though_they_are_not_collected(client):
    address = "/static/dashboard/tidegauge.css"
    plain, packed = client.get(address), client.get(address, **GZIP)

    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == body(plain)
    assert int(packed.headers["Content-Length"]) == len(packed.content) < 12_000
    assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept-Encoding"
    assert packed.headers["Content-Type"] == plain.headers["Content-Type"]
    assert client.get(address, HTTP_IF_NONE_MATCH=packed.headers["ETag"], **GZIP).status_code == 304


def test_a_range_of_a_file_is_of_the_file_itself(client):
    part = client.get("/static/dashboard/tidegauge.css", HTTP_RANGE="bytes=0-9", **GZIP)

    assert (part.status_code, len(body(part))) == (206, 10)
    assert "Content-Encoding" not in part.headers
