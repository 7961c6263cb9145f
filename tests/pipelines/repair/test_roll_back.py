"""A roll-back puts back the states that a reprocess replaced, with their checkpoint, also if it is killed.

These need no Spark: see test_reprocess_commands.py for states that are fed on after a roll-back.
"""

from datetime import timedelta

import psycopg
import pytest

from tests.pipelines.repair.ledger_reprocess import NAME, Killed
from tests.recovery_page import message_of
from tidegauge.pipelines.repair.reprocess import roll_back
from tidegauge.state_backends import BatchLedger
from tidegauge.state_backends.errors import PipelineHeldError, RollBackError

STEPS = [
    "enter rolling_back",
    "move checkpoint",
    "move checkpoint.kept",
    "remove checkpoint.replaced",
    "enter rolled_back",
]


@pytest.fixture
def swapped(counted_once):
    """States that a reprocess has replaced, and those that it keeps for a day."""
    counted_once.reprocess().run()
    return counted_once


def roll_back_words(place):
    roll_back(NAME, place.dsn, place.checkpoint)


def test_a_swap_that_was_cut_short_is_finished_first(counted_once, killed_at):
    killed_at("move checkpoint.reprocess")
    with pytest.raises(Killed):
        counted_once.reprocess().run()

    roll_back_words(counted_once)

    assert not counted_once.is_new
    assert (counted_once.phases, counted_once.folders) == (["rolled_back"], ["checkpoint"])


def test_it_is_refused_while_a_driver_runs(swapped):
    with psycopg.connect(swapped.dsn, autocommit=True) as conn:
        BatchLedger(conn, NAME).acquire()
        with pytest.raises(PipelineHeldError, match="stop it before starting another"):
            roll_back_words(swapped)

    assert swapped.is_new


def test_it_is_refused_without_the_old_checkpoint_before_anything_is_touched(swapped):
    swapped.checkpoint.with_name("checkpoint.kept").rename(swapped.checkpoint.with_name("elsewhere"))

    with pytest.raises(RollBackError, match=message_of("A roll-back that cannot be done", 3)):
        roll_back_words(swapped)

    assert (swapped.is_new, swapped.phases) == (True, ["settled"])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("next_is", ["a driver", "a roll-back"])
def test_one_that_was_killed_is_finished_by_what_comes_next(swapped, killed_at, step, next_is):
    killed_at(step)
    with pytest.raises(Killed):
        roll_back_words(swapped)
    has_begun = step != STEPS[0]

    if next_is == "a roll-back" or not has_begun:
        roll_back_words(swapped)
    else:
        swapped.start_driver()

    assert not swapped.is_new
    assert (swapped.phases, swapped.folders) == (["rolled_back"], ["checkpoint"])


@pytest.mark.parametrize("step", STEPS[:1])
def test_one_that_was_killed_before_its_transaction_has_changed_nothing(swapped, killed_at, step):
    killed_at(step)
    with pytest.raises(Killed):
        roll_back_words(swapped)

    swapped.start_driver()

    assert (swapped.is_new, swapped.folders) == (True, ["checkpoint", "checkpoint.kept"])


def test_the_old_states_go_with_their_checkpoint_once_their_time_is_over(counted_once):
    counted_once.reprocess(keep_old=timedelta(microseconds=1)).run()

    counted_once.start_driver()

    assert (counted_once.is_new, counted_once.folders) == (True, ["checkpoint"])
    tables = "SELECT tablename FROM pg_tables WHERE schemaname LIKE 'tidegauge_kept%'"
    assert counted_once.conn.execute(tables).fetchall() == []
    with pytest.raises(RollBackError, match="no replaced states are kept"):
        roll_back_words(counted_once)
