"""Lists that are newest first come in pages, each with the cursor of the next one."""

import pytest

from tidegauge.webapp.catalog.models import MaintenanceRun

BATCHES = "/pipelines/flights/batches"


@pytest.fixture
def filled_lists(filled):
    for number in range(5):
        filled.commit({("JFK", "C00"): number})
        MaintenanceRun.objects.create(kind="expiry", state_id="totals", status="done", requested_by=f"{number}")
        MaintenanceRun.objects.create(kind="compaction", state_id="totals", status="done", requested_by=f"{number}")
    filled.open({("JFK", "C00"): 1})
    return filled


def pages(api, path):
    found, cursor = [], ""
    while True:
        response = api.ask("GET", f"{path}&cursor={cursor}" if cursor else path)
        document = response.json()
        cursor = document.pop("next")
        [items] = document.values()
        found.append(items)
        assert ("Link" in response.headers) == (cursor is not None)
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("path", "sizes"),
    [
        (f"{BATCHES}?limit=3", [3, 3, 2]),
        (f"{BATCHES}?limit=4", [4, 4]),
        ("/maintenance?limit=4", [4, 4, 2]),
        ("/maintenance?kind=expiry&limit=2", [2, 2, 1]),
    ],
)
def test_the_pages_are_the_list(filled_lists, api, path, sizes):
    [whole] = pages(api, path.partition("limit=")[0] + "limit=500")
    found = pages(api, path)

    assert [len(page) for page in found] == sizes
    assert [item for page in found for item in page] == whole


def test_a_cursor_keeps_the_filters_of_the_first_page(filled_lists, api):
    first = api.ask("GET", "/maintenance?kind=expiry&limit=2").json()

    following = api.ask("GET", f"/maintenance?cursor={first['next']}").json()
    other = api.ask("GET", f"/maintenance?kind=compaction&cursor={first['next']}")

    assert {run["kind"] for run in following["runs"]} == {"expiry"}
    assert (other.status_code, other.json()["code"]) == (400, "invalid_cursor")
    assert "another request" in other.json()["detail"]


@pytest.mark.parametrize("path", ["/maintenance", "/alerts", "/states/totals/history"])
def test_a_cursor_of_another_list_is_refused(filled_lists, api, path):
    cursor = api.ask("GET", f"{BATCHES}?limit=2").json()["next"]

    refused = api.ask("GET", f"{path}?cursor={cursor}")

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
    assert "cursor belongs to batches of flights, not to" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/maintenance", "/alerts", BATCHES, "/states/totals/history"])
def test_a_cursor_that_a_client_has_changed_is_refused(filled_lists, api, path):
    cursor = api.ask("GET", f"{BATCHES}?limit=2").json()["next"]

    for changed in (cursor[:-1], "x" + cursor, "x"):
        assert api.ask("GET", f"{path}?cursor={changed}").json()["code"] == "invalid_cursor"


def test_what_is_added_meanwhile_moves_no_page(filled_lists, api):
    first = api.ask("GET", f"{BATCHES}?limit=3").json()
    filled_lists.commit({("JFK", "C00"): 1})

    following = api.ask("GET", f"{BATCHES}?limit=3&cursor={first['next']}").json()

    assert [batch["txid"] for batch in following["batches"]] == [5, 4, 3]
