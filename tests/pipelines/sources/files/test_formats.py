"""Files of every kind: events count once, bad lines are kept with their place and the reason."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import BadInputError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.files import formats as files_module
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, ParquetFiles, TextFiles
from tidegauge.state_backends import Count, StateSpec, Sum

pytestmark = pytest.mark.spark

SCHEMA = "name string NOT NULL, n int, x double, at timestamp, ok boolean"
HEADER = "name,n,x,at,ok"
NAMES = StateSpec("names", key={"name": "text"}, measures={"count": Count(), "n": Sum("n", "double precision")})
TEXTS = StateSpec("texts", key={"a": "text", "b": "text"}, measures={"count": Count()})


def names(source):
    return Pipeline("names", [Stream.read(source).group_by("name").persistent_aggregate(NAMES)])


def texts(source):
    return Pipeline("texts", [Stream.read(source).group_by("a", "b").persistent_aggregate(TEXTS)])


def letters(workspace):
    return workspace.rows(
        "SELECT source, line_number, line, reason FROM tidegauge.dead_letter ORDER BY source, line_number"
    )


def counts(workspace, state="names"):
    return {key: value["count"] for key, value in workspace.values(state).items()}


BAD_CSV = {
    "a,1,1.5": "3 fields, expected 5",
    "a,1,1.5,,true,x": "6 fields, expected 5",
    ",1,1.5,,": "name: required, and empty",
    "a,many,1.5,,": 'n: expected int, got "many"',
    "a,3000000000,,,": 'n: expected int, got "3000000000"',
    "a,1,wide,,": 'x: expected double, got "wide"',
    "a,1,,yesterday,": 'at: expected timestamp, got "yesterday"',
    "a,1,,,yes": 'ok: expected boolean, got "yes"',
    'a,1,,,"true': "a quote is not closed; a quoted field must end on its line",
    HEADER: "a header, not an event",
}


class TestCsvFiles:
    @pytest.mark.core
    def test_each_bad_line_is_kept_with_file_line_number_and_reason_and_good_ones_count(self, workspace):
        good = ["a,1,1.5,2013-01-01T10:00:00Z,true", '"b, ""c""",2,1e3,,FALSE', "a,,,,"]
        workspace.land("a.csv", HEADER, good[0], *BAD_CSV, "", *good[1:], HEADER)

        workspace.run(names(CsvFiles(workspace.input, schema=SCHEMA, max_bad_share=0.9)))

        assert letters(workspace) == [
            *(("a.csv", number, line, reason) for number, (line, reason) in enumerate(BAD_CSV.items(), start=3)),
            ("a.csv", 16, HEADER, "a header, not an event"),
        ]
        assert workspace.values("names") == {"a": {"count": 2, "n": 1}, 'b, "c"': {"count": 1, "n": 2}}
        assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(14, 11)]

    def test_the_header_of_every_file_is_skipped_also_quoted_or_after_blank_lines(self, workspace):
        workspace.land("1.csv", "a,b", "x,y")
        workspace.land("2.csv", "", '"a","b"', "x,y", "z,y")
        workspace.land("3.csv", "a,b")

        workspace.run(texts(CsvFiles(workspace.input, schema="a string, b string")))

        assert counts(workspace, "texts") == {("x", "y"): 2, ("z", "y"): 1}
        assert letters(workspace) == []

    def test_no_line_of_a_file_counts_whose_header_is_not_the_schema_s(self, workspace):
        headers = ["b,a", "a", "a,b,c", "x,y", "A,b"]
        for number, header in enumerate(headers):
            workspace.land(f"{number}.csv", header, "x,y", "x,z")
        workspace.land("right.csv", "a,b", "x,y")

        workspace.run(texts(CsvFiles(workspace.input, schema="a string, b string", max_bad_share=1.0)))

        assert letters(workspace) == [
            (f"{file}.csv", number, line, f"the file's header is {header!r}, expected 'a,b'")
            for file, header in enumerate(headers)
            for number, line in enumerate([header, "x,y", "x,z"], start=1)
        ]
        assert counts(workspace, "texts") == {("x", "y"): 1}

    def test_a_whole_batch_under_a_wrong_header_stops_the_pipeline_and_says_which_header(self, workspace):
        workspace.land("1.csv", "b,a", *["x,y"] * 11)

        with pytest.raises(BadInputError, match=r"'1\.csv' line 1: the file's header is 'b,a', expected 'a,b'"):
            workspace.run(texts(CsvFiles(workspace.input, schema="a string, b string")))

        assert counts(workspace, "texts") == {}

    def test_a_file_of_many_blocks_has_one_header(self, workspace):
        lines = [f"x{number % 3},y" for number in range(3000)]
        workspace.land("1.csv", "a,b", *lines)
        workspace.spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
        try:
            workspace.run(texts(CsvFiles(workspace.input, schema="a string, b string")))
        finally:
            workspace.spark.conf.unset("spark.sql.files.maxPartitionBytes")

        assert counts(workspace, "texts") == {("x0", "y"): 1000, ("x1", "y"): 1000, ("x2", "y"): 1000}
        assert letters(workspace) == []

    def test_without_headers_the_first_line_is_an_event_and_the_delimiter_is_as_declared(self, workspace):
        workspace.land("1.tsv", "a\tb", "x, y\tz")

        source = CsvFiles(workspace.input, schema="a string, b string", header=False, delimiter="\t")
        workspace.run(texts(source))

        assert counts(workspace, "texts") == {("a", "b"): 1, ("x, y", "z"): 1}

    def test_a_line_that_is_not_utf_8_is_bad(self, workspace):
        (workspace.input / "1.csv").write_bytes(b"x,y\nx,\xff\n")

        workspace.run(texts(CsvFiles(workspace.input, schema="a string, b string", header=False)))

        assert letters(workspace) == [("1.csv", 2, "x,\N{REPLACEMENT CHARACTER}", "not UTF-8")]
        assert counts(workspace, "texts") == {("x", "y"): 1}

    @pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
    def test_an_invalid_delimiter_is_refused_where_it_is_declared(self, tmp_path, delimiter):
        with pytest.raises(PipelineError, match="is not a delimiter; give one character"):
            CsvFiles(tmp_path, schema=SCHEMA, delimiter=delimiter)


