"""A reprocess that is killed between any two of its steps is finished, or taken back, by whatever comes next.

These need no Spark: see test_reprocess.py for a driver that starts after the swap.
"""

from datetime import timedelta

import pytest

from tests.pipelines.repair.ledger_reprocess import NAME, Killed
from tests.recovery_page import message_of
from tidegauge.pipelines.repair.reprocess import abort
from tidegauge.state_backends.errors import SwapError

NOTHING = timedelta()

# Where a process may die: in the swap's transaction, and before each move of a folder after it.
BEFORE_THE_SWAP = ["enter swapped"]
AFTER_THE_SWAP = ["move checkpoint", "move checkpoint.reprocess", "remove checkpoint.kept", "enter settled"]


@pytest.fixture
def cut_short(counted_once, killed_at):
    """Return a function that runs a reprocess until it dies before a step."""

    def run(step):
        armed = killed_at(step)
        with pytest.raises(Killed):
            counted_once.reprocess(keep_old=NOTHING).run()
        assert armed == []

    return run


def abort_it(place):
    abort(NAME, place.dsn, place.checkpoint)


@pytest.mark.parametrize("step", AFTER_THE_SWAP)
def test_after_the_swap_an_abort_is_refused_and_the_next_start_finishes_it(counted_once, cut_short, step):
    cut_short(step)

    with pytest.raises(SwapError, match=message_of("A reprocess was interrupted", 2)):
        abort_it(counted_once)
    counted_once.start_driver()

    assert counted_once.is_new
    assert (counted_once.phases, counted_once.folders) == (["settled"], ["checkpoint"])


@pytest.mark.parametrize("step", BEFORE_THE_SWAP)
def test_before_the_swap_the_next_start_goes_on_with_the_states_there_are(counted_once, cut_short, step):
    cut_short(step)

    counted_once.start_driver()

    assert not counted_once.is_new
    assert (counted_once.phases, counted_once.folders) == (["feeding"], ["checkpoint", "checkpoint.reprocess"])


@pytest.mark.parametrize("step", ["", "enter aborted", "remove checkpoint.reprocess"])
def test_an_abort_leaves_nothing_also_if_it_was_killed_once(counted_once, cut_short, killed_at, step):
    cut_short("enter swapped")
    if step:
        killed_at(step)
        with pytest.raises(Killed):
            abort_it(counted_once)

    abort_it(counted_once)

    assert not counted_once.is_new
    assert (counted_once.phases, counted_once.folders) == (["aborted"], ["checkpoint"])
    conn = counted_once.conn
    assert conn.execute("SELECT name FROM tidegauge.pipeline").fetchall() == [(NAME,)]
    assert conn.execute("SELECT tablename FROM pg_tables WHERE schemaname LIKE 'tidegauge_shadow%'").fetchall() == []


@pytest.mark.parametrize("step", [*BEFORE_THE_SWAP, "move checkpoint", "remove checkpoint.reprocess"])
def test_a_reprocess_again_ends_as_one_that_was_not_killed(counted_once, cut_short, killed_at, step):
    """After the swap it begins as any start does, by finishing the swap: see the tests above for the other steps."""
    if step == "remove checkpoint.reprocess":
        cut_short("enter swapped")
        killed_at(step)
        with pytest.raises(Killed):
            abort_it(counted_once)
    else:
        cut_short(step)

    assert counted_once.reprocess(keep_old=NOTHING).run()

    assert counted_once.is_new
    assert (counted_once.phases[-1], counted_once.folders) == ("settled", ["checkpoint"])
