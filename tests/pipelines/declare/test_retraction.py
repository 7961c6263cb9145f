"""Which pipelines may take rows away again: decided where they are declared."""

from datetime import timedelta

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.retraction import check_totals
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.state_backends import (
    Count,
    DistinctCount,
    DistinctSet,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Quantiles,
    Reducer,
    RetractableMax,
    RetractableMin,
    RowCount,
    StateSpec,
    StdDev,
    Sum,
    TopK,
    Variance,
)
from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.errors import SpecError

EXACT = [Count(), Count("x > 1"), Sum("x", type="numeric"), Sum("x", type="bigint"), Mean("x", type="numeric"),
         Mean("x", type="bigint"), RetractableMin("x"), RetractableMax("x", type="text")]  # fmt: skip
REFUSED = [
    Min("x"), Max("x"), Variance("x"), StdDev("x"), First("x", by="t"), Last("x", by="t"), Latest("x", by="t"),
    DistinctCount("x"), DistinctSet("x"), Quantiles("x"), TopK("x"),
]  # fmt: skip

CHANGES = Stream.read(Rate(1)).each(op="'insert'").retract("if(op = 'delete', -1, 1)")


def state(*measures, **options):
    named = {f"m{place}": measure for place, measure in enumerate(measures)}
    return StateSpec("orders", {"k": "text"}, {"rows": RowCount(), **named}, **options)


def declared(spec, stream=CHANGES):
    return Pipeline("orders", [stream.group_by("k").persistent_aggregate(spec)])


def test_every_aggregator_can_subtract_or_is_refused():
    assert {type(each).name for each in [*EXACT, *REFUSED, RowCount()]} == set(AGGREGATORS)


def test_a_state_of_measures_that_can_subtract_is_accepted():
    assert declared(state(*EXACT)).specs


@pytest.mark.parametrize("measure", REFUSED, ids=lambda measure: measure.name)
def test_a_measure_that_cannot_subtract_is_refused_by_name_with_a_way_out(measure):
    with pytest.raises(
        PipelineError, match=rf"measure 'm0': {type(measure).__name__} cannot take a value away again; \w"
    ):
        declared(state(measure))


@pytest.mark.parametrize("measure", [Sum("x", type="double precision"), Mean("x")])
def test_a_total_of_doubles_is_refused_as_it_is_rounded(measure):
    with pytest.raises(PipelineError, match=r"measure 'm0': .* a sum of doubles is rounded, .* type='numeric'\)"):
        declared(state(measure))


def test_a_reducer_of_ones_own_is_refused():
    class Longest(Reducer):
        name = "longest"

        def partial(self):
            return {"": "max(x)"}

        def reduce(self, left, right):
            return max(left, right)

        def arguments(self):
            return {}

    with pytest.raises(PipelineError, match="Longest cannot take a value away again; keep it in a state"):
        declared(state(Longest()))


def test_a_state_with_keys_needs_a_count_of_its_rows_and_one_without_does_not():
    with pytest.raises(PipelineError, match=r"would keep keys with no rows left; give it a RowCount\(\)"):
        declared(StateSpec("orders", {"k": "text"}, {"n": Count()}))
    assert Pipeline("orders", [CHANGES.persistent_aggregate(StateSpec("orders", measures={"n": Count()}))])


def test_rows_that_expire_are_refused():
    with pytest.raises(PipelineError, match="has a ttl of 1 day, 0:00:00, but no row"):
        declared(state(ttl=timedelta(days=1)))


def test_late_rows_must_not_be_dropped():
    for how in ({"drop_late": True}, {"allowed_lateness": "1 day"}):
        with pytest.raises(PipelineError, match=r"late tuples are left out, .* leave out drop_late and"):
            declared(state(), CHANGES.with_watermark("timestamp", "1 hour", **how))
    assert declared(state(), CHANGES.with_watermark("timestamp", "1 hour"))


def test_a_lookup_on_the_way_is_refused():
    known = StateSpec("known", {"k": "text"}, value="jsonb")
    with pytest.raises(PipelineError, match="when a row is taken away, a state_query gives it what it finds now"):
        declared(state(), CHANGES.state_query(known, ["k"], value="string"))


def test_verbs_and_merges_keep_that_rows_are_taken_away_and_the_new_values_of_a_state_do_not():
    further = CHANGES.where("x > 1").merge(Stream.read(Rate(1)))
    assert further.retracts
    assert not declared(state(), further).feeds[0].new_values_stream().retracts


def test_a_total_out_of_range_stops_a_state_from_which_rows_are_taken_away_and_a_key_that_cannot_be_stored_does_not():
    of_a_key = DeadLetter("state orders", '{"k": null}', "key column k is null")
    of_a_total = DeadLetter("state orders", '{"k": "a"}', "measure m0: 9 and 1 are out of range; the key keeps")
    check_totals(state(), [of_a_key])

    with pytest.raises(PipelineError) as refused:
        check_totals(state(), [of_a_key, of_a_total])

    assert str(refused.value) == (
        'state \'orders\': measure m0: 9 and 1 are out of range, for {"k": "a"}; the batch is not committed, '
        "because rows that are left out now would be taken away later; give the measure a wider type or leave such "
        "rows out with where(), and run with --reprocess"
    )


def test_a_state_counts_its_rows_once():
    with pytest.raises(SpecError, match="rows and m0 both count its rows; keep one"):
        state(RowCount())
