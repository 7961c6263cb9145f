"""reject(): rows that break a rule are dead letters, and count exactly once when a replay lets them through."""

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pytest

from tests.docs.blocks import program
from tidegauge.pipelines.batch.replayed import Replayed
from tidegauge.pipelines.declare.drpc import Arguments, execute
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.rule_rows import SourceRows, row_text
from tidegauge.pipelines.declare.rules import Rule
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.errors import BadInputError, PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec, Sum
from tidegauge.state_backends.dead_letters.letters import rejected_letters
from tidegauge.state_backends.dead_letters.replay import Choice, RawLetter, request

SHOPS = StateSpec("shops", key={"shop": "text"}, measures={"n": Count(), "paid": Sum("paid", type="bigint")})
TOTALS = StateSpec("totals", measures={"n": Count()})
SCHEMA = "shop string, price int"


class TestADeclaration:
    @pytest.mark.parametrize("reason", ["", " ", "two\nlines", "a\0b", "x" * 201])
    def test_needs_a_reason_of_one_short_line(self, reason):
        with pytest.raises(PipelineError, match=r"reject\('price < 0'\): reason .* is not one line of 1 to 200"):
            Stream.given().reject("price < 0", reason=reason)

    def test_needs_a_condition(self):
        with pytest.raises(PipelineError, match="has no condition"):
            Stream.given().reject(" ", reason="x" * 200)

    def test_is_no_verb_of_a_request(self):
        asked = Stream.read(Arguments(SCHEMA)).reject("price < 0", reason="low")

        with pytest.raises(PipelineError, match=r"execute: reject\('price < 0', reason='low'\) makes dead letters"):
            execute(asked, [], None, "")


def rejected(stream):
    return stream.reject("price < 0", reason="low")


def branches(events):
    return [rejected(events).persistent_aggregate(TOTALS), events.group_by("shop").persistent_aggregate(SHOPS)]


def two_reads(events):
    return [
        rejected(events).persistent_aggregate(TOTALS),
        Stream.read(events.inputs[0]).group_by("shop").persistent_aggregate(SHOPS),
    ]


def with_late_ones(events):
    marked = events.with_watermark("at", "1 hour", allowed_lateness="1 hour")
    return [rejected(marked).persistent_aggregate(TOTALS), marked.late().group_by("shop").persistent_aggregate(SHOPS)]


def new_values(events):
    return [rejected(events.group_by("shop").persistent_aggregate(SHOPS).new_values_stream())]


INEXACT = [
    (branches, "leaves a row out of a part of what its source feeds"),
    (two_reads, "leaves a row out of a part of what its source feeds"),
    (with_late_ones, "leaves a row out of a part of what its source feeds"),
    (lambda events: [rejected(events.merge(events))], r"comes after merge\(\)"),
    (lambda events: [rejected(events.each(split, ["shop"], word="string"))], "comes after a Python function"),
    (lambda events: [rejected(events.state_query(SHOPS, ["shop"], n="bigint"))], "comes after a Python function"),
    (new_values, "is on the new values of state 'shops'"),
]  # fmt: skip


def split(text):
    return [(word,) for word in text.split()]


def fed(end):
    return end.persistent_aggregate(TOTALS) if isinstance(end, Stream) else end


