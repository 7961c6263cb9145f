"""What every store outside the ledger's transaction must do about two drivers: only the admitted attempt writes."""

import pytest

from state_backends import StateSpec, Versioned
from state_backends.errors import FencedError

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


class GuardedMapContract:
    @pytest.fixture
    def guarded(self, new_backing):
        """Batch 4 is committed; attempt 1 at batch 5 under fence 2 wrote a row, and attempt 2 is admitted."""
        rows = new_backing(PAGES)
        rows.admit(1, 4, 1)
        rows.under(1, 4, 1).multi_put([KEY], [Versioned(1, 4)])
        rows.publish(4)
        rows.admit(2, 5, 1)
        rows.under(2, 5, 1).multi_put([KEY], [Versioned(7, 5, 1, 4)])
        rows.admit(2, 5, 2)
        return rows

    def test_a_new_state_is_empty(self, new_backing):
        assert new_backing(PAGES).status() == (0, 0, True)

    def test_the_status_gives_the_published_and_the_admitted_batch(self, guarded):
        assert guarded.status() == (4, 5, False)

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    @pytest.mark.parametrize("attempt", OLDER, ids=["fence", "txid", "attempt"])
    def test_an_older_fence_batch_or_attempt_may_not_write(self, guarded, attempt, write):
        before = list(guarded.scan())

        with pytest.raises(FencedError):
            write(guarded.under(*attempt))

        assert list(guarded.scan()) == before
        assert guarded.status() == (4, 5, False)

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

        guarded.under(*attempt).multi_remove([KEY])

        assert list(guarded.scan()) == []

    def test_where_nothing_is_admitted_no_attempt_writes(self, new_backing):
        with pytest.raises(FencedError, match="none is admitted"):
            new_backing(PAGES).under(2, 5, 2).multi_put([KEY], [Versioned(7, 5)])

    def test_an_older_batch_does_not_take_the_published_one_back(self, guarded):
        guarded.publish(3)

        assert guarded.status().published == 4
