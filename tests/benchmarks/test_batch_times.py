"""Where a batch's time goes: the parts and the pauses between them add up to the whole."""

import pytest

from benchmarks.batch_times import Span, call_spans, medians, timeline


def test_parts_pauses_and_the_rest_add_up_to_the_batch():
    parts = timeline({"commit": Span(70, 75), "begin": Span(10, 12), "job_1": Span(20, 60)}, inside=100)

    assert parts == {"begin": 2, "before_job_1": 8, "job_1": 40, "before_commit": 10, "commit": 5, "around": 35}
    assert sum(parts.values()) == 100


def test_concurrent_jobs_have_no_pause_between_them():
    parts = timeline({"job_1": Span(0, 50), "job_2": Span(10, 20), "commit": Span(55, 60)}, inside=60)

    assert (parts["before_job_2"], parts["before_commit"]) == (0, 5)


def test_a_stage_is_a_part_of_its_job():
    parts = timeline({"job_1": Span(0, 50), "job_1_stage_1": Span(5, 45)}, inside=50)

    assert parts == {"job_1": 50, "job_1_stage_1": 40, "around": 0}


def test_a_batch_without_a_part_counts_as_zero():
    assert medians([{"job_1": 4.0, "job_2": 9.0}, {"job_1": 6.0}, {"job_1": 5.0}]) == {"job_1": 5.0, "job_2": 0.0}


def test_calls_are_recorded_in_the_block_and_their_errors_pass_through():
    class Ledger:
        def commit(self):
            raise ValueError("no")

    with call_spans(Ledger, "commit") as calls, pytest.raises(ValueError, match="no"):
        Ledger().commit()
    with pytest.raises(ValueError, match="no"):
        Ledger().commit()

    assert len(calls["commit"]) == 1
