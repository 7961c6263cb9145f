"""combine: the values of many keys as one. Events spread over keys and combined say what they say under one key."""

import json
import math
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.aggregators.docs_example import documented_reducer
from tests.state_backends.aggregators.sql_and_lua import same
from tests.state_backends.aggregators.test_basic import CASES, ROUNDED, partials
from tests.state_backends.aggregators.test_sketches import EXACT, array_kll, frequent, hll, theta
from tests.state_backends.all_types_measure import Wide
from tests.state_backends.examples import examples
from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import (
    Count,
    DistinctCount,
    DistinctSet,
    Max,
    Mean,
    PostgresBackingMap,
    Quantiles,
    StateReader,
    StateSpec,
    TopK,
    Versioned,
)
from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.errors import (
    KeyShapeError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    UnknownStateError,
)
from tidegauge.state_backends.spec.state_spec import stored_column

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
TOTALS = StateSpec("totals", measures={"n": Count()})
PARTS = {"round": "bigint", "part": "bigint"}
WHOLE = -1


@pytest.fixture
def feed(new_feed, fresh):
    """A feed of one state of views."""
    return new_feed(fresh(VIEWS))


@pytest.fixture
def reader(feed, conn):
    return StateReader(conn, feed.specs[0])


@pytest.fixture
def spread(new_feed, fresh, conn):
    """Gives a function that spreads partials over keys, and returns what they combine to and what one key holds."""
    conn.execute("SET TIME ZONE 'UTC'")
    rounds = count()

    def new_state(aggregator):
        spec = fresh(StateSpec("spread", key=PARTS, measures={"m": aggregator}))
        new_feed(spec)
        return spec

    def spread(spec, parts):
        this = next(rounds)
        keys = dict.fromkeys((this, part) for part, _ in parts)
        rows = dict.fromkeys([*keys, (this, WHOLE)])
        for part, partial in parts:
            for key in [(this, part), (this, WHOLE)]:
                rows[key] = spec.fold(rows[key], {stored_column("m", name): side for name, side in partial.items()})
        PostgresBackingMap(conn, spec).multi_put(list(rows), [Versioned(row, 0) for row in rows.values()])
        reader = StateReader(conn, spec)
        [combined] = read(reader.combine(list(keys)), spec)
        [whole] = read(reader.multi_get([(this, WHOLE)]), spec)
        assert combined["keys"] == len(keys)
        return combined["value"]["m"], whole["value"]["m"]

    return new_state, spread


def read(snapshot, spec):
    """Parse an answer; a numeric must not lose digits on the way."""
    exact = spec.measures["m"].result_type == "numeric"
    return json.loads(snapshot.results, parse_float=Decimal if exact else None)


