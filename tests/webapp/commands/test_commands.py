import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.recovery_page import arguments, commands
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog.models import MaintenanceRun

CARRIERS = "flights_by_carrier"


def called(*words, **options):
    out = StringIO()
    call_command(*words, stdout=out, **options)
    return out.getvalue().splitlines()


def test_compact_runs_over_all_states(lasting):
    lines = called("compact")

    assert lines == [f"{CARRIERS}: nothing removed", "flights_by_hour: nothing removed", "totals: nothing removed"]
    assert {run.status for run in MaintenanceRun.objects.all()} == {"done"}


def test_expire_takes_states_by_name_and_reports_what_it_removed(lasting):
    lasting.conn.execute(f"UPDATE tidegauge_state.{CARRIERS} SET updated_at = updated_at - interval '401 days'")

    assert called("expire", CARRIERS) == [f"{CARRIERS}: 60 expired rows removed"]


def test_json_is_one_run_per_line(lasting):
    (run,) = map(json.loads, called("compact", CARRIERS, "--json"))

    assert (run["state"], run["status"], run["kind"]) == (CARRIERS, "done", "compaction")
    assert run["before"]["state_rows"] == 60


def test_an_unknown_state_fails_the_command_with_the_existing_ones(lasting):
    with pytest.raises(CommandError, match=f"'carriers' does not exist; there are {CARRIERS}"):
        called("compact", "carriers")


def test_a_run_that_fails_fails_the_command(lasting):
    lasting.conn.execute(f"ALTER TABLE tidegauge_changelog.{CARRIERS} RENAME TO gone")
    try:
        with pytest.raises(CommandError, match=f"{CARRIERS}: failed UndefinedTable"):
            called("compact", CARRIERS)
    finally:
        lasting.conn.execute(f"ALTER TABLE tidegauge_changelog.gone RENAME TO {CARRIERS}")


def test_epochs_lists_when_each_was_made_and_why(filled):
    before = filled.conn.execute("SELECT epoch FROM tidegauge.pipeline").fetchone()[0]
    now = new_epoch(filled.conn, "taken back by hand")

    [look] = commands("The database was restored, or a standby promoted")
    newest, oldest = called(*arguments(look))

    assert re.fullmatch(rf"{now} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC: taken back by hand", newest)
    assert oldest.startswith(f"{before} since ")
    assert oldest.endswith(": the first driver started")


def test_replay_says_how_many_letters_it_marks_and_who_asked_is_recorded(lasting):
    lasting.conn.execute(
        "INSERT INTO tidegauge.dead_letter (pipeline, txid, source, line, reason, record) VALUES "
        "('flights', 1, 'a.json', '{', 'not JSON', '{}'), ('flights', 1, 'a.json', '', 'lost: 1', NULL)"
    )
    marked = "SELECT count(*) FROM tidegauge.dead_letter WHERE replay_by = 'command replay_dead_letters'"

    dry = called("replay_dead_letters", "flights", "--reason", "not JSON", "--dry-run")
    untouched = lasting.conn.execute(marked).fetchone()
    said = called("replay_dead_letters", "flights", "--since", "2020-01-01")

    assert dry == ["flights: 1 dead letters would be replayed"]
    assert untouched == (0,)
    assert said == [
        "flights: 1 dead letters are replayed by the running driver, in a batch of their own",
        "flights: 1 cannot be replayed: no raw record of them was kept",
    ]
    assert lasting.conn.execute(marked).fetchone() == (1,)
    entry = AuditEntry.objects.filter(action="pipeline.replay").get()
    assert (entry.target, entry.detail["letters"]) == ("pipeline flights", 1)
    with pytest.raises(CommandError, match="'nosuch'"):
        called("replay_dead_letters", "nosuch")
