"""Values that a measure cannot take: dead letters that name measure and value, while the pipeline goes on."""

import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.errors import PythonException

from tests.pipelines.fault_injection import InjectedFault
from tests.recovery_page import message_of
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import BadInputError, PipelineError, failure_reason
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import (
    BatchLedger,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    RetractableMax,
    RetractableMin,
    RowCount,
    StateSpec,
    Sum,
    Variance,
)

pytestmark = pytest.mark.spark

SCHEMA = "shop string, x double, n bigint, price decimal(38,12), text string"


def spec(**measures):
    return StateSpec("shops", key={"shop": "text"}, measures={"events": Count(), **measures})


def feed(workspace, state, *batches, schema=SCHEMA, where="true", **options):
    events = Stream.read(JsonFiles(workspace.input, schema=schema, files_per_batch=1, **options)).where(where)
    for batch in batches:
        workspace.land(f"{len(list(workspace.input.iterdir()))}.json", *batch)
    grouped = events.group_by(*state.key) if state.key else events
    return workspace.run(Pipeline("p", [grouped.persistent_aggregate(state)]))


def letters(workspace):
    found = workspace.rows("SELECT txid, line, reason FROM tidegauge.dead_letter ORDER BY txid, line")
    return [(txid, json.loads(line), reason) for txid, line, reason in found]


def test_a_sum_that_overflows_across_batches_is_a_dead_letter_and_the_pipeline_goes_on(workspace):
    state = spec(total=Sum("n", type="bigint"))
    feed(workspace, state, [{"shop": "a", "n": 2**63 - 1}, {"shop": "b", "n": 1}])

    assert feed(workspace, state, [{"shop": "a", "n": 1}, {"shop": "b", "n": 1}], [{"shop": "a", "n": -1}]) == [
        (2, 1),
        (3, 1),
    ]

    assert workspace.values("shops") == {"a": {"events": 2, "total": 2**63 - 2}, "b": {"events": 2, "total": 2}}
    assert letters(workspace) == [
        (
            2,
            {"shop": "a", "events": 1, "total": 1},
            "measure total: 9223372036854775807 joined with 1 is out of the range of bigint; "
            "the key keeps the value from before the batch",
        )
    ]
    assert workspace.rows("SELECT dead_letters FROM tidegauge.batch ORDER BY txid") == [(0,), (1,), (0,)]


def test_a_total_that_overflows_within_a_batch_is_a_dead_letter(workspace):
    state = spec(total=Sum("n", type="bigint"), large=Sum("x", "double precision"))

    feed(
        workspace,
        state,
        [
            *({"shop": "a", "n": 2**63 - 1} for _ in range(2)),
            *({"shop": "b", "n": 1, "x": 1.7e308} for _ in range(2)),
            {"shop": "c", "n": 3},
        ],
    )

    assert workspace.values("shops") == {"c": {"events": 1, "total": 3, "large": 0.0}}
    found = [(line["shop"], reason) for _, line, reason in letters(workspace)]
    assert found == [
        ("a", "measure total: the total of this batch alone is out of range"),
        ("b", "measure large: the total of this batch alone is out of range"),
    ]
    assert re.search(message_of("Values that cannot be counted", 4), found[0][1])


def test_money_with_more_places_than_a_sum_keeps_is_a_dead_letter(workspace):
    state = spec(total=Sum("price", type="numeric"), fine=Sum("price", type="numeric(38, 12)"))

    feed(workspace, state, [{"shop": "a", "price": 0.000000001}, {"shop": "a", "price": 0.0000000001}])

    assert workspace.rows("SELECT shop, total, fine FROM tidegauge_live.shops") == [
        ("a", Decimal("1E-9"), Decimal("1E-9"))
    ]
    [(*_, reason)] = letters(workspace)
    assert re.search(message_of("Values that cannot be counted", 2), reason)


def test_a_sum_without_a_type_is_exact_over_decimals_and_whole_numbers(workspace):
    tenths = [[{"shop": "a", "price": 0.1, "n": 2**62}] for _ in range(3)]

    feed(workspace, spec(total=Sum("price"), n=Sum("n")), *tenths, schema="shop string, price decimal(12, 2), n bigint")

    assert workspace.rows("SELECT total, n FROM tidegauge_live.shops") == [(Decimal("0.3"), Decimal(3 * 2**62))]