class TestParquetFiles:
    SCHEMA = "name string NOT NULL, n int"

    def land(self, workspace, file, types=None, **columns):
        table = pa.table(columns, schema=None if types is None else pa.schema(list(types.items())))
        pq.write_table(table, workspace.input.parent / file)
        return (workspace.input.parent / file).replace(workspace.input / file)

    def test_columns_are_found_by_name_in_any_order(self, workspace):
        self.land(workspace, "1.parquet", n=pa.array([1, 2], pa.int32()), more=["x", "y"], name=["a", "b"])
        self.land(workspace, "2.parquet", name=["a"])

        workspace.run(names(ParquetFiles(workspace.input, schema=self.SCHEMA)))

        assert workspace.values("names") == {"a": {"count": 2, "n": 1}, "b": {"count": 1, "n": 2}}

    def test_a_row_without_a_required_value_is_kept_with_its_number_and_the_reason(self, workspace):
        at = datetime(2013, 1, 1, tzinfo=UTC)
        self.land(workspace, "1.parquet", name=["a", None, "b"], at=[at, at, None])
        self.land(workspace, "lacks the column.parquet", nam=["a"], n=pa.array([1], pa.int32()), at=[at])

        workspace.run(names(ParquetFiles(workspace.input, schema=self.SCHEMA + ", at timestamp NOT NULL")))

        assert letters(workspace) == [
            (
                "1.parquet",
                2,
                '{"name":null,"n":null,"at":"2013-01-01T00:00:00.000Z"}',
                "name: required, and absent or null",
            ),
            ("1.parquet", 3, '{"name":"b","n":null,"at":null}', "at: required, and absent or null"),
            (
                "lacks the column.parquet",
                1,
                '{"name":null,"n":1,"at":"2013-01-01T00:00:00.000Z"}',
                "name: required, and absent or null",
            ),
        ]
        assert counts(workspace) == {"a": 1}

    def test_a_file_that_cannot_be_read_stops_the_batch_with_an_error_that_names_it(self, workspace):
        (workspace.input / "broken.parquet").write_bytes(b"PAR1 and then nothing of the kind")

        with pytest.raises(Exception, match=r"broken\.parquet"):
            workspace.run(names(ParquetFiles(workspace.input, schema=self.SCHEMA)))

        assert counts(workspace) == {}

    def test_a_column_of_another_type_stops_the_batch_with_an_error_that_names_the_file(self, workspace):
        self.land(workspace, "typed.parquet", name=["a"], n=["one"])

        with pytest.raises(Exception, match=r"typed\.parquet"):
            workspace.run(names(ParquetFiles(workspace.input, schema=self.SCHEMA)))

        assert counts(workspace) == {}