@pytest.mark.parametrize(("feeds", "message"), INEXACT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_place_where_a_replay_would_count_a_row_otherwise_than_once_is_refused(feeds, message):
    with pytest.raises(PipelineError, match=rf"pipeline 'p': reject\('price < 0', reason='low'\) {message}"):
        Pipeline("p", list(map(fed, feeds(Stream.given(SCHEMA)))))


def test_whatever_comes_after_the_rule_may_branch_merge_and_split():
    good = rejected(rejected(Stream.given(SCHEMA).where("true").each(paid="price").with_watermark("at", "1 hour")))
    words = good.each(split, ["shop"], word="string")

    pipeline = Pipeline("p", [good.merge(words).persistent_aggregate(TOTALS), branches(good)[1]])

    assert len(pipeline.rules) == 2


UNEVEN = [
    (lambda events: events.each(word="explode(split(shop, ' '))"), "price < 0", r"after a step \(Generate\) that does"),
    (lambda events: events.group_by("price").aggregate(n="count(1)"), "price < 0", r"after a step \(Aggregate\)"),
    (lambda events: events.transform(lambda rows: rows.distinct()), "price < 0", r"after a step \(Deduplicate\)"),
    (lambda events: events.project("price"), "price < 0", "after a step that selects columns"),
    (lambda events: events, "rand() < 0.5", "may give another result when a row is replayed"),
    (lambda events: events, "shop", "state 'totals': .*boolean"),
]


@pytest.mark.spark
@pytest.mark.parametrize(("steps", "condition", "message"), UNEVEN)
def test_a_step_that_does_not_make_one_tuple_of_each_row_is_refused_at_the_start(
    spark, tmp_path, steps, condition, message
):
    stream = steps(Stream.read(JsonFiles(tmp_path, schema=SCHEMA))).reject(condition, reason="low")

    with pytest.raises(PipelineError, match=rf"(?i)pipeline 'p'.*{message}"):
        check(Pipeline("p", [stream.persistent_aggregate(TOTALS)]), spark)


@pytest.mark.spark
@pytest.mark.parametrize("column", ["_source_row string", "x map<int, string>"])
def test_a_source_whose_rows_could_not_be_kept_is_refused_at_the_start(spark, tmp_path, column):
    stream = Stream.read(JsonFiles(tmp_path, schema=f"{SCHEMA}, {column}")).reject("price < 0", reason="low")

    with pytest.raises(PipelineError, match=r"pipeline 'p'.* reject\('price < 0', reason='low'\)"):
        check(Pipeline("p", [stream.persistent_aggregate(TOTALS)]), spark)


TYPES = """
a string, b bigint, c decimal(38, 12), d double, e float, f boolean, g date, h timestamp, i timestamp_ntz, j binary,
k array<struct<at: timestamp, x: decimal(20, 10)>>, l map<string, double>, m tinyint, `n.o` string
"""
AT = datetime(2024, 2, 29, 23, 59, 59, 999999)
ROWS = [
    ("\"é\n\u2028'", 2**63 - 1, Decimal("12345678901234567890123456.000000000001"), float("inf"), 0.1, True,
     date(1, 1, 1), AT, AT, b"\0\xff", [(AT, Decimal("0.1000000001")), None], {"a": -0.0, "b": 1e-300}, -128, "1.5"),
    ("", -(2**63), Decimal("-1E-12"), float("-inf"), 1e38, False, date(9999, 12, 31), AT, AT, b"", [], {}, 127, "NaN"),
    (None,) * 14,
]  # fmt: skip


@pytest.mark.spark
def test_a_row_of_any_type_is_read_from_its_record_as_it_was(spark):
    rows = spark.createDataFrame(ROWS, TYPES)
    records = [{"row": text} for (text,) in rows.select(row_text(rows.columns)).collect()]

    again = SourceRows(rows.schema).parse_again(spark, json.loads(json.dumps(records)))

    assert again.good().collect() == rows.collect()


@pytest.mark.spark
def test_a_row_with_a_value_that_no_column_takes_now_cannot_be_read(spark):
    reader = SourceRows(spark.createDataFrame([], "a int, b int").schema)
    records = [{"row": '{"a":1}'}, {"row": '{"a":1,"renamed":2}'}, {"row": '{"a":1.5}'}]

    again = reader.parse_again(spark, records)

    assert again.good().collect() == [(1, None)]
    assert [(letter.record["row"], letter.reason) for letter in reader.dead_letters(again.rows)] == [
        ('{"a":1,"renamed":2}', "renamed: the source has no such column now"),
        ('{"a":1.5}', "a: expected int, got 1.5"),
    ]


@pytest.mark.spark
def test_a_letter_whose_record_gives_no_row_shifts_no_other_letter(spark):
    class LeavesNullsOut(SourceRows):
        def parse_again(self, spark, records):
            parsed = super().parse_again(spark, records)
            return replace(parsed, rows=parsed.rows.where("a IS NOT NULL OR _bad_line IS NOT NULL"))

    class BelowZero:
        rule = Rule("a < 0", "low")

        def rows(self, events):
            return events.where(self.rule.is_broken).select(row_text(events.columns))

    texts = ["{}", '{"a":1}', '{"a":-1}', '{"a":-1,"b":"x"}', '{"a":-1}', '{"a":2}']
    letters = [RawLetter(place, 0, {"record": "row", "row": text}) for place, text in enumerate(texts)]
    reader = LeavesNullsOut(spark.createDataFrame([], "a int, b int").schema)

    again = Replayed(spark, None, reader, letters)

    assert again.rejected(BelowZero()) == [(2, "rejected: low"), (4, "rejected: low")]


def pipeline(workspace, rule="paid < 0", schema=SCHEMA, share=1.0, spec=SHOPS):
    sold = Stream.read(JsonFiles(workspace.input, schema=schema, max_bad_share=share)).where("shop <> 'test'")
    good = sold.each(paid="cast(price AS int) * 2").reject(rule, reason="price below zero")
    return Pipeline("p", [good.group_by("shop").persistent_aggregate(spec), good.persistent_aggregate(TOTALS)])


def letters(workspace, begins=""):
    query = f"SELECT line, reason, replay_txid FROM tidegauge.dead_letter WHERE reason ^@ '{begins}' ORDER BY id"
    return [(json.loads(line), reason, txid) for line, reason, txid in workspace.rows(query)]


def figures(workspace):
    return workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch ORDER BY txid")


LINES = [
    {"shop": "a", "price": 1},
    {"shop": "a", "price": -1},
    {"shop": "b", "price": -5},
    {"shop": "c"},
    {"shop": "test", "price": -9},
    {"shop": "d", "price": "-7"},
]


@pytest.mark.spark
class TestRows:
    @pytest.mark.core
    def test_that_break_a_rule_count_once_in_all_states_when_a_replay_lets_them_through(self, workspace):
        workspace.land("1.json", *LINES)
        workspace.run(pipeline(workspace))
        first = workspace.values("shops"), workspace.values("totals"), letters(workspace), figures(workspace)

        counted_by_once = rejected_letters(workspace.conn, "p", [1])
        asked = request(workspace.conn, "p", Choice(), "a test")
        batches = workspace.run(pipeline(workspace, "paid < -2"))
        relaxed = workspace.values("shops"), workspace.values("totals"), letters(workspace)

        # The line can be read now, and its row breaks the rule, as the other one does still.
        texts = "shop string, price string"
        request(workspace.conn, "p", Choice(), "a test")
        workspace.run(pipeline(workspace, "paid < -2", texts))
        again = letters(workspace)
        request(workspace.conn, "p", Choice(), "a test")
        workspace.run(pipeline(workspace, "false", texts))

        d, why = LINES[5], "rejected: price below zero"
        kept = {"a": {"n": 1, "paid": 2}, "c": {"n": 1, "paid": 0}}
        unread = (d, 'price: expected int, got "-7"', None)
        assert first == (
            kept,
            {(): {"n": 2}},
            [unread, (LINES[1], why, None), (LINES[2], why, None)],
            [(6, 3)],
        )
        assert (counted_by_once.number, asked, batches) == (3, 3, [(2, 1)])
        assert relaxed == (
            kept | {"a": {"n": 2, "paid": 0}},
            {(): {"n": 3}},
            [unread, (LINES[1], why, 2), (LINES[2], why, None)],
        )
        assert again == [(d, why, None), (LINES[1], why, 2), (LINES[2], why, None)]
        assert workspace.values("shops")["b"] == {"n": 1, "paid": -10}
        assert workspace.values("shops")["d"] == {"n": 1, "paid": -14}
        assert workspace.values("totals") == {(): {"n": 5}}
        assert figures(workspace) == [(6, 3), (0, 0), (0, 0), (0, 0)]

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_count_towards_the_limit_with_the_lines_that_cannot_be_read(self, workspace, kind):
        spec = StateSpec("shops", key=SHOPS.key, measures=SHOPS.measures, kind=kind)
        low, fine = {"shop": "a", "price": -1}, {"shop": "a", "price": 1}
        workspace.land("1.json", *["oops"] * 6, *[low] * 11, *[fine] * 23)

        with pytest.raises(BadInputError) as refused:
            workspace.run(pipeline(workspace, share=0.4, spec=spec))
        written = workspace.rows("SELECT count(*) FROM tidegauge_state.shops WHERE NOT removed")
        stopped = workspace.values("shops") if kind == "opaque" else written
        assert workspace.run(pipeline(workspace, share=0.6, spec=spec))[0][0] == 1
        request(workspace.conn, "p", Choice(), "a test")
        # Letters that fail again are no rows of the batch, and stop nothing.
        assert workspace.run(pipeline(workspace, share=0.4, spec=spec)) == [(2, 1)]

        assert str(refused.value) == (
            "pipeline 'p': 6 of 40 lines of batch 1 cannot be read and 11 break a rule, more than the allowed share of "
            "0.4; the first: '1.json' line 1: not JSON: Expecting value at column 1; correct the input or the rule, or "
            "raise max_bad_share"
        )
        assert stopped in ({}, [(0,)])
        assert workspace.values("shops") == {"a": {"n": 23, "paid": 46}}
        assert [txid for *_, txid in letters(workspace, "rejected: ")] == [None] * 11


def test_the_rule_of_docs_dead_letters_md_can_be_declared():
    names = {"Stream": Stream, "orders": JsonFiles("orders", schema="amount int")}

    exec(program("dead_letters.md"), names)  # noqa: S102

    assert names["sold"].rule.letter_reason == "rejected: amount below zero"