DOUBLES = "may not hold; give it one:"
WITHOUT_TYPE = [
    (
        Sum("x"),
        "is a double, whose totals are rounded; declare the column as a decimal, which is exact, or ask for doubles: "
        "Sum('x', type='double precision')",
    ),
    (
        Sum("price"),
        "is decimal(38,12), which has more digits than numeric keeps; give the digits: "
        "Sum('price', type='numeric(38, 12)')",
    ),
    (Sum("text"), "is string; declare it as a number, or convert it in each()"),
    (Mean("text"), "is string; declare it as a number, or convert it in each()"),
    (Last("text", by="at"), f"is string, whose values double precision {DOUBLES} Last('text', by='at', type='text')"),
    (First("n", by="at"), f"is bigint, whose values double precision {DOUBLES} First('n', by='at', type='bigint')"),
    (
        RetractableMin("price"),
        f"is decimal(38,12), whose values double precision {DOUBLES} RetractableMin('price', type='numeric(38, 12)')",
    ),
    (Max("at"), f"is timestamp, whose values double precision {DOUBLES} Max('at', type='timestamptz')"),
    (Min("day"), "is date, whose values double precision may not hold; convert it in each() and give a type"),
]


@pytest.mark.parametrize(("measure", "message"), WITHOUT_TYPE, ids=lambda value: type(value).__name__)
def test_a_measure_without_a_type_over_what_it_may_not_hold_is_refused_before_the_first_batch(
    workspace, measure, message
):
    schema = f"{SCHEMA}, at timestamp, day date"

    with pytest.raises(PipelineError) as refused:
        feed(workspace, spec(m=measure), [{"shop": "a"}], schema=schema)

    assert str(refused.value) == f"state 'shops': measure 'm' has no type, and column {measure.column!r} {message}"
    assert workspace.rows("SELECT count(*) FROM tidegauge.state") == [(0,)]


def test_a_measure_without_a_type_takes_numbers_that_a_double_holds(workspace):
    measures = {"most": Max("x"), "least": Min("i"), "last": Last("f", by="at"), "mean": Mean("n")}
    event = {"shop": "a", "x": 1.5, "i": 2**31 - 1, "f": 0.5, "n": 3, "at": "2026-01-01T00:00:00Z"}

    feed(workspace, spec(**measures), [event], schema="shop string, x double, i int, f float, n bigint, at timestamp")

    assert workspace.values("shops") == {"a": {"events": 1, "most": 1.5, "least": 2**31 - 1, "last": 0.5, "mean": 3}}


def test_twelve_places_are_exact_where_they_are_declared(workspace):
    state = spec(total=Sum("price", type="numeric(38, 12)"))

    feed(workspace, state, *[[{"shop": "a", "price": 0.000000000001}] for _ in range(2)])

    assert workspace.rows("SELECT total FROM tidegauge_live.shops") == [(Decimal("2E-12"),)]
    assert letters(workspace) == []


# Of each measure: its column's type, what it cannot take, and what the dead letter says; None: it takes the value.
TAKEN = [
    (Sum("x0", type="bigint"), "double", None, None),
    (Sum("x1", type="bigint"), "double", 1.5, "x1 does not fit bigint: 1.5"),
    (Sum("x2", type="numeric"), "double", 1e-10, "x2 does not fit numeric: 1.0E-10"),
    (Sum("x3", type="numeric"), "double", 1e30, "x3 does not fit numeric: 1.0E30"),
    (Sum("x4", type="numeric"), "string", "0.1234567891", "x4 does not fit numeric: 0.12"),
    (Sum("x5", "double precision"), "string", "many", "x5 does not fit double precision: many"),
    (Sum("x6", "double precision"), "double", "NaN", "x6 does not fit double precision: NaN"),
    (Mean("x7"), "double", "-Infinity", "x7 does not fit double precision: -Infinity"),
    (Variance("x8"), "double", 1e141, "x8 does not fit double precision: 1.0E141"),
    (Quantiles("x9"), "double", "NaN", "x9 does not fit double precision: NaN"),
    (Quantiles("x10"), "double", "Infinity", None),
    (Max("x11"), "double", "NaN", None),
    (Max("x12", type="text"), "string", "a\0b", "x12 does not fit text: a\ufffdb"),
    (Max("x13", type="timestamptz"), "string", "soon", "x13 does not fit timestamptz: soon"),
]


