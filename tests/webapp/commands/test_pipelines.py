import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tidegauge.state_backends.ledger import driver_status


def called(*words):
    out = StringIO()
    call_command("pipelines", *words, stdout=out)
    return out.getvalue().splitlines()


def test_pipelines_are_listed_with_their_status(filled):
    filled.report("restarting", "no disk")

    assert called() == called("list") == ["flights: restarting, batch 2 committed: no disk"]


def test_a_pipeline_is_paused_and_resumed_by_name(filled):
    paused = called("pause", "flights")
    is_paused = driver_status.read_desired_state(filled.conn, "flights").paused
    resumed = called("resume", "flights")

    assert paused == ["flights: running, paused requested by command pipelines pause, batch 2 committed"]
    assert resumed == ["flights: running, running requested by command pipelines resume, batch 2 committed"]
    assert (is_paused, driver_status.read_desired_state(filled.conn, "flights").paused) == (True, False)


def test_json_is_one_pipeline_per_line(filled):
    (pipeline,) = map(json.loads, called("pause", "flights", "--json"))

    assert (pipeline["name"], pipeline["wanted"], pipeline["committed_txid"]) == ("flights", "paused", 2)


@pytest.mark.parametrize("action", ["pause", "resume", "list"])
def test_an_unknown_pipeline_fails_the_command_with_the_existing_ones(filled, action):
    with pytest.raises(CommandError, match="'fligths' does not exist; there are flights"):
        called(action, "fligths")


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_without_a_name_nothing_is_paused_or_resumed(filled, action):
    with pytest.raises(CommandError, match=f"pipelines {action} needs the NAME of a pipeline") as refused:
        called(action)

    assert refused.value.returncode == 2
    assert driver_status.read_desired_state(filled.conn, "flights").since is None
