"""A few interleavings; `make interleavings` runs as many as there is time for."""

import os
from collections import Counter

import pytest

from pipelines.embedded.temporary import temporary_database
from tests.interleavings.history import History

# Here tasks of drivers that died are refused, and an answer is wrong if a guard is gone that docs/reliability.md names.
SEEDS = range(1, 9)

pytestmark = pytest.mark.long


def lived(seed, folder):
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        history = History(seed, url, folder)
        return history.live(), history.scheduler.trace


def test_whoever_goes_on_first_each_answer_is_one_committed_batch(tmp_path):
    total = sum((lived(seed, tmp_path / str(seed))[0] for seed in SEEDS), Counter())

    assert {"killed", "retries", "read", "behind", "refused FencedError"} <= total.keys()


def test_a_seed_gives_the_same_interleaving_again(tmp_path):
    assert lived(1, tmp_path / "first") == lived(1, tmp_path / "again")