def test_an_event_that_a_measure_cannot_take_is_left_out_of_the_state_and_named(workspace):
    state = spec(**{f"m{n}": measure for n, (measure, *_) in enumerate(TAKEN)})
    columns = "".join(f", x{n} {kind}" for n, (_, kind, *_) in enumerate(TAKEN))
    events = [{"shop": f"{n}", f"x{n}": value} for n, (_, _, value, _) in enumerate(TAKEN)]

    feed(workspace, state, [*events, *({"shop": event["shop"]} for event in events)], schema=f"shop string{columns}")

    stored = {int(shop): value["events"] for shop, value in workspace.values("shops").items()}
    assert stored == {n: 2 if reason is None else 1 for n, (*_, reason) in enumerate(TAKEN)}
    found = {int(line["shop"]): reason for _, line, reason in letters(workspace)}
    expected = {n: f"measure m{n}: {reason}" for n, (*_, reason) in enumerate(TAKEN) if reason is not None}
    assert found.keys() == expected.keys()
    assert all(found[n].startswith(reason) for n, reason in expected.items())


class TestTooManyRejections:
    """A state that rejects most of its events is declared wrongly, so its batch is not committed."""

    WRONG = tuple({"shop": "a", "x": "NaN", "n": 1} for _ in range(11))

    def test_a_state_that_rejects_most_of_its_events_stops_the_pipeline(self, workspace):
        with pytest.raises(BadInputError) as refused:
            feed(workspace, spec(m=Mean("x")), [*self.WRONG, {"shop": "b", "x": 1}])
        stopped = workspace.values("shops"), letters(workspace)

        assert feed(workspace, spec(m=Mean("x")), max_bad_share=0.95) == [(1, 2)]

        assert str(refused.value) == (
            "pipeline 'p': state 'shops' rejects 11 of 12 events of batch 1, more than the allowed share of 0.5; the "
            "first: measure m: x does not fit double precision: NaN; correct the declaration or the input, leave such "
            "events out with where(), or raise max_bad_share of the source"
        )
        assert stopped == ({}, [])
        assert workspace.values("shops") == {"b": {"events": 1, "m": 1.0}}
        assert len(letters(workspace)) == 11

    def test_groups_that_cannot_be_stored_are_among_them(self, workspace):
        groups = [{"shop": f"{n}" * 3000} for n in range(11)]

        with pytest.raises(BadInputError, match=r"rejects 11 of 12 events .* the first: the key's text is over the"):
            feed(workspace, spec(), [*groups, {"shop": "b"}])

    def test_the_share_is_of_the_events_that_the_state_is_given(self, workspace):
        others = [{"shop": "b", "x": 1, "n": n % 2} for n in range(24)]

        with pytest.raises(BadInputError, match="rejects 11 of 11 events"):
            feed(workspace, spec(m=Mean("x")), [*self.WRONG, *others], where="shop = 'a'")

        assert feed(workspace, spec(m=Mean("x"))) == [(1, 2)]
        assert workspace.values("shops") == {"b": {"events": 24, "m": 1.0}}

    def test_what_could_not_be_reverted_is_committed(self, workspace):
        state = replace(spec(m=Mean("x")), kind="transactional")

        assert feed(workspace, state, self.WRONG) == [(1, 1)]
        assert len(letters(workspace)) == 11


def test_a_key_whose_events_are_all_misfits_is_not_written(workspace):
    feed(workspace, spec(m=Mean("x")), [{"shop": "a", "x": "NaN"}, {"shop": "b", "x": 1.0}])

    assert workspace.values("shops") == {"b": {"events": 1, "m": 1.0}}
    assert workspace.rows("SELECT keys_written, dead_letters FROM tidegauge.batch") == [({"shops": 1}, 1)]


