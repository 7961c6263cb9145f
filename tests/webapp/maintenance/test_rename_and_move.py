"""`tidegauge rename` and `tidegauge move`, and what follows them: API keys, folders, answers."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.flights import BY_CARRIER, TOTALS
from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.state_backends.backends.redis.client import client as redis
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key

CARRIERS = BY_CARRIER.name


@pytest.fixture
def stopped(lasting):
    lasting.die()
    # Other tests rebuild the state in Redis.
    redis(5).unlink("none", *redis(5).scan_iter(f"tidegauge:{{{CARRIERS}}}:*", count=1000))
    yield lasting
    for name in ("per_carrier",):
        lasting.conn.execute(f"DROP VIEW IF EXISTS tidegauge_live.{name}")
        lasting.conn.execute(f"DROP TABLE IF EXISTS tidegauge_state.{name}, tidegauge_changelog.{name}")


def called(*words):
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue().splitlines()


def test_a_renamed_state_answers_under_its_new_name_to_the_keys_that_were_restricted_to_it(stopped, client):
    _, secret = create_api_key("confined", ["read"], states=[CARRIERS, "totals"])
    key = {"Authorization": f"Bearer {secret}"}

    said = called("rename", CARRIERS, "per_carrier")

    assert said == [f"state {CARRIERS!r} is now 'per_carrier'; use that name in its declaration"]
    assert ApiKey.objects.get().states == ["per_carrier", "totals"]
    assert client.get("/api/v1/states/per_carrier", headers=key).json()["keys_estimate"] == 60
    open_key = {"Authorization": f"Bearer {create_api_key('open', ['read'])[1]}"}
    old = client.get(f"/api/v1/states/{CARRIERS}", headers=open_key)
    assert (old.status_code, "was renamed to 'per_carrier'" in old.json()["detail"]) == (410, True)
    assert AuditEntry.objects.get(action="state.rename").detail == {"new": "per_carrier"}


def test_a_renamed_pipeline_takes_its_default_checkpoint_along(stopped, client, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_HOME", str(tmp_path))
    (data_dir() / "checkpoints" / "flights").mkdir(parents=True)
    (data_dir() / "input" / "flights").mkdir(parents=True)

    said = called("rename", "--pipeline", "flights", "departures")

    assert said == [
        "pipeline 'flights' is now 'departures'; use that name in its declaration",
        f"checkpoint: '{data_dir() / 'checkpoints' / 'departures'}'",
        f"input: it stays in '{data_dir() / 'input' / 'flights'}'; continue with --input",
    ]
    headers = {"Authorization": f"Bearer {create_api_key('open', ['read'])[1]}"}
    assert client.get("/api/v1/pipelines/departures", headers=headers).json()["committed_txid"] == 2
    assert client.get("/api/v1/pipelines/flights", headers=headers).status_code == 410


def test_a_state_is_moved_to_redis_and_back_while_its_answers_stay(stopped, client):
    headers = {"Authorization": f"Bearer {create_api_key('open', ['read'])[1]}"}
    body = {"keys": [["EWR", "C00"]]}
    path = f"/api/v1/states/{CARRIERS}/lookup"
    before = client.post(path, body, "application/json", headers=headers).json()["results"]

    assert called("move", CARRIERS, "--to", "redis") == [
        f"state {CARRIERS!r}: 60 rows moved to redis; declare it with backend='redis'"
    ]

    from tidegauge.webapp.catalog import readers

    readers.clear_cache()
    assert client.post(path, body, "application/json", headers=headers).json()["results"] == before
    assert called("move", CARRIERS, "--to", "postgres")[0].startswith(f"state {CARRIERS!r}: 60 rows moved to postgres")
    readers.clear_cache()
    assert client.post(path, body, "application/json", headers=headers).json()["results"] == before


def test_a_state_goes_to_a_pipeline_that_is_declared_and_has_not_run(stopped):
    assert called("move", TOTALS.name, "--pipeline", "word_count") == [
        "state 'totals': pipeline 'word_count' feeds it from its next batch on; move its declaration there"
    ]
    with pytest.raises(CommandError, match="pipeline 'nowhere' has not run yet, and pipeline 'nowhere' not found"):
        called("move", TOTALS.name, "--pipeline", "nowhere")
