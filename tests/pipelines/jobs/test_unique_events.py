"""unique_events: an event that is sent twice counts once, in one batch, across batches and across replays."""

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.unique_events import unique_events
from tidegauge.testing import Advance, Crash

pytestmark = pytest.mark.spark


def sent(number, product="book", amount="9.99", at="2024-03-10T09:00:00.123456Z"):
    return {"id": f"e{number}", "product": product, "amount": float(amount), "at": at}


def recount(lines):
    """How many of each product were sold, of events with different ids."""
    sold = Counter(line["product"] for line in {line["id"]: line for line in lines}.values())
    return {product: {"sold": times, "amount": times * Decimal("9.99")} for product, times in sold.items()}


def test_an_event_that_is_sent_and_tried_repeatedly_counts_once(tidegauge_run):
    lines = [sent(number, "book" if number % 3 else "pen") for number in range(30)]
    batches = [[*lines[:20], *lines[:5]], [*lines[10:], *lines[25:]], Crash()]

    result = tidegauge_run(unique_events(Path("events")), batches, expected={"purchases": recount})

    assert [batch.attempts for batch in result.batches] == [1, 2]


def test_the_first_of_those_that_differ_wins_until_it_is_forgotten(tidegauge_run):
    early, later = "2024-03-10T09:00:00.123456Z", "2024-03-10T09:00:00.123457Z"
    steps = [
        [sent(1, "book", at=later), sent(1, "pen", at=early)],
        [sent(1, "ink")],
        Advance(timedelta(days=4)),
        [sent(2, "book")],
        Advance(timedelta(days=4)),
        [sent(1, "ink"), sent(2, "ink")],
    ]

    within_the_week = tidegauge_run(unique_events(Path("events")), steps[:4])
    after = tidegauge_run(unique_events(Path("events")), steps)

    assert sold(within_the_week) == {"pen": 1, "book": 1}
    assert sold(after) == {"pen": 1, "book": 1, "ink": 1}


def sold(result):
    return {product: value["sold"] for (product,), value in result["purchases"].items()}
