"""States in Redis through the API: looked up and listed like any other."""

from datetime import timedelta

import pytest

from tests.webapp.redis_views import HOUR, redis_views, unavailable_redis


@pytest.fixture
def views(connection):
    with redis_views(connection, ttl=HOUR) as views:
        yield views


def asked(api, views, *keys, **body):
    response = api.ask("POST", f"/states/{views.name}/lookup", {"keys": list(keys), **body})
    assert response.status_code == 200, response.content
    return response


def test_a_lookup_answers_like_that_of_a_table_and_at_the_same_txid(api, views):
    views.commit({"old": 3})
    views.age(2 * HOUR)
    batch = views.commit({"home": 4, "cart": 1})

    response = asked(api, views, ["home"], ["old"], ["nowhere"], ["home"])
    total = api.ask("POST", f"/states/{views.total.name}/lookup", {"keys": [[]]}).json()

    home = {"key": ["home"], "status": "found", "value": {"views": 4, "mean_ms": 2.5, "longest": 4}}
    assert response.json() == {
        "state": views.name,
        "epoch": batch.epoch,
        "txid": 2,
        "batch_time": batch.batch_time.isoformat(),
        "isolation": "committed",
        "results": [
            home,
            {"key": ["old"], "status": "expired", "value": None},
            {"key": ["nowhere"], "status": "missing", "value": None},
            home,
        ],
    }
    assert (total["txid"], total["batch_time"]) == (2, response.json()["batch_time"])
    again = asked_again(api, views, response.headers["ETag"])
    assert again.status_code == 304


def asked_again(api, views, etag):
    body = {"keys": [["home"], ["old"], ["nowhere"], ["home"]]}
    return api.ask("POST", f"/states/{views.name}/lookup", body, HTTP_IF_NONE_MATCH=etag)


def test_a_lookup_during_an_open_batch_sees_the_one_before(api, views):
    views.commit({"home": 4})
    views.write(views.begin(), {"home": 10, "new": 1})

    answer = asked(api, views, ["home"], ["new"], measures=["views"]).json()

    assert answer["txid"] == 1
    assert [result["value"] for result in answer["results"]] == [{"views": 4}, None]


def test_a_batch_that_is_committed_and_not_published_is_not_seen(api, views):
    views.commit({"home": 4})
    batch = views.begin()
    views.write(batch, {"home": 1})
    views.ledger.commit(batch)

    before = asked(api, views, ["home"]).json()
    views.backing.publish(2)
    after = asked(api, views, ["home"]).json()

    assert [(answer["txid"], answer["results"][0]["value"]["views"]) for answer in (before, after)] == [(1, 4), (2, 5)]


def test_an_invalid_key_and_an_unknown_measure_are_refused(api, views):
    path = f"/states/{views.name}/lookup"

    key = api.ask("POST", path, {"keys": [["home"], [3]]})
    measure = api.ask("POST", path, {"keys": [["home"]], "measures": ["clicks"]})

    assert (key.status_code, key.json()["index"]) == (400, 1)
    assert (measure.status_code, measure.json()["detail"].partition(": ")[2]) == (
        400,
        "no measure 'clicks'; there are views, mean_ms, longest",
    )


def test_the_list_has_the_backend_of_a_state_and_its_estimated_size(api, views):
    views.commit({f"page {n}": 1 for n in range(300)})

    listed = api.ask("GET", "/states").json()["states"]
    found = {state["name"]: state for state in listed}

    assert (found[views.name]["backend"], found[views.name]["keys_estimate"]) == ("redis", 300)
    assert 30_000 < found[views.name]["bytes"] < 300_000
    assert found[views.total.name]["backend"] == "postgres"


def test_while_redis_is_unavailable_a_lookup_is_a_503_and_states_are_still_listed(api, views, monkeypatch):
    views.commit({"home": 1})

    with unavailable_redis(monkeypatch):
        lookup = api.ask("POST", f"/states/{views.name}/lookup", {"keys": [["home"]]})
        listed = api.ask("GET", f"/states/{views.name}")

    assert (lookup.status_code, lookup.json()["detail"]) == (
        503,
        "the store of this state does not answer; try again shortly",
    )
    assert lookup.headers["Retry-After"] == "1"
    assert (listed.status_code, listed.json()["keys_estimate"]) == (200, 0)


def test_ttl_ends_by_the_clock_and_not_by_the_last_batch(api, views):
    views.commit({"home": 1})
    views.age(HOUR + timedelta(minutes=1))

    assert asked(api, views, ["home"]).json()["results"][0]["status"] == "expired"
