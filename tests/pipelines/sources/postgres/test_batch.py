"""Positions in a table's stream: stored as offsets, and what the copy of the table has seen."""

import pytest

from tidegauge.pipelines.sources.postgres.batch import LogPosition, Seen, position
from tidegauge.pipelines.sources.postgres.pgoutput import Transaction


class TestSeen:
    SNAPSHOT = Seen(f"{(1 << 32) + 90}:{(1 << 32) + 100}:{(1 << 32) + 95},{(1 << 32) + 97}", until=1_000)

    @pytest.mark.parametrize(
        ("xid", "covered"),
        [(89, True), (94, True), (95, False), (97, False), (99, True), (100, False), (2**32 - 1, True)],
    )
    def test_it_covers_transactions_that_had_ended_when_the_copy_was_taken(self, xid, covered):
        assert self.SNAPSHOT.covers(Transaction(500, xid, 0)) is covered

    def test_after_its_end_it_covers_no_transaction(self):
        assert not self.SNAPSHOT.covers(Transaction(1_000, 94, 0))


@pytest.mark.parametrize(
    "where",
    [
        LogPosition(7),
        LogPosition(7, Seen("1:2:", 9)),
        LogPosition(7, Seen("1:2:", 9), 3, 4, 50, "2026-01-01T00:00:00+00:00"),
    ],
)
def test_a_position_can_be_restored_from_its_offset(where):
    assert position(where.as_offset()) == where
