"""States in Redis through the API: looked up and listed like any other, lookups on the event loop and in a thread."""

import asyncio
import socket
import time
from datetime import timedelta

import orjson
import pytest

from tests.webapp.both_ways import BothWaysClient, Requests
from tests.webapp.redis_views import HOUR, redis_views, unavailable_redis
from tidegauge.state_backends import BACKENDS
from tidegauge.webapp.accounts import authentication, rate_limits
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api.on_loop import MOST_SHOWN_KEYS
from tidegauge.webapp.catalog import loop_stores, loop_turns, readers


@pytest.fixture
def views(transactional_db):
    readers.clear_cache()
    with readers.own_connection() as conn, redis_views(conn, ttl=HOUR) as views:
        yield views


@pytest.fixture
def api(views, monkeypatch):
    # On a busy machine neither an old reader nor a slow call may leave to a thread what the event loop can answer.
    monkeypatch.setattr(readers, "CHECK_SECONDS", 600)
    monkeypatch.setattr(loop_stores, "STUCK_SECONDS", 10)
    authentication.clear_cache()
    key = create_api_key("reader", ["read"])[1]
    requests = Requests(key, views.conn)
    yield BothWaysClient(key, requests)
    requests.close()
    rate_limits.reset()


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
    assert asked(api, views).json()["results"] == []


def asked_again(api, views, etag):
    body = {"keys": [["home"], ["old"], ["nowhere"], ["home"]]}
    return api.ask("POST", f"/states/{views.name}/lookup", body, HTTP_IF_NONE_MATCH=etag)


def test_a_lookup_during_an_open_batch_sees_the_one_before(api, views):
    views.commit({"home": 4})
    views.write(views.begin(), {"home": 10, "new": 1})

    answer = asked(api, views, ["home"], ["new"], measures=["views"], min_txid=1).json()

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


def test_one_key_has_its_answer_and_etag_and_many_go_to_a_thread(api, views):
    views.commit({"home": 4})
    path = f'/states/{views.name}/keys?key=["home"]&measures=views'

    found = api.ask("GET", path)
    many = api.requests.on_loop(f"/api/v1/states/{views.name}/lookup", {"keys": [["home"]] * (MOST_SHOWN_KEYS + 1)})
    again = api.ask("GET", path, HTTP_IF_NONE_MATCH=found.headers["ETag"])
    missing = api.ask("GET", f'/states/{views.name}/keys?key=["nowhere"]')

    assert (found.status_code, found.json()["value"]) == (200, {"views": 4})
    assert (again.status_code, many) == (304, None)
    assert (missing.status_code, missing.json()["key_status"]) == (404, "missing")


def test_a_redis_that_has_lost_batches_is_not_answered_from(api, views):
    """It is two batches behind, as after an older copy was restored."""
    views.commit({"home": 1})
    for _ in range(2):
        batch = views.begin()
        views.write(batch, {"home": 1})
        views.ledger.commit(batch)
        views.batches += 1

    response = api.ask("POST", f"/states/{views.name}/lookup", {"keys": [["home"]]})

    assert response.status_code == 503
    assert "batch 3 was committed, and Redis is at batch 1" in response.json()["detail"]


def test_a_redis_that_hangs_delays_the_event_loop_s_answers_once_and_for_a_moment(api, views, monkeypatch):
    views.commit({"home": 1})
    path, body = f"/api/v1/states/{views.name}/lookup", {"keys": [["home"]]}
    monkeypatch.setattr(BACKENDS["redis"], "timeout_seconds", 0.5)
    monkeypatch.setattr(loop_stores, "STUCK_SECONDS", 0.25)
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
        patch.setenv("REDIS_URL", f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        readers.clear_cache()
        refused = api.requests.in_thread(path, body)

        begun = time.monotonic()
        first, seconds = api.requests.on_loop(path, body), time.monotonic() - begun
        begun = time.monotonic()
        second, later = api.requests.on_loop(path, body), time.monotonic() - begun
    readers.clear_cache()

    assert (refused.status, first, second) == (503, None, None)
    assert 0.2 < seconds < 0.5
    assert later < 0.1
    monkeypatch.setattr(loop_turns.time, "monotonic", lambda: begun + 5)
    assert asked(api, views, ["home"]).status_code == 200


def test_a_wait_on_the_event_loop_ends_once_redis_shows_the_batch(api, views):
    """The ledger has the batch a moment earlier, which is not enough."""
    views.commit({"home": 4})
    asked(api, views, ["home"])
    batch = views.begin()
    views.write(batch, {"home": 1})
    views.ledger.commit(batch)

    async def answered():
        asyncio.get_running_loop().call_later(0.1, views.backing.publish, 2)
        body = {"keys": [["home"]], "min_txid": 2, "wait_ms": 5_000}
        return await api.requests.answer(*api.requests.environ(f"/api/v1/states/{views.name}/lookup", body))

    here = api.requests.runner.run(answered())

    assert (here.status, orjson.loads(here.body)["txid"]) == (200, 2)
