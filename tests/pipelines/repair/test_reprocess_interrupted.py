"""A reprocess that is killed between any two of its steps is finished, or taken back, by whatever comes next."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.pipelines.repair.test_reprocess import LETTERS, WORDS, counted, reprocess, words  # noqa: F401  counted: a fixture
from tests.recovery_page import message_of
from tidegauge.pipelines.checkpoint import folder as checkpoint_module
from tidegauge.pipelines.repair.reprocess import abort
from tidegauge.state_backends.errors import SwapError
from tidegauge.state_backends.schema import reprocess as record_module
from tidegauge.state_backends.schema.swap import ROOM

pytestmark = pytest.mark.spark

NOTHING = timedelta()
OLD = {"dog": {"count": 2}, "cat": {"count": 1}}
NEW = {"dog": {"letters": 6}, "cat": {"letters": 3}}


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, and what follows does not run."""


# Where a process may die: before the swap's transaction, in it, and before each move of a folder after it.
BEFORE_THE_SWAP = ["enter swapped"]
AFTER_THE_SWAP = ["move checkpoint", "move checkpoint.reprocess", "remove checkpoint.kept", "enter settled"]


@pytest.fixture
def killed_at(monkeypatch):
    """Return a function that sets the step before which the process dies; it comes to life again after that."""

    def arm(step):
        armed = [step]

        def before(name):
            if armed and armed[0] == name:
                raise Killed(armed.pop())

        def folders(do, verb):
            def step(folder, *rest):
                if folder.exists():
                    before(f"{verb} {folder.name}")
                do(folder, *rest)

            return step

        def enter(conn, pipeline, phase, after, do=record_module.enter):
            before(f"enter {after}")
            do(conn, pipeline, phase, after)

        monkeypatch.setattr(checkpoint_module, "move", folders(checkpoint_module.move, "move"))
        monkeypatch.setattr(checkpoint_module, "remove", folders(checkpoint_module.remove, "remove"))
        monkeypatch.setattr(record_module, "enter", enter)
        return armed

    return arm


@pytest.fixture
def cut_short(counted, killed_at):  # noqa: F811
    """Return a function that runs a reprocess until it dies before a step."""

    def run(step):
        armed = killed_at(step)
        with pytest.raises(Killed):
            reprocess(counted, words(counted.input, LETTERS), keep_old=NOTHING).run()
        assert armed == []

    return run


def phases(workspace):
    return [phase for (phase,) in workspace.rows("SELECT phase FROM tidegauge.reprocess ORDER BY id")]


def folders(workspace):
    return sorted(path.name for path in Path(workspace.checkpoint.parent).glob("checkpoint*"))


def test_after_the_swap_the_next_start_finishes_it(counted, cut_short):  # noqa: F811
    """After any of the steps: see the next test, where an abort is asked for before."""
    cut_short("move checkpoint.reprocess")
    counted.land("3.txt", "dog")

    batches = counted.run(words(counted.input, LETTERS))

    assert batches == [(ROOM + 3, 1)]
    assert counted.values("words") == {"dog": {"letters": 9}, "cat": {"letters": 3}}
    assert (phases(counted), folders(counted)) == (["settled"], ["checkpoint"])


@pytest.mark.parametrize("step", AFTER_THE_SWAP)
def test_after_the_swap_an_abort_is_refused_and_loses_nothing(counted, cut_short, step):  # noqa: F811
    cut_short(step)

    with pytest.raises(SwapError, match=message_of("A reprocess was interrupted", 2)):
        abort("word_count", counted.dsn, counted.checkpoint)
    counted.land("3.txt", "dog")
    batches = counted.run(words(counted.input, LETTERS))

    assert batches == [(ROOM + 3, 1)]
    assert counted.values("words") == {"dog": {"letters": 9}, "cat": {"letters": 3}}
    assert (phases(counted), folders(counted)) == (["settled"], ["checkpoint"])


@pytest.mark.parametrize("step", BEFORE_THE_SWAP)
def test_before_the_swap_the_next_start_goes_on_with_the_states_there_are(counted, cut_short, step):  # noqa: F811
    cut_short(step)
    counted.land("3.txt", "dog")

    batches = counted.run(words(counted.input, WORDS))

    assert batches == [(3, 1)]
    assert counted.values("words") == {"dog": {"count": 3}, "cat": {"count": 1}}
    assert phases(counted) == ["feeding"]


@pytest.mark.parametrize("step", ["enter aborted", "remove checkpoint.reprocess"])
def test_an_abort_that_was_killed_is_finished_by_the_next_one(counted, cut_short, killed_at, step):  # noqa: F811
    cut_short("enter swapped")
    killed_at(step)
    with pytest.raises(Killed):
        abort("word_count", counted.dsn, counted.checkpoint)

    abort("word_count", counted.dsn, counted.checkpoint)

    assert (phases(counted), folders(counted)) == (["aborted"], ["checkpoint"])
    assert counted.values("words") == OLD


@pytest.mark.parametrize("step", [*BEFORE_THE_SWAP, "move checkpoint", "remove checkpoint.reprocess"])
def test_a_reprocess_again_ends_as_one_that_was_not_killed(counted, cut_short, killed_at, step):  # noqa: F811
    """After the swap it begins as any start does, by finishing the swap: see the tests above for the other steps."""
    if step == "remove checkpoint.reprocess":
        cut_short("enter swapped")
        killed_at(step)
        with pytest.raises(Killed):
            abort("word_count", counted.dsn, counted.checkpoint)
    else:
        cut_short(step)

    assert reprocess(counted, words(counted.input, LETTERS), keep_old=NOTHING).run()
    counted.land("3.txt", "cow")
    counted.run(words(counted.input, LETTERS))

    assert counted.values("words") == NEW | {"cow": {"letters": 3}}
    assert (phases(counted)[-1], folders(counted)) == ("settled", ["checkpoint"])
