"""TopN equals sorting everything, and Distinct emits a key's first tuple once, in any run of batches and attempts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.operators.event_strategies import batched
from tests.pipelines.operators.updater_harness import START, Emitted, OneReadOneWrite, state_map
from tidegauge.pipelines.operators.counts import Distinct, TopN
from tidegauge.state_backends import MemoryBackingMap, OpaqueMap, StateSpec

TOP = StateSpec("top", key={"hour": "bigint"}, value="jsonb")
VIEWS = st.tuples(st.integers(0, 1), st.sampled_from("abcdefg"))
SEEN = StateSpec("seen", key={"id": "text"}, value="jsonb")

events = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)).map(lambda pair: [*pair]), max_size=25)


def changed(totals, batch):
    """What an aggregate emits: the new count of each key that the batch touched."""
    totals.update(batch)
    return [{"hour": hour, "page": page, "views": totals[hour, page]} for hour, page in dict.fromkeys(batch)]


@given(st.lists(st.lists(VIEWS, max_size=12), max_size=8), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_the_list_equals_sorting_everything_for_any_cut_of_a_batch_into_calls(batches, n, size, with_ties):
    totals, counts = Counter(), state_map(TOP)
    updater = TopN(key=("hour",), item="page", count="views", n=n, with_ties=with_ties)

    for txid, batch in enumerate(batches, 1):
        counts.begin_commit(txid)
        tuples = changed(totals, batch)
        for first in range(0, len(tuples), size):
            updater.update_state(counts, tuples[first : first + size], None)
        counts.commit(txid)

    ranked = sorted(totals.items(), key=lambda found: (-found[1], found[0][1]))
    for hour in (0, 1):
        all_of_hour = [{"page": page, "views": views} for (its_hour, page), views in ranked if its_hour == hour]
        least = all_of_hour[:n][-1]["views"] if all_of_hour else 0
        wanted = [each for each in all_of_hour if each["views"] >= least] if with_ties else all_of_hour[:n]
        assert (counts.multi_get([(hour,)])[0] or []) == wanted


@given(events.flatmap(batched))
def test_only_the_first_tuple_of_each_key_is_emitted_also_after_failures(drawn):
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