def test_a_state_without_a_key_leaves_misfits_out(workspace):
    state = StateSpec("shops", measures={"events": Count(), "m": Mean("x")})

    feed(workspace, state, [{"x": "NaN"}, {"x": 1.0}, {"x": 3.0}])

    assert workspace.values("shops") == {(): {"events": 2, "m": 2.0}}


class TestRowsThatAreTakenAway:
    """What is left out of a changing table's totals is never taken away from them."""

    def table(self, workspace, **measures):
        state = StateSpec("shops", key={"shop": "text"}, measures={"rows": RowCount(), **measures})
        rows = Stream.read(JsonFiles(workspace.input, schema=f"{SCHEMA}, sign int", files_per_batch=1))
        return Pipeline("p", [rows.retract("sign").group_by("shop").persistent_aggregate(state)])

    def test_a_total_out_of_range_stops_the_pipeline_until_its_type_is_wider(self, workspace):
        narrow = self.table(workspace, total=Sum("n", type="bigint"))
        large, small = {"shop": "a", "n": 2**63 - 1, "sign": 1}, {"shop": "a", "n": 1, "sign": 1}
        workspace.land("1.json", large)
        workspace.run(narrow)
        workspace.land("2.json", small)

        with pytest.raises(PythonException) as refused:
            workspace.run(narrow)
        stopped = workspace.values("shops"), letters(workspace)
        wide = self.table(workspace, total=Sum("n", type="numeric"))
        assert Reprocess(wide, workspace.spark, workspace.dsn, workspace.checkpoint).run()
        workspace.land("3.json", large | {"sign": -1})
        workspace.run(wide)

        assert re.search(message_of("Values that cannot be counted", 5), failure_reason(refused.value))
        assert stopped == ({"a": {"rows": 1, "total": 2**63 - 1}}, [])
        assert workspace.values("shops") == {"a": {"rows": 1, "total": 1}}

    def test_a_total_that_a_batch_alone_brings_out_of_range_stops_it_too(self, workspace):
        workspace.land("1.json", *({"shop": "a", "n": 2**63 - 1, "sign": 1} for _ in range(2)))

        with pytest.raises(PythonException, match="measure total: the total of this batch alone is out of range, for"):
            workspace.run(self.table(workspace, total=Sum("n", type="bigint")))

    def test_a_value_that_a_measure_cannot_take_is_left_out_both_times(self, workspace):
        fine, rough = {"shop": "a", "price": 1, "sign": 1}, {"shop": "a", "price": 0.0000000001, "sign": 1}
        table = self.table(workspace, total=Sum("price", type="numeric"), high=RetractableMax("x"))
        workspace.land("1.json", fine | {"x": 2}, rough, fine | {"x": "Infinity"})
        workspace.run(table)
        workspace.land("2.json", rough | {"sign": -1}, fine | {"x": "Infinity", "sign": -1})

        workspace.run(table)

        assert workspace.values("shops") == {"a": {"rows": 1, "total": 1, "high": 2}}
        assert [txid for txid, *_ in letters(workspace)] == [1, 2]


def test_a_batch_that_comes_again_has_its_letters_once(workspace, monkeypatch):
    state = spec(m=Mean("x"), total=Sum("n", type="bigint"))
    feed(workspace, state, [{"shop": "a", "n": 2**63 - 1}])
    commit, fault = BatchLedger.commit, ["before the commit"]

    def fail_once(ledger, *arguments, **figures):
        if fault:
            raise InjectedFault(fault.pop())
        commit(ledger, *arguments, **figures)

    monkeypatch.setattr(BatchLedger, "commit", fail_once)
    with pytest.raises(InjectedFault):
        feed(workspace, state, [{"shop": "a", "n": 1}, {"shop": "b", "x": "NaN"}])
    of_first_attempt = letters(workspace)

    assert feed(workspace, state) == [(2, 2)]

    assert len(of_first_attempt) == 2
    assert letters(workspace) == of_first_attempt
