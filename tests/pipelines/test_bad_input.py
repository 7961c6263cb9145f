"""Bad input: kept with its place and the reason, counted, and never in a state; too much of it stops the pipeline."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import BadInputError, PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec, Sum
from tidegauge.state_backends.errors import SpecMismatchError

pytestmark = pytest.mark.spark

SCHEMA = "origin string NOT NULL, carrier string, delay int, at timestamp"
FLIGHTS = StateSpec(
    "flights",
    key={"origin": "text", "carrier": "text"},
    measures={"flights": Count(), "delay": Sum("delay", "double precision")},
)


def flights(folder, measures=None, **options):
    spec = FLIGHTS if measures is None else StateSpec("flights", key=FLIGHTS.key, measures=measures)
    stream = Stream.read(JsonFiles(folder, schema=SCHEMA, **options))
    return Pipeline("flights", [stream.group_by("origin", "carrier").persistent_aggregate(spec)])


GOOD = {"origin": "JFK", "carrier": "AA", "delay": 5, "at": "2013-01-01T10:00:00Z"}

BAD_LINES = {
    "not JSON at all": "not JSON: Expecting value at column 1",
    '{"origin": "JFK"': "not JSON: Expecting ',' delimiter at column 17",
    '{"origin": "JFK"}{"origin": "LGA"}': "not JSON: Extra data at column 18",
    "[1, 2]": "not a JSON object but a list",
    "null": "not a JSON object but null",
    '{"carrier": "AA"}': "origin: required, and absent or null",
    '{"origin": null, "carrier": "AA"}': "origin: required, and absent or null",
    '{"origin": "JFK", "delay": "late"}': 'delay: expected int, got "late"',
    '{"origin": "JFK", "delay": 3000000000}': "delay: expected int, got 3000000000",
    '{"origin": "JFK", "at": "yesterday"}': 'at: expected timestamp, got "yesterday"',
}


def test_each_bad_line_is_kept_with_file_line_number_and_reason_and_good_ones_count(workspace):
    workspace.land("a.jsonl", GOOD, *list(BAD_LINES)[:5], GOOD, "null")
    workspace.land("b.jsonl", *list(BAD_LINES)[5:], "", GOOD)

    workspace.run(flights(workspace.input, max_bad_share=0.9))

    letters = workspace.rows("SELECT line, reason FROM tidegauge.dead_letter ORDER BY source, line_number")
    places = workspace.rows("SELECT source, line_number FROM tidegauge.dead_letter ORDER BY source, line_number")
    assert dict(letters) == BAD_LINES
    # The same bad line twice is kept twice, each at its own number.
    assert places == [("a.jsonl", n) for n in (2, 3, 4, 5, 6, 8)] + [("b.jsonl", n) for n in range(1, 6)]
    assert workspace.values("flights") == {("JFK", "AA"): {"flights": 3, "delay": 15}}
    assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(14, 11)]


def test_a_share_of_bad_lines_over_the_limit_stops_the_pipeline_until_the_input_is_mended(workspace):
    bad = workspace.land("a.jsonl", *["oops"] * 11, *[GOOD] * 20)

    with pytest.raises(BadInputError) as refused:
        workspace.run(flights(workspace.input, max_bad_share=0.3))
    stopped = workspace.values("flights"), workspace.rows("SELECT status FROM tidegauge.driver")
    bad.write_text('{"origin": "LGA", "carrier": "UA"}\n')
    workspace.run(flights(workspace.input))

    assert str(refused.value) == (
        "pipeline 'flights': 11 of 31 lines of batch 1 cannot be read, more than the allowed share of 0.3; the first: "
        "'a.jsonl' line 1: not JSON: Expecting value at column 1; correct the input or raise max_bad_share"
    )
    assert stopped == ({}, [("failed",)])
    assert workspace.values("flights") == {("LGA", "UA"): {"flights": 1, "delay": 0}}
    assert workspace.rows("SELECT count(*) FROM tidegauge.dead_letter") == [(0,)]


def test_a_key_that_no_table_can_hold_goes_to_the_dead_letters_and_stops_nobody(workspace):
    workspace.land(
        "a.jsonl",
        {"origin": "JFK", "carrier": None},
        {"origin": "J\0K", "carrier": "AA"},
        {"origin": "x" * 2049, "carrier": ""},
        {"origin": "x" * 2048, "carrier": ""},
        {"origin": "", "carrier": ""},
        {"origin": 'a"b,c\n\\N', "carrier": "é"},
    )

    workspace.run(flights(workspace.input))

    letters = workspace.rows("SELECT state, source, reason FROM tidegauge.dead_letter ORDER BY reason")
    assert letters == [
        ("flights", "state flights", "key column carrier is null"),
        ("flights", "state flights", "key column origin holds a NUL character"),
        ("flights", "state flights", "the key's text is over the limit of 2048 bytes"),
    ]
    assert set(workspace.values("flights")) == {("x" * 2048, ""), ("", ""), ('a"b,c\n\\N', "é")}
    assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(6, 3)]


def test_a_renamed_measure_is_refused_with_the_difference(workspace):
    workspace.land("a.jsonl", GOOD)
    workspace.run(flights(workspace.input))

    with pytest.raises(SpecMismatchError, match="measure 'flights' is gone; measure 'departures' is new"):
        workspace.run(
            flights(workspace.input, measures={"departures": Count(), "delay": Sum("delay", "double precision")})
        )

    assert workspace.values("flights") == {("JFK", "AA"): {"flights": 1, "delay": 5}}


def test_a_new_measure_is_added_and_counts_from_then_on(workspace):
    workspace.land("a.jsonl", GOOD)
    workspace.run(flights(workspace.input))

    more = dict(FLIGHTS.measures) | {"late": Count(where="delay > 0")}
    workspace.run(flights(workspace.input, measures=more))
    before = workspace.values("flights")
    workspace.land("b.jsonl", GOOD)
    workspace.run(flights(workspace.input, measures=more))

    assert before == {("JFK", "AA"): {"flights": 1, "delay": 5, "late": 0}}
    assert workspace.values("flights") == {("JFK", "AA"): {"flights": 2, "delay": 10, "late": 1}}


def test_a_column_that_the_stream_lacks_is_named_before_anything_starts(workspace):
    stream = Stream.read(JsonFiles(workspace.input, schema=SCHEMA)).group_by("origin", carrier="airline")

    with pytest.raises(PipelineError, match=r"pipeline 'p', state 'flights': .*`airline`"):
        workspace.run(Pipeline("p", [stream.persistent_aggregate(FLIGHTS)]))

    assert workspace.rows("SELECT name FROM tidegauge.pipeline") == []


def test_a_key_of_another_type_than_the_state_s_is_refused_before_anything_starts(workspace):
    stream = Stream.read(JsonFiles(workspace.input, schema=SCHEMA)).group_by("origin", carrier="delay")

    with pytest.raises(PipelineError, match="key 'carrier' is int in the stream and text in the state"):
        workspace.run(Pipeline("p", [stream.persistent_aggregate(FLIGHTS)]))
