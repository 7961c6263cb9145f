"""A state whose store and ledger do not agree: not served, shown with its remedy, and mended by a rebuild."""

import json
import os
from functools import partial
from io import StringIO

import pytest
import redis
from django.core.management import CommandError, call_command

from tests.state_backends.store_feed import copy_of, put_back
from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.redis_views import Views, redis_views
from tidegauge.state_backends import BACKENDS, rebuild
from tidegauge.state_backends.ledger import findings
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.maintenance.operations import rebuild_state


@pytest.fixture
def api(db):
    return CheckedClient(create_api_key("keeper", ["read", "maintain"])[1])


@pytest.fixture
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def views(transactional_db):
    """A state in Redis with a changelog, one batch old."""
    readers.clear_cache()
    with redis_views(readers.connection(), changelog=True) as views:
        views.commit({"a": 1, "b": 1})
        yield views
    readers.clear_cache()


def counts(api, views: Views, *pages):
    readers.clear_cache()
    answer = api.ask("POST", f"/states/{views.name}/lookup", {"keys": [[page] for page in pages]})
    if answer.status_code != 200:
        return answer.status_code, answer.json()["detail"]
    return [(found["value"] or {}).get("views", found["status"]) for found in answer.json()["results"]]


def rebuilt(views, *more):
    out = StringIO()
    call_command("rebuild", views.name, "--to", "redis", *more, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("tidegauge.webapp.maintenance.operations.rebuild", partial(rebuild, chunk_keys=1))


@pytest.fixture
def older(views, client):
    """Redis has gone back to batch 1, of 3: page `b` is there, which batch 2 removed."""
    copy = copy_of(client, views.spec)
    views.commit({"a": 1, "c": 1}, gone=("b",))
    views.commit({"a": 1})
    views.ledger.release()
    put_back(client, views.spec, copy)
    return views


def test_a_state_with_a_finding_is_not_served_and_says_what_to_type(api, views, admin_client):
    findings.record(views.conn, views.name, "state 'x': it is broken; run `tidegauge rebuild x --to redis`")

    assert counts(api, views, "a") == (503, "state 'x': it is broken; run `tidegauge rebuild x --to redis`")
    for path in (f"/states/{views.name}/entries", f"/states/{views.name}/history?key=%5B%22a%22%5D"):
        assert api.ask("GET", path).status_code == 503
    assert api.ask("GET", f"/states/{views.name}").json()["finding"].startswith("state 'x': it is broken")
    for page in ("", "/lookup?keys=a", "/key?key=%5B%22a%22%5D"):
        shown = admin_client.get(f"/states/{views.name}{page}", follow=True).content.decode()
        assert "it is broken; run <code>tidegauge rebuild x --to redis</code>" in shown
    assert "not served" in admin_client.get("/").content.decode()
    assert "<h1>A state is not served</h1>" in admin_client.get("/").content.decode()

    findings.record(views.conn, views.name, "")
    assert counts(api, views, "a") == [1]


def test_a_warning_is_shown_and_stops_nothing(api, views, admin_client):
    findings.warn(views.conn, views.name, "no append-only file")

    assert counts(api, views, "a") == [1]
    assert api.ask("GET", f"/states/{views.name}").json()["warning"] == "no append-only file"
    assert "No append-only file." in admin_client.get(f"/states/{views.name}", follow=True).content.decode()


def test_a_store_that_is_behind_is_not_served_and_a_rebuild_replaces_all_of_it(api, older):
    status, detail = counts(api, older, "a")
    assert (status, "run `tidegauge rebuild" in detail) == (503, True)

    out = rebuilt(older)

    assert out == f"{older.name}: 3 keys rebuilt in redis"
    assert counts(api, older, "a", "b", "c") == [3, "missing", 1]
    assert older.rows() == {"a": 3, "c": 1}


def test_a_state_whose_rebuild_was_killed_is_served_by_nobody_until_it_is_done(api, older):
    run = rebuild_state(state=older.name, to="redis", requested_by="ann")
    next(run)
    run.close()

    status, detail = counts(api, older, "a")
    assert (status, detail.partition(": ")[2]) == (
        503,
        "it is being rebuilt, or a rebuild was cut short; wait for it, or run `tidegauge rebuild "
        f"{older.name} --to redis`",
    )
    rebuilt(older)
    assert counts(api, older, "a", "b", "c") == [3, "missing", 1]


def test_a_rebuild_that_was_cut_short_goes_on_where_it_was(api, older):
    run = rebuild_state(state=older.name, to="redis", requested_by="ann")
    last = next(run).last_key
    run.close()

    rebuilt(older, "--resume-from", json.dumps(last))

    assert counts(api, older, "a", "b", "c") == [3, "missing", 1]


def test_a_rebuild_goes_on_only_where_one_was_cut_short(api, older):
    with pytest.raises(CommandError, match="no rebuild of it was cut short in Redis; run it from the start, without"):
        rebuilt(older, "--resume-from", '["a"]')


def test_a_pipeline_goes_on_from_what_was_rebuilt(api, older):
    rebuilt(older)
    older.ledger.acquire()
    start = older.ledger.start(3)
    BACKENDS["redis"].catch_up(older.conn, older.spec, start, is_new=False)
    older.commit({"a": 1, "b": 1})

    assert counts(api, older, "a", "b", "c") == [4, 1, 1]
