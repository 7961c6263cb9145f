from datetime import timedelta

import pytest

from tidegauge.pipelines.errors import PipelineError
from tidegauge.testing.steps import (
    Advance,
    Attempt,
    Crash,
    Expire,
    Replay,
    Restart,
    actions,
    final_batches,
    without_faults,
)


def test_a_batch_whose_driver_dies_comes_again_with_its_rows():
    assert actions([["a"], Crash("mid_write"), ["b"]]) == [
        Attempt(0, ["a"], "mid_write"),
        Attempt(0, ["a"]),
        Attempt(1, ["b"]),
    ]


def test_after_a_crash_a_replay_brings_its_own_rows():
    assert actions([["a"], Crash("after_begin"), Replay(["b"]), ["c"]]) == [
        Attempt(0, ["a"], "after_begin"),
        Attempt(0, ["b"]),
        Attempt(1, ["c"]),
    ]


def test_two_crashes_are_two_attempts_that_die():
    assert actions([["a"], Crash("after_begin"), Crash()]) == [
        Attempt(0, ["a"], "after_begin"),
        Attempt(0, ["a"], "before_commit"),
        Attempt(0, ["a"]),
    ]


def test_a_replay_without_a_crash_follows_a_commit():
    assert actions([["a"], Replay()]) == [Attempt(0, ["a"], "after_commit"), Attempt(0, ["a"])]


def test_a_replay_may_crash_too():
    assert actions([["a"], Replay(["b"]), Crash("mid_write")]) == [
        Attempt(0, ["a"], "after_commit"),
        Attempt(0, ["b"], "mid_write"),
        Attempt(0, ["b"]),
    ]


def test_what_comes_between_batches_waits_for_the_attempt_that_lives():
    assert actions([["a"], Crash(), Restart(), {"orders": ["b"]}]) == [
        Attempt(0, ["a"], "before_commit"),
        Attempt(0, ["a"]),
        Restart(),
        Attempt(1, {"orders": ["b"]}),
    ]


def test_without_faults_each_batch_has_the_rows_that_count_at_its_time():
    steps = [["a"], Crash(), Replay(["b"]), Restart(), Advance(timedelta(days=1)), Expire(), ["c"], Replay()]

    assert final_batches(steps) == [["b"], ["c"]]
    assert without_faults(steps) == [["b"], Advance(timedelta(days=1)), ["c"]]


@pytest.mark.parametrize("steps", [[Crash()], [Replay([])], [["a"], Restart(), Crash()]])
def test_a_fault_of_no_batch_is_refused(steps):
    with pytest.raises(
        PipelineError, match="does not follow a batch; put it directly after the batch that it is about"
    ):
        actions(steps)


@pytest.mark.parametrize(("made", "message"), [
    (lambda: Crash("at_noon"), r"Crash\(at='at_noon'\): must be one of after_begin, mid_write, before_commit"),
    (lambda: Advance(timedelta(-1)), "batch times cannot go back"),
    (lambda: actions(["a line"]), "step 'a line': is not a batch; give a list of rows"),
])  # fmt: skip
def test_what_is_no_step_is_refused(made, message):
    with pytest.raises(PipelineError, match=message):
        made()
