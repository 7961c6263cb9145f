"""What is put through a LoggedMap is in the changelog too, whichever of the two stores a crash comes between.

That it is a backing map like any other is the contract's business, by its lines in the list of backends.
"""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.state_backends.all_types_measure import Wide
from tidegauge.state_backends import Changelog, Combine, MemoryBackingMap, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.wrappers import CachedMap, LoggedMap
from tidegauge.state_backends.errors import DuplicateKeyError, SpecError, StaleBatchError, ValueShapeError
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.spec.table import StateTable

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
TEXTS = StateSpec("texts", key={"page": "text"}, value="jsonb", changelog=True)


class Crash(Exception):
    """The process dies here."""


class Dying:
    """Wraps a map or a log, and dies before or after one of its calls, once."""

    def __init__(self, inner, call, *, after):
        self._inner, self._call, self._after = inner, call, after

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        if name != self._call:
            return call
        self._call = None

        def die(*arguments):
            if self._after:
                call(*arguments)
            raise Crash

        return die


@pytest.fixture
def new_log(conn, fresh):
    def new_log(spec):
        spec = fresh(spec)
        tables.create(conn, StateTable(spec))
        return Changelog(conn, spec)

    return new_log


@pytest.fixture
def log(new_log):
    return new_log(TEXTS)


@pytest.fixture(params=["postgres", "memory"])
def logged(request, log, conn):
    """A logged map over rows that are in the log's own store, or in another."""
    return LoggedMap(
        PostgresBackingMap(conn, log.spec) if request.param == "postgres" else MemoryBackingMap(log.spec), log
    )


def entries(log, *key):
    return [(change.txid, change.value and change.value["value"]) for change in log.history(key, upto=1_000)]


def test_every_version_that_is_put_is_an_entry(logged, log):
    logged.multi_put([("a",), ("b",)], [Versioned(1, 1, at=NOON), Versioned({"x": [None]}, 1)])
    logged.multi_put([("a",)], [Versioned(2, 2, 1, 1)])
    logged.multi_put([("b",)], [Versioned(None, 2, {"x": [None]}, 1)])

    assert (entries(log, "a"), entries(log, "b")) == ([(2, 2), (1, 1)], [(2, None), (1, {"x": [None]})])
    assert log.history(("a",), upto=1)[0].batch_time == NOON


def test_a_row_without_a_time_gets_the_same_one_in_both(logged, log):
    logged.multi_put([("a",)], [Versioned(1, 1)])

    (row,) = logged.multi_get([("a",)])
    assert row.at == log.history(("a",), upto=1)[0].batch_time


def test_stored_columns_of_every_type_come_back_as_they_were(new_log, conn):
    log = new_log(StateSpec("typed", measures={"w": Wide()}, changelog=True))
    logged = LoggedMap(PostgresBackingMap(conn, log.spec), log)
    stored = {
        "w": b"\0\\x\n\t\xff",
        "w_parts": {"a": ["\\", '"', None, 1.5]},
        "w_amount": Decimal("12345678901234567890.000000001"),
        "w_text": "\\N\tpáge\n",
        "w_at": NOON,
        "w_mean": float("-inf"),
        "w_on": False,
    }
    nothing = dict.fromkeys(stored)

    logged.multi_put([()], [Versioned(stored, 1)])
    logged.multi_put([()], [Versioned(nothing, 2, stored, 1)])

    assert [change.value for change in log.history((), upto=2)] == [nothing, stored]


def test_a_removed_row_leaves_a_tombstone_in_place_of_its_last_version(logged, log):
    logged.multi_put([("a",)], [Versioned(1, 1)])
    logged.multi_put([("a",)], [Versioned(2, 2, 1, 1)])

    logged.multi_remove([("a",), ("absent",)])

    assert entries(log, "a") == [(2, None), (1, 1)]
    assert entries(log, "absent") == []


def test_a_revert_takes_rows_and_entries_back(logged, log):
    logged.multi_put([("a",), ("b",)], [Versioned(1, 1), Versioned(1, 1)])
    logged.multi_put([("a",), ("new",)], [Versioned(2, 2, 1, 1), Versioned(2, 2)])

    assert logged.revert(2) == 2

    assert dict(logged.scan()) == {("a",): Versioned(1, 1), ("b",): Versioned(1, 1)}
    assert (entries(log, "a"), entries(log, "new")) == ([(1, 1)], [])


