"""Distinct: a key's first tuple, once, across batches and attempts."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.counts import Distinct
from state_backends import MemoryBackingMap, OpaqueMap, StateSpec
from tests.pipelines.operators.event_strategies import batched
from tests.pipelines.operators.updater_harness import START, Emitted, OneReadOneWrite

SEEN = StateSpec("seen", key={"id": "text"}, value="jsonb")

events = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)).map(lambda pair: [*pair]), max_size=25)


@given(events.flatmap(batched))
def test_the_first_of_each_key_comes_out_in_its_batch_and_no_other_whatever_fails_meanwhile(drawn):
    counts = OpaqueMap(MemoryBackingMap(SEEN))
    expected, found = {}, []

    def attempt(txid, rows):
        collector = Emitted()
        tuples = [{"id": key, "payload": f"{txid} {key}{number}"} for key, number in sorted(rows)]
        counts.begin_commit(txid, at=START)
        Distinct(("id",)).update_state(OneReadOneWrite(counts, None), tuples, collector)
        counts.commit(txid)
        return [payload for (payload,) in collector.tuples]

    for txid, (rows, failed) in enumerate(drawn, 1):
        if failed is not None:
            attempt(txid, failed)
            counts.rollback(txid)
        found += attempt(txid, rows)
        for key, number in sorted(rows):
            expected.setdefault(key, f"{txid} {key}{number}")

    assert sorted(found) == sorted(expected.values())