class TestEveryAggregator:
    @pytest.mark.parametrize("case", CASES)
    def test_combining_what_was_spread_over_keys_says_what_one_key_says(self, spread, case):
        new_state, combine = spread
        spec = new_state(CASES[case][0])

        @examples(5)
        @given(st.lists(st.tuples(st.integers(0, 3), partials(case)), min_size=1, max_size=8))
        def check(parts):
            combined, whole = combine(spec, parts)
            assert same(whole, combined, rounded=case in ROUNDED)

        check()

    @pytest.mark.parametrize("case", EXACT)
    def test_small_sketches_combine_exactly(self, spread, case):
        aggregator, sketch, batches, answer = EXACT[case]
        new_state, combine = spread
        spec = new_state(aggregator)

        for order in ([0, 1, 2], [0, 0, 1], [2, 0, 2], [0, 0, 0]):
            combined, whole = combine(spec, list(zip(order, map(sketch, batches), strict=True)))
            assert combined == answer
            assert combined == whole

    @pytest.mark.parametrize(("aggregator", "sketch"), [(DistinctCount("x"), hll), (DistinctSet("x"), theta)])
    def test_a_distinct_count_of_keys_is_their_union_s(self, spread, aggregator, sketch):
        """Most values are in two or three of the twenty keys, so adding up would be far off."""
        new_state, combine = spread
        keys = [[str(n) for n in range(40_000) if key in (n * 7 % 20, (n * 11 + 1) % 20, n % 20)] for key in range(20)]

        combined, whole = combine(new_state(aggregator), list(enumerate(map(sketch, keys))))

        assert abs(combined / 40_000 - 1) <= 3 * 1.04 / 64
        assert abs(combined - whole) <= 1

    def test_a_measure_of_a_user_s_own_combines_by_its_reduce(self, spread):
        new_state, combine = spread
        with documented_reducer() as recent:
            events = [[f"2013-01-01 0{n}:00:00", f"event {n}"] for n in range(5)]

            combined, whole = combine(
                new_state(recent("text", by="at")), [(n % 2, {"": [event]}) for n, event in enumerate(events)]
            )

        assert combined == whole == events[:1:-1]

    def test_quantiles_of_keys_are_those_of_all_their_numbers(self, spread):
        new_state, combine = spread
        numbers = np.random.default_rng(3).permutation(20_000).astype(float)

        combined, _ = combine(
            new_state(Quantiles("x", (0, 0.5, 0.95))), list(enumerate(map(array_kll(200), np.split(numbers, 10))))
        )

        assert combined["0.0"] == 0
        assert all(abs(float(combined[str(share)]) / 20_000 - share) <= 3 * 0.0133 for share in (0.5, 0.95))

    def test_the_most_frequent_of_keys_are_counted_over_all_of_them(self, spread):
        new_state, combine = spread
        texts = random.Random(7).choices(range(5_000), [1 / (n + 1) for n in range(5_000)], k=20_000)
        counts = Counter(map(str, texts))

        combined, _ = combine(
            new_state(TopK("x", k=5)), [(key, frequent(list(map(str, texts[key::8])))) for key in range(8)]
        )

        assert [found["item"] for found in combined] == [item for item, _ in counts.most_common(5)]
        assert all(found["at_least"] <= counts[found["item"]] <= found["count"] for found in combined)


class Address(Wide):
    """A measure of a user's own, with a column of a type that psycopg reads as text alone."""

    name = "address"
    columns: ClassVar = {"": "macaddr"}
    finish_sql = "{stored}"
    result_type = "macaddr"

    def finish(self, stored):
        return stored[""]


class TestAnswer:
    def test_keys_found_are_folded_and_the_others_counted(self, feed, reader):
        batch = feed.run(views(("a", 1), ("b", 2), ("c", 4)))

        answer = reader.combine([("a",), ("c",), ("nope",)])

        assert (answer.txid, answer.attempt, answer.batch_time) == (1, 1, batch.batch_time)
        assert answer.parsed() == [{"keys": 2, "missing": 1, "expired": 0, "value": {"n": 5}}]

    def test_a_key_asked_twice_folds_once(self, feed, reader):
        feed.run(views(("a", 1)))

        assert reader.combine([("a",), ["a"], ("no",), ("no",)]).parsed() == [
            {"keys": 1, "missing": 1, "expired": 0, "value": {"n": 1}}
        ]

    @pytest.mark.parametrize("keys", [[], [("a",)]])
    def test_no_key_found_gives_what_an_empty_state_gives(self, new_feed, fresh, conn, keys):
        measures = {"n": Count(), "mean": Mean("x"), "users": DistinctCount("x"), "top": TopK("x")}
        new_feed(spec := fresh(StateSpec("v", key={"page": "text"}, measures=measures)))

        [answer] = StateReader(conn, spec).combine(keys).parsed()

        assert answer["value"] == {"n": 0, "mean": None, "users": 0, "top": None}

    def test_the_measures_asked_for_are_answered_in_their_order(self, new_feed, fresh, conn):
        spec = fresh(StateSpec("v", key={"page": "text"}, measures={"n": Count(), "found": Max("x")}))
        new_feed(spec).run([{"page": "a", "n": 1, "found": 7.5}, {"page": "b", "n": 2, "found": math.inf}])
        reader = StateReader(conn, spec)

        assert reader.combine([("a",)], ["found", "n", "found"]).results.endswith(b'"value": {"found": 7.5, "n": 1}}]')
        assert reader.combine([("a",), ("b",)]).parsed()[0]["value"] == {"n": 3, "found": "Infinity"}
        assert reader.combine([("a",)], []).parsed()[0]["value"] == {}
        with pytest.raises(SpecError, match="no measure 'speed'; there are n, found"):
            reader.combine([("a",)], ["speed"])

    def test_a_type_without_a_binary_form_is_read_beside_a_sketch(self, new_feed, fresh, conn, monkeypatch):
        monkeypatch.setitem(AGGREGATORS, Address.name, Address)
        measures = {"users": DistinctCount("x"), "from": Address()}
        new_feed(spec := fresh(StateSpec("v", key={"page": "text"}, measures=measures))).run([])
        row = spec.fold(None, {"users_sketch": hll(["ann", "bob"])["sketch"], "from": "08:00:2b:01:02:03"})
        PostgresBackingMap(conn, spec).multi_put([("a",)], [Versioned(row, 1)])

        [answer] = StateReader(conn, spec).combine([("a",)]).parsed()

        assert answer["value"] == {"users": 2, "from": "08:00:2b:01:02:03"}

    def test_a_global_state_combines_to_itself(self, new_feed, fresh, conn):
        new_feed(spec := fresh(TOTALS)).run([{"n": 3}])

        assert StateReader(conn, spec).combine([()]).parsed()[0]["value"] == {"n": 3}

    def test_a_sum_beyond_64_bits_is_told_in_full(self, feed, reader):
        feed.run(views(("a", 2**62), ("b", 2**62)))

        assert reader.combine([("a",), ("b",)]).parsed()[0]["value"] == {"n": 2**63}

    def test_what_cannot_be_combined_is_refused(self, new_feed, fresh, conn, reader):
        new_feed(texts := fresh(StateSpec("texts", key={"page": "text"}, value="jsonb")))

        with pytest.raises(SpecError) as caught:
            StateReader(conn, texts).combine([("a",)])
        with pytest.raises(KeyShapeError, match="key 1: page must be text, got 7"):
            reader.combine([("a",), (7,)])
        with pytest.raises(UnknownStateError):
            StateReader(conn, fresh(VIEWS)).combine([("a",)])

        assert str(caught.value) == (
            f"state {texts.name!r}: holds JSON values, which cannot be folded; look its keys up, or give it measures"
        )