@pytest.mark.parametrize(
    ("keys", "rows", "error"),
    [
        ([("b",), ("b",)], [Versioned(1, 8), Versioned(2, 8)], DuplicateKeyError),
        ([("b",), ("c",)], [Versioned(1, 8), Versioned(float("nan"), 8)], ValueShapeError),
        ([("b",), ("a",)], [Versioned(1, 6), Versioned(1, 6)], StaleBatchError),
        ([("b",), ("a",)], [Versioned(1, 8)], ValueError),
    ],
)
def test_a_put_that_is_refused_is_logged_no_more_than_it_is_stored(logged, log, keys, rows, error):
    logged.multi_put([("a",)], [Versioned(7, 7)])

    with pytest.raises(error):
        logged.multi_put(keys, rows)

    assert dict(logged.scan()) == {("a",): Versioned(7, 7)}
    assert (entries(log, "a"), entries(log, "b"), entries(log, "c")) == ([(7, 7)], [], [])


def test_a_state_without_txids_is_refused(log):
    with pytest.raises(SpecError) as caught:
        LoggedMap(MemoryBackingMap(StateSpec("plain", value="jsonb", kind="non_transactional")), log)

    assert str(caught.value) == "state 'plain': a changelog needs txids; choose kind opaque or transactional"


class TestOneStore:
    """Rows and entries in PostgreSQL, on one connection: one transaction."""

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("where", ["log", "rows"])
    def test_they_land_together_or_not_at_all(self, log, conn, where, after):
        rows = PostgresBackingMap(conn, log.spec)
        logged = LoggedMap(rows, Dying(log, "append_rows", after=after) if where == "log" else log)
        if where == "rows":
            rows.multi_put = Dying(rows, "multi_put", after=after).multi_put

        with pytest.raises(Crash):
            logged.multi_put([("a",)], [Versioned(1, 1)])

        assert list(logged.scan()) == []
        assert entries(log, "a") == []

    def test_a_removal_and_a_revert_are_whole_too(self, log, conn):
        rows = PostgresBackingMap(conn, log.spec)
        logged = LoggedMap(rows, log)
        logged.multi_put([("a",)], [Versioned(1, 1)])

        for call, argument in (("multi_remove", [("a",)]), ("revert", 1)):
            whole, part = getattr(logged, call), Dying(rows, call, after=True)
            setattr(rows, call, getattr(part, call))
            with pytest.raises(Crash):
                whole(argument)
            delattr(rows, call)

        assert dict(logged.scan()) == {("a",): Versioned(1, 1)}
        assert entries(log, "a") == [(1, 1)]

    def test_the_callers_transaction_takes_both_back(self, logged, log, conn):
        with conn.transaction(force_rollback=True):
            logged.multi_put([("a",)], [Versioned(1, 1)])

        assert entries(log, "a") == []


class TestTwoStores:
    """A batch's task dies between the two stores, and runs again; with a revert before it, or as a mere retry."""

    @pytest.mark.parametrize("reverted", [False, True])
    @pytest.mark.parametrize("call", ["before the entry", "before the row", "after the row"])
    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_rows_and_entries_agree_once_the_batch_is_whole(self, new_log, kind, call, reverted):
        log = new_log(StateSpec("counts", key={"word": "text"}, value="jsonb", kind=kind, changelog=True))
        rows = MemoryBackingMap(log.spec)
        self.run(LoggedMap(rows, log), 1, "a", "b")
        dying = {
            "before the entry": lambda: LoggedMap(rows, Dying(log, "append_rows", after=False)),
            "before the row": lambda: LoggedMap(Dying(rows, "multi_put", after=False), log),
            "after the row": lambda: LoggedMap(Dying(rows, "multi_put", after=True), log),
        }[call]()
        with pytest.raises(Crash):
            self.run(dying, 2, "a", "new")

        again = LoggedMap(rows, log)
        if reverted:
            again.revert(2)
        self.run(again, 2, "a", "new")

        assert {key: row.value for key, row in rows.scan()} == {("a",): 2, ("b",): 1, ("new",): 1}
        assert [entries(log, word) for word in ("a", "b", "new")] == [[(2, 2), (1, 1)], [(1, 1)], [(2, 1)]]

    def run(self, backing, txid, *words):
        counts = MAPS[backing.spec.kind](backing)
        counts.begin_commit(txid)
        counts.multi_update([(word,) for word in words], [Combine(lambda stored, n: stored + n, 1)] * len(words))

    def test_a_cache_may_lie_between(self, log, conn):
        logged = LoggedMap(CachedMap(PostgresBackingMap(conn, log.spec)), log)

        logged.multi_put([("a",)], [Versioned(1, 1)])

        assert (logged.multi_get([("a",)]), entries(log, "a")) == ([Versioned(1, 1)], [(1, 1)])
