import json
from functools import partial
from io import StringIO

import pytest
import redis
from django.conf import settings
from django.core.management import CommandError, call_command

from tests.webapp.flights import BY_CARRIER
from tidegauge.state_backends import RedisBackingMap, StateReader, rebuild
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.maintenance.operations import rebuild_state

CARRIERS = BY_CARRIER.name
KEYS = [(origin, f"C{n:02}") for n in range(31) for origin in ("EWR", "JFK", "LGA")]


@pytest.fixture
def idle(lasting, monkeypatch):
    """A filled pipeline whose driver has gone; a rebuild takes ten keys at a time."""
    monkeypatch.setattr("tidegauge.webapp.maintenance.operations.rebuild", partial(rebuild, chunk_keys=10))
    lasting.die()
    return lasting


def answers(conn):
    return StateReader(conn, BY_CARRIER).multi_get(KEYS).parsed()


def called(*words):
    out, err = StringIO(), StringIO()
    call_command("rebuild", *words, stdout=out, stderr=err)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def test_lost_rows_come_back_from_the_changelog(idle):
    before = answers(idle.conn)
    idle.conn.execute(f"DELETE FROM tidegauge_state.{CARRIERS} WHERE carrier > 'C05'")

    out, err = called(CARRIERS)

    assert out == [f"{CARRIERS}: 60 keys rebuilt in postgres"]
    assert [line.split(" of ")[0] for line in err] == [f"{CARRIERS}: {keys}" for keys in range(10, 61, 10)]
    assert err[-1].endswith('up to ["JFK", "C29"]')
    assert answers(idle.conn) == before
    entry = AuditEntry.objects.get(action="state.rebuild")
    assert (entry.actor, entry.target, entry.detail) == (
        "command rebuild",
        f"state {CARRIERS}",
        {"backend": "postgres"},
    )


def test_without_an_audit_log_the_rows_come_back_as_well(idle, monkeypatch, caplog):
    before = answers(idle.conn)
    monkeypatch.setattr(AuditEntry._meta, "db_table", "nowhere")

    called(CARRIERS)

    assert answers(idle.conn) == before
    assert f"not in the audit log: state.rebuild of state {CARRIERS}" in caplog.text


def test_what_a_dead_driver_left_of_an_open_batch_does_not_stand_in_the_way(lasting):
    before = answers(lasting.conn)
    lasting.open({("EWR", "C00"): 5, ("LGA", "new"): 5})
    lasting.die()

    called(CARRIERS)

    assert answers(lasting.conn) == before


def test_a_rebuild_that_was_cut_short_goes_on_where_it_was(idle):
    before = answers(idle.conn)
    idle.conn.execute(f"TRUNCATE tidegauge_state.{CARRIERS}")
    run = rebuild_state(state=CARRIERS, to="postgres", requested_by="ann")
    last = [next(run) for _ in range(2)][-1].last_key
    run.close()

    out, _ = called(CARRIERS, "--resume-from", json.dumps(last))

    assert out == [f"{CARRIERS}: 40 keys rebuilt in postgres"]
    assert answers(idle.conn) == before


def test_ctrl_c_says_how_to_go_on(idle, monkeypatch):
    def interrupted(**options):
        yield from list(rebuild_state(**options))[:1]
        raise KeyboardInterrupt

    monkeypatch.setattr("tidegauge.webapp.maintenance.operations.rebuild_state", interrupted)

    with pytest.raises(CommandError) as caught:
        called(CARRIERS)

    assert str(caught.value) == f'{CARRIERS}: stopped after 10 keys; continue with --resume-from \'["EWR", "C09"]\''


def test_a_state_moves_to_redis_and_reads_alike_there(idle):
    called(CARRIERS, "--to", "redis")

    with redis.Redis.from_url(settings.REDIS_URL) as client:
        batch, rows = RedisBackingMap(client, BY_CARRIER).multi_get_committed(KEYS)
    assert batch.txid == 2
    assert [(row.status, row.value and row.value["flights"]) for row in rows] == [
        (answer["status"], answer["value"] and answer["value"]["flights"]) for answer in answers(idle.conn)
    ]


def test_a_pipeline_at_work_is_left_alone(lasting):
    with pytest.raises(CommandError, match="pipeline 'flights' is held by a live driver"):
        called(CARRIERS)


def test_a_state_without_a_changelog_says_so(idle):
    with pytest.raises(CommandError, match="state 'totals': keeps no changelog"):
        called("totals")
