"""TopN against sorting everything, over any run of batches."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.counts import TopN
from state_backends import StateSpec
from tests.pipelines.operators.updater_harness import state_map

TOP = StateSpec("top", key={"hour": "bigint"}, value="jsonb")
VIEWS = st.tuples(st.integers(0, 1), st.sampled_from("abcdefg"))


def changed(totals, batch):
    """What an aggregate emits: the new count of each key that the batch touched."""
    totals.update(batch)
    return [{"hour": hour, "page": page, "views": totals[hour, page]} for hour, page in dict.fromkeys(batch)]


@given(st.lists(st.lists(VIEWS, max_size=12), max_size=8), st.integers(1, 4), st.integers(1, 5))
def test_the_list_is_what_sorting_everything_gives_however_a_batch_is_cut_into_calls(batches, n, size):
    totals, counts = Counter(), state_map(TOP)
    updater = TopN(key=("hour",), item="page", count="views", n=n)

    for txid, batch in enumerate(batches, 1):
        counts.begin_commit(txid)
        tuples = changed(totals, batch)
        for first in range(0, len(tuples), size):
            updater.update_state(counts, tuples[first : first + size], None)
        counts.commit(txid)

    ranked = sorted(totals.items(), key=lambda found: (-found[1], found[0][1]))
    for hour in (0, 1):
        wanted = [{"page": page, "views": views} for (its_hour, page), views in ranked if its_hour == hour][:n]
        assert (counts.multi_get([(hour,)])[0] or []) == wanted
