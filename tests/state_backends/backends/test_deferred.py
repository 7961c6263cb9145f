"""DeferredMap: what is put is read back, and others see it once, as it came out."""

import pytest

from tidegauge.state_backends import Count, MemoryBackingMap, Replace, StateSpec, TransactionalMap, Versioned
from tidegauge.state_backends.backends.wrappers import DeferredMap
from tidegauge.state_backends.errors import DuplicateKeyError, KeyShapeError, StaleBatchError

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})


@pytest.fixture
def inner():
    inner = MemoryBackingMap(VIEWS)
    inner.multi_put([("home",)], [Versioned({"n": 1}, 1)])
    return inner


def test_what_is_put_is_read_back_and_not_seen_by_others_before_it_is_stored(inner):
    deferred = DeferredMap(inner)
    deferred.multi_put([("home",), ("cart",)], [Versioned({"n": 2}, 2), Versioned({"n": 9}, 2)])

    own = deferred.multi_get([("cart",), ("home",), ("nowhere",), ("cart",)])
    before = inner.multi_get([("home",), ("cart",)])
    deferred.store()

    assert own == [Versioned({"n": 9}, 2), Versioned({"n": 2}, 2), None, Versioned({"n": 9}, 2)]
    assert before == [Versioned({"n": 1}, 1), None]
    assert inner.multi_get([("home",), ("cart",)]) == [Versioned({"n": 2}, 2), Versioned({"n": 9}, 2)]


def test_a_row_that_is_put_again_and_again_is_stored_once_as_it_came_out(inner, monkeypatch):
    deferred, stored = DeferredMap(inner), []
    put = inner.multi_put
    monkeypatch.setattr(inner, "multi_put", lambda keys, rows: stored.append(rows) or put(keys, rows))
    counts = TransactionalMap(deferred, atomic=True)
    counts.begin_commit(2)
    for n in range(3):
        counts.multi_update([("cart",)], [Replace({"n": n})])

    deferred.store()
    deferred.store()

    assert stored == [[Versioned({"n": 2}, 2)]]


def test_what_is_wrong_with_a_key_is_said_at_once_and_a_stale_row_when_it_is_stored(inner):
    deferred = DeferredMap(inner)
    with pytest.raises(KeyShapeError):
        deferred.multi_put([(3,)], [Versioned({"n": 1}, 2)])
    with pytest.raises(DuplicateKeyError):
        deferred.multi_put([("a",), ("a",)], [Versioned({"n": 1}, 2)] * 2)

    deferred.multi_put([("home",)], [Versioned({"n": 5}, 0)])
    with pytest.raises(StaleBatchError):
        deferred.store()


def test_removals_and_reverts_take_back_what_is_held(inner):
    deferred = DeferredMap(inner)
    deferred.multi_put([("a",), ("b",)], [Versioned({"n": 1}, 2)] * 2)
    deferred.multi_remove([("a",), ("home",)])

    assert [key for key, _ in deferred.scan()] == [("b",)]
    deferred.multi_put([("c",)], [Versioned({"n": 1}, 2)])
    deferred.revert(2)
    assert deferred.multi_get([("c",), ("b",)]) == [None, None]
