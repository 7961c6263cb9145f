"""Events as they arrive: out of order within a bound, in batches of any size, some batches tried twice."""

from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.pipelines.operators.updater_harness import Batches, Row

Event = TypeVar("Event")

DELAY_MINUTES = 10
DELAY = timedelta(minutes=DELAY_MINUTES)


@st.composite
def arriving(draw: Any, events: st.SearchStrategy[Event], minute_of: Any, most: int = 25) -> list[Event]:
    """Draw events in an order in which none comes more than DELAY after a later one."""
    drawn = draw(st.lists(st.tuples(events, st.integers(0, DELAY_MINUTES)), max_size=most))
    return [event for event, wait in sorted(drawn, key=lambda each: minute_of(each[0]) + each[1])]


@st.composite
def batched(draw: Any, events: list[Event]) -> list[tuple[list[Event], list[Event] | None]]:
    """Cut a list into batches, each with the events of a failed attempt, or None if the first attempt succeeded."""
    batches = []
    rest = list(events)
    while rest:
        size = draw(st.integers(1, len(rest)))
        batch, rest = rest[:size], rest[size:]
        failed = draw(st.none() | st.lists(st.sampled_from([*batch, *rest]), max_size=5, unique_by=id))
        batches.append((batch, failed))
    return batches


def run_all(batches: Batches, drawn: list[tuple[list[Row], list[Row] | None]], last: Row) -> None:
    """Run the batches, then one with `last`, which is late enough that no tuple waits any more."""
    for rows, failed in drawn:
        batches.run(rows, failed)
    batches.run([last])
