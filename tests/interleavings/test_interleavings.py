"""A few interleavings; `make interleavings` runs as many as there is time for."""

import os
from collections import Counter

import pytest

from tests.interleavings.history import History
from tidegauge.pipelines.embedded.temporary import temporary_database

# Without one of the guards that docs/reliability.md names, an answer in one of these is wrong.
SEEDS = [1, 5, 7, 27]

pytestmark = pytest.mark.long


def lived(seed, folder):
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        history = History(seed, url, folder)
        return history.live(), history.scheduler.trace


def test_each_answer_is_one_committed_batch_whichever_process_runs_next(tmp_path):
    total = sum((lived(seed, tmp_path / str(seed))[0] for seed in SEEDS), Counter())

    assert {"killed", "retries", "read", "earlier", "refused FencedError"} <= total.keys()


def test_a_seed_gives_the_same_interleaving_again(tmp_path):
    assert lived(1, tmp_path / "first") == lived(1, tmp_path / "again")
