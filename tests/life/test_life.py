"""A few random lives; `make life` lives as many as there is time for."""

import os

import pytest

from tests.life.life import Figures, live

pytestmark = pytest.mark.spark

# Short ones that end. A life can also stop, where the kit cannot tell which keys were refused.
SEEDS = [9, 14]


def test_what_random_lives_leave_is_what_their_models_say(tidegauge_spark):
    lived = sum((live(seed, tidegauge_spark, os.environ["DATABASE_URL"]) for seed in SEEDS), Figures())

    assert lived.compared == lived.states
    assert lived.attempts > lived.batches
    assert min(lived.dead_letters, lived.rebuilt, lived.operated, lived.keys, lived.spread) > 0
