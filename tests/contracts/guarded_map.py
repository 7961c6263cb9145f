"""What every store outside the ledger's transaction must do about two drivers: only the admitted attempt writes."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.state_backends import StateSpec, Versioned
from tidegauge.state_backends.errors import (
    FencedError,
    LostBatchesError,
    LostWritesError,
    MovedOnError,
    RebuildingError,
)

PAGES = StateSpec("pages", key={"page": "text"}, value="jsonb")
KEY = ("a",)

# Attempts that are older than attempt 2 at batch 5 under fence 2: in their fence, their txid, their number.
OLDER = [(1, 9, 9), (2, 4, 9), (2, 5, 1)]
WRITES = {
    "put": lambda rows: rows.multi_put([KEY], [Versioned(8, 5, 1, 4)]),
    "remove": lambda rows: rows.multi_remove([KEY]),
    "revert": lambda rows: rows.revert(5),
    "publish": lambda rows: rows.publish(5),
}

# More keys than a store reads at once.
MANY = [(f"{number:04}",) for number in range(150)]


def put(rows, txid, value=1):
    """Write all of MANY in a batch, whose previous version is the batch before."""
    prev = (1, txid - 1) if txid > 1 else (None, None)
    rows.multi_put(MANY, [Versioned(value, txid, *prev)] * len(MANY))


def revert_a_later_batch(rows, upkeep):
    put(rows, 2)
    rows.publish(2)
    put(rows, 3)
    rows.revert(3)


def free_what_was_removed(rows, upkeep):
    put(rows, 2, value=None)
    for txid in (2, 3):
        rows.publish(txid)
    for page in upkeep.pages():
        upkeep.drop_tombstones(page, 2)


def rebuild(rows, upkeep):
    rows.begin_rebuild()
    rows.multi_put(MANY, [Versioned(1, 2)] * len(MANY))
    rows.publish(2)


OVERTAKES = [revert_a_later_batch, free_what_was_removed, rebuild]


class GuardedMapContract:
    @pytest.fixture
    def guarded(self, new_backing):
        """Batch 4 is committed; attempt 2 at batch 5 under fence 2 has reverted attempt 1, and wrote a row."""
        rows = new_backing(PAGES)
        rows.admit(1, 4, 1)
        rows.under(1, 4, 1).multi_put([KEY], [Versioned(1, 4)])
        rows.publish(4)
        rows.admit(2, 5, 1)
        rows.under(2, 5, 1).multi_put([KEY], [Versioned(7, 5, 1, 4)])
        rows.admit(2, 5, 2)
        rows.under(2, 5, 2).revert(5)
        rows.under(2, 5, 2).multi_put([KEY], [Versioned(7, 5, 1, 4)])
        return rows

    def test_a_new_state_is_empty(self, new_backing):
        assert new_backing(PAGES).status() == (0, 0, True, False, 0)

    def test_the_status_gives_the_published_and_the_admitted_batch(self, guarded):
        assert guarded.status() == (4, 5, False, False, 0)

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    @pytest.mark.parametrize("attempt", OLDER, ids=["fence", "txid", "attempt"])
    def test_an_older_fence_batch_or_attempt_may_not_write(self, guarded, attempt, write):
        before = list(guarded.scan())

        with pytest.raises(FencedError):
            write(guarded.under(*attempt))

        assert list(guarded.scan()) == before
        assert guarded.status() == (4, 5, False, False, 0)

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    def test_the_admitted_attempt_writes(self, guarded, write):
        before = list(guarded.scan()), guarded.status()

        write(guarded.under(2, 5, 2))

        assert (list(guarded.scan()), guarded.status()) != before

    @pytest.mark.parametrize("attempt", OLDER, ids=["fence", "txid", "attempt"])
    def test_an_older_attempt_is_not_admitted(self, guarded, attempt):
        with pytest.raises(FencedError):
            guarded.admit(*attempt)

        guarded.under(2, 5, 2).multi_put([KEY], [Versioned(7, 5)])

    @pytest.mark.parametrize("attempt", [(2, 5, 2), (2, 5, 3), (2, 6, 1), (3, 1, 1), (10, 5, 2)])
    def test_the_same_or_a_later_attempt_is_admitted(self, guarded, attempt):
        guarded.admit(*attempt)

        guarded.under(*attempt).revert(attempt[1])
        guarded.under(*attempt).multi_remove([KEY])

        assert list(guarded.scan()) == []

    @pytest.mark.parametrize("write", [*WRITES.values(), lambda rows: rows.check(5, None)], ids=[*WRITES, "check"])
    def test_a_retry_writes_checks_and_publishes_only_once_its_revert_has_ended(self, guarded, write):
        guarded.admit(2, 5, 3)
        own, before = guarded.under(2, 5, 3), guarded.status()
        assert not guarded.record(5).is_reverted

        if write is not WRITES["revert"]:
            with pytest.raises(
                LostWritesError, match=r"attempt 3 at batch 5 .* has not reverted the attempts before it"
            ):
                write(own)
        assert guarded.status() == before
        own.revert(5)

        assert guarded.record(5).is_reverted
        write(own)

    def test_where_nothing_is_admitted_no_attempt_writes(self, new_backing):
        with pytest.raises(LostWritesError, match="no attempt is admitted: the store has gone back"):
            new_backing(PAGES).under(2, 5, 2).multi_put([KEY], [Versioned(7, 5)])

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    def test_an_attempt_that_the_store_has_forgotten_is_to_be_tried_again(self, guarded, write):
        with pytest.raises(LostWritesError) as caught:
            write(guarded.under(2, 5, 3))

        assert caught.value.retryable
        assert "attempt 2 at batch 5 under fence 2 is admitted: the store has gone back" in str(caught.value)

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    def test_equal_numbers_of_another_acquisition_do_not_write(self, guarded, write):
        before = list(guarded.scan())

        with pytest.raises(FencedError, match="is admitted by another acquisition of the same fence"):
            write(guarded.under(2, 5, 2, "other token"))

        assert list(guarded.scan()) == before

    def test_a_later_attempt_of_another_acquisition_of_the_same_fence_is_not_admitted(self, guarded):
        with pytest.raises(FencedError):
            guarded.admit(2, 6, 1, "other token")

    @pytest.mark.parametrize("attempt", [(2, 5, 3), (9, 9, 1)])
    def test_an_attempt_of_another_epoch_is_not_admitted_whatever_its_numbers(self, guarded, attempt):
        with pytest.raises(FencedError, match="is admitted of epoch '', and this is epoch 'other'"):
            guarded.admit(*attempt, "token", "other")

    @pytest.mark.parametrize("fence", [1, 2, 3])
    def test_a_driver_that_starts_takes_over_from_another_epoch_whatever_its_fence(self, guarded, fence):
        guarded.admit(fence, 4, 0, "token", "other")

        with pytest.raises(FencedError):
            guarded.under(2, 5, 2).multi_put([KEY], [Versioned(8, 5, 1, 4)])
        guarded.admit(fence, 5, 1, "token", "other")
        guarded.under(fence, 5, 1, "token", "other").multi_put([KEY], [Versioned(8, 5, 1, 4)])

    def test_a_driver_that_starts_under_an_older_fence_of_the_epoch_is_not_admitted(self, guarded):
        with pytest.raises(FencedError):
            guarded.admit(1, 9, 0)

    def test_a_driver_that_starts_reverts_what_follows_its_batch(self, guarded):
        guarded.admit(3, 4, 0)

        guarded.under(3, 4, 0).revert(5)

        assert list(guarded.scan()) == [(KEY, Versioned(1, 4))]

    def test_an_older_batch_does_not_take_the_published_one_back(self, guarded):
        guarded.publish(3)

        assert guarded.status().published == 4

    def test_the_record_names_the_attempt_of_each_batch_and_counts_its_keys_once(self, guarded):
        again = guarded.under(2, 5, 2)
        again.multi_put([KEY, ("b",)], [Versioned(7, 5, 1, 4), Versioned(7, 5)])
        again.multi_put([KEY], [Versioned(8, 5, 1, 4)])

        assert [guarded.record(txid)[:2] for txid in (4, 5, 6)] == [(" 1", 1), (" 2", 2), ("", 0)]

    def test_a_batch_is_checked_and_published_with_the_keys_that_it_wrote_and_with_no_others(self, guarded):
        own = guarded.under(2, 5, 2)
        for keys in (0, 2):
            with pytest.raises(LostWritesError):
                own.check(5, keys)
            with pytest.raises(LostBatchesError):
                own.publish(5, keys)
        assert guarded.status().published == 4

        own.check(5, 1)
        own.publish(5, 1)

        assert guarded.status().published == 5

    def test_a_reverted_batch_has_no_keys(self, guarded):
        guarded.under(2, 5, 2).revert(5)

        guarded.under(2, 5, 2).check(5, 0)

    def test_a_batch_that_has_written_is_known_after_its_revert(self, guarded):
        guarded.under(2, 5, 2).revert(5)
        guarded.admit(2, 6, 1)

        assert [guarded.record(txid).has_written for txid in (5, 6)] == [True, False]

    @pytest.mark.parametrize("overtake", OVERTAKES)
    @pytest.mark.parametrize("read", [0, 1])
    def test_a_scan_that_is_overtaken_shows_its_batch_or_is_refused(self, new_backing, new_upkeep, overtake, read):
        rows = new_backing(PAGES)
        put(rows, 1)
        rows.publish(1)
        batch, scan = rows.scan_committed()
        seen = [next(scan) for _ in range(read)]

        overtake(rows, new_upkeep(rows.spec))

        with suppress(MovedOnError):
            seen += scan
            assert (batch.txid, [(key, row.value) for key, row in seen]) == (1, [(key, 1) for key in MANY])

    def test_a_ttl_ends_by_the_clock_that_is_given(self, new_backing):
        rows, at = new_backing(replace(PAGES, ttl=timedelta(seconds=30))), datetime(2020, 1, 1, tzinfo=UTC)
        rows.multi_put([KEY], [Versioned(7, 1, at=at)])
        rows.publish(1)

        found = [
            rows.multi_get_committed([KEY], clock=clock)[1][0].status
            for clock in (at + timedelta(seconds=29), at + timedelta(seconds=30), None)
        ]

        assert found == ["found", "expired", "expired"]

    @pytest.mark.parametrize("overtake", OVERTAKES)
    def test_a_scan_that_begins_afterwards_reads_to_its_end(self, new_backing, new_upkeep, overtake):
        rows = new_backing(PAGES)
        put(rows, 1)
        rows.publish(1)
        overtake(rows, new_upkeep(rows.spec))

        batch, scan = rows.scan_committed()

        assert {row.status for _, row in scan} <= {"found"}
        assert batch.txid == rows.status().published > 1

    def test_while_a_state_is_rebuilt_nobody_reads_or_writes_it(self, guarded):
        guarded.begin_rebuild()

        assert guarded.status().is_rebuilding
        assert list(guarded.scan()) == []
        for read in (lambda: guarded.multi_get_committed([KEY]), lambda: guarded.scan_committed()):
            with pytest.raises(RebuildingError):
                read()
        with pytest.raises(LostWritesError):
            guarded.under(2, 5, 2).multi_put([KEY], [Versioned(8, 5, 1, 4)])

    def test_a_rebuild_ends_when_its_batch_is_published(self, guarded):
        guarded.begin_rebuild()
        guarded.multi_put([KEY], [Versioned(3, 4)])
        guarded.begin_rebuild()
        guarded.multi_put([KEY], [Versioned(1, 4)])

        guarded.publish(4)

        batch, (row,) = guarded.multi_get_committed([KEY])
        assert (batch.txid, row.value) == (4, 1)
        assert (guarded.status().is_rebuilding, guarded.record(5)[:2]) == (False, ("", 0))