def test_a_file_counts_once_if_its_batch_is_run_again(workspace):
    pipeline = names(CsvFiles(workspace.input, schema="name string, n int"))
    workspace.land("1.csv", "name,n", "a,1")
    workspace.run(pipeline)
    workspace.forget_last_commit()

    batches = workspace.run(pipeline)

    assert batches == []
    assert workspace.values("names") == {"a": {"count": 1, "n": 1}}


def test_a_name_beside_which_spark_reads_files_twice_is_refused_before_anything_is_counted(workspace):
    workspace.land("[a].json", {"name": "a", "n": 1})
    workspace.land("b.json", {"name": "b", "n": 1})

    with pytest.raises(
        SourceSetupError, match=r"the 1 other files of the batch twice, because the path '.*\[a\]\.json' has"
    ):
        workspace.run(names(JsonFiles(workspace.input, schema="name string, n int")))

    assert workspace.rows("SELECT count(*) FROM tidegauge.batch") == [(0,)]


def test_pending_are_the_files_that_were_not_read_and_that_spark_will_read(workspace):
    source = CsvFiles(workspace.input, schema="a string, b string")
    workspace.land("1.csv", "a,b")
    workspace.run(texts(source))
    workspace.land("2.csv", "a,b")
    for hidden in ("_3.csv", ".4.csv", "5.txt"):
        workspace.land(hidden, "a,b")

    assert source.pending(workspace.checkpoint).count == 1


def test_text_that_is_not_utf_8_does_not_stop_the_pipeline(workspace):
    (workspace.input / "1.txt").write_bytes(b"a\xff\n")
    lines = StateSpec("lines", key={"line": "text"}, measures={"count": Count()})

    workspace.run(
        Pipeline("lines", [Stream.read(TextFiles(workspace.input)).group_by("line").persistent_aggregate(lines)])
    )

    assert counts(workspace, "lines") == {"a\N{REPLACEMENT CHARACTER}": 1}


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ("name strin", "is not Spark DDL"),
        ("int", "names no columns"),
        ("a int, A string", "names 'a' twice"),
        ("a int, _file string", "names '_file', which the source needs for itself"),
    ],
)
@pytest.mark.parametrize("source", [JsonFiles, CsvFiles, ParquetFiles])
def test_an_invalid_schema_is_refused_with_the_source_and_the_fault(tmp_path, spark, source, schema, fault):
    with pytest.raises(PipelineError, match=fault) as refused:
        source(tmp_path, schema=schema).schema  # noqa: B018

    assert str(tmp_path) in str(refused.value)


def test_a_column_that_the_source_adds_cannot_be_a_column_of_an_event(tmp_path, spark):
    for name in (files_module.BLOCK_START, files_module.ORDER, files_module.FOUND_HEADER):
        with pytest.raises(PipelineError, match=name):
            CsvFiles(tmp_path, schema=f"{name} int").schema  # noqa: B018
