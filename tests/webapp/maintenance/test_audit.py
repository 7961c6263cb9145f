"""`tidegauge audit`: says how many keys were compared, and fails where one deviates."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.recovery_page import arguments, commands, message_of
from tests.webapp.flights import BY_CARRIER
from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.console.system_snapshot import clear_cache
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.serving.stored_metrics import StoredMetrics

CARRIERS = BY_CARRIER.name


def deviations():
    """Return the metric of the state."""
    clear_cache()
    [family] = [each for each in StoredMetrics().collect() if each.name == "tidegauge_audit_deviations"]
    return {sample.labels["state"]: sample.value for sample in family.samples}[CARRIERS]


def logged_states():
    return {state.name for state in State.objects.all() if state.definition["changelog"]}


def called(*words):
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return out.getvalue()


def delete_a_row(lasting):
    lasting.conn.execute(f"DELETE FROM tidegauge_state.{CARRIERS} WHERE carrier = 'C05' AND origin = 'JFK'")


def test_a_state_that_agrees_is_said_to_and_why_its_source_was_not_asked(lasting):
    out, err = StringIO(), StringIO()

    call_command("audit", CARRIERS, "--sample", "1000", stdout=out, stderr=err)

    assert out.getvalue().endswith("none deviates\n")
    assert err.getvalue().startswith("not compared with the source: ")


def test_a_source_that_must_be_asked_and_cannot_fails_the_command(lasting):
    with pytest.raises(CommandError, match="does not have the source offsets"):
        called("audit", CARRIERS, "--from", "source")


def test_a_run_of_an_audit_changes_nothing_and_is_done(lasting):
    run = services.maintain_now(kind="audit", state=CARRIERS, requested_by="ann")

    assert run.status == "done"
    assert run.progress["steps"][1] == {"step": "keys that deviate", "seen": 0, "removed": 0}
    assert deviations() == 0


def test_a_deviation_fails_the_run_and_is_an_error_in_the_log_and_a_metric(lasting, caplog):
    delete_a_row(lasting)

    run = services.maintain_now(kind="audit", state=CARRIERS, requested_by="ann")

    assert run.status == "failed"
    assert "keys deviate from the changelog as of batch" in run.error
    assert "the first is ('JFK', 'C05'); see docs/recovery.md" in run.error
    found = [record for record in caplog.records if "first 10: [['JFK', 'C05']]" in record.message]
    assert [record.levelname for record in found] == ["ERROR"]
    assert deviations() == 1


def test_the_schedule_audits_the_states_that_have_a_changelog(lasting):
    assert {run.state_id for run in services.maintain_all("audit")} == logged_states()


def test_a_deviation_fails_the_command_is_logged_and_mended_by_a_rebuild(lasting, caplog):
    lasting.die()
    delete_a_row(lasting)

    audit, rebuild, _reprocess = commands("An audit found a deviation")

    with pytest.raises(CommandError, match=message_of("An audit found a deviation")):
        called(*arguments(audit, STATE=CARRIERS))
    assert "keys that deviate, the first 10: [['JFK', 'C05']]" in caplog.text

    called(*arguments(rebuild, STATE=CARRIERS))
    assert called(*arguments(audit, STATE=CARRIERS)).endswith("none deviates\n")


def test_an_unknown_state_is_named(lasting):
    with pytest.raises(CommandError, match="state 'nothing' does not exist"):
        called("audit", "nothing")