class TestWhichVersion:
    def test_an_open_batch_shows_nothing_of_itself(self, feed, reader):
        feed.run(views(("a", 1), ("b", 1)))
        before = reader.combine([("a",), ("b",), ("new",)])

        feed.apply(feed.begin(1), feed.specs[0], views(("a", 10), ("new", 10)))

        assert reader.combine([("a",), ("b",), ("new",)]) == before

    def test_what_has_outlived_its_ttl_is_counted_as_expired_and_not_folded(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(replace(VIEWS, ttl=timedelta(hours=1))))
        feed.run(views(("a", 1)))
        let_time_pass(conn, [spec], feed.pipeline, timedelta(minutes=61))
        feed.run(views(("b", 2)))

        [answer] = StateReader(conn, spec).combine([("a",), ("b",), ("c",)]).parsed()

        assert answer == {"keys": 1, "missing": 1, "expired": 1, "value": {"n": 2}}

    def test_a_removed_key_is_missing(self, feed, reader, conn):
        feed.run(views(("a", 1), ("b", 2)))
        PostgresBackingMap(conn, feed.specs[0]).multi_put([("a",)], [Versioned(None, 1)])

        assert reader.combine([("a",), ("b",)]).parsed() == [{"keys": 1, "missing": 1, "expired": 0, "value": {"n": 2}}]

    @pytest.mark.parametrize("changelog", [True, False])
    def test_an_earlier_batch_is_combined_as_it_was(self, new_feed, fresh, conn, changelog):
        feed = new_feed(spec := fresh(replace(VIEWS, changelog=changelog)))
        first = feed.run(views(("a", 1), ("b", 1)))
        feed.run(views(("a", 10), ("new", 10)))
        reader = StateReader(conn, spec)

        answer = reader.combine([("a",), ("b",), ("new",)], at_txid=1)

        assert (answer.txid, answer.batch_time) == (1, first.batch_time)
        assert answer.parsed() == [{"keys": 2, "missing": 1, "expired": 0, "value": {"n": 2}}]
        with pytest.raises(NotCommittedError):
            reader.combine([("a",)], at_txid=3)

    def test_a_batch_that_one_of_the_keys_cannot_tell_is_out_of_reach(self, feed, reader):
        for _ in range(3):
            feed.run(views(("a", 1)))

        with pytest.raises(OutOfReachError) as caught:
            reader.combine([("a",)], at_txid=1)

        assert caught.value.oldest == 2
