"""unique_events: an event that is sent twice counts once, in one batch, across batches and across replays."""

from decimal import Decimal

import pytest

from pipelines.jobs.unique_events import unique_events

pytestmark = pytest.mark.spark


def sent(number, product="book", amount="9.99", at="2024-03-10T09:00:00.123456Z"):
    return {"id": f"e{number}", "product": product, "amount": float(amount), "at": at}


def opaque(workspace):
    pipeline = unique_events(workspace.input, 1)
    pipeline.sources[0].spout = "opaque"
    return pipeline


def bought(workspace):
    return {product: tuple(values.values()) for product, values in workspace.values("purchases").items()}


def test_an_event_that_is_sent_and_tried_repeatedly_counts_once(workspace):
    lines = [sent(number, "book" if number % 3 else "pen") for number in range(30)]
    workspace.land("1.json", *lines[:20], *lines[:5])
    workspace.land("2.json", *lines[10:], *lines[25:])
    workspace.run(opaque(workspace))
    workspace.forget_last_commit()

    batches = workspace.run(opaque(workspace))

    unique = {line["id"]: line for line in lines}.values()
    expected = {
        product: (sold, sold * Decimal("9.99"))
        for product in ("book", "pen")
        if (sold := sum(line["product"] == product for line in unique))
    }
    assert batches == [(2, 2)]
    assert {name: (sold, Decimal(str(amount))) for name, (sold, amount) in bought(workspace).items()} == expected


def test_the_first_of_those_that_differ_wins_until_it_is_forgotten(workspace):
    early, later = "2024-03-10T09:00:00.123456Z", "2024-03-10T09:00:00.123457Z"
    workspace.land("1.json", sent(1, "book", at=later), sent(1, "pen", at=early), sent(2, "book"))
    workspace.land("2.json", sent(1, "ink"))
    workspace.run(unique_events(workspace.input, 1))
    within_the_week = bought(workspace)
    workspace.conn.execute(
        "UPDATE tidemark_state.seen_events SET updated_at = updated_at - interval '8 days' WHERE id = 'e1'"
    )
    workspace.land("3.json", sent(1, "ink"), sent(2, "ink"))

    workspace.run(unique_events(workspace.input, 1))

    assert {product: sold for product, (sold, _) in within_the_week.items()} == {"pen": 1, "book": 1}
    assert {product: sold for product, (sold, _) in bought(workspace).items()} == {"pen": 1, "book": 1, "ink": 1}
