"""The input files of benchmarks are deterministic and have the stated totals; the benchmarks check against these."""

import json

import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.input_files import FLIGHTS_PER_FILE, SCHEMA, Totals, flights_file, lay_out_flights, lay_out_sales
from tidegauge.pipelines.jobs.flights import FLIGHT


def columns(ddl):
    return {part.split()[0] for part in ddl.split(", ")}


def test_the_totals_match_the_files(tmp_path):
    totals = lay_out_sales(tmp_path / "sales", events=6_000, files=3)

    table = ds.dataset(tmp_path / "sales").to_table()
    assert len(list((tmp_path / "sales").iterdir())) == 3
    assert totals == Totals(pc.count_distinct(table["shop"]).as_py(), 6_000, pc.sum(table["x"]).as_py())
    assert set(table.column_names) == columns(SCHEMA)


def test_the_same_arguments_give_the_same_events(tmp_path):
    for name in ("one", "other"):
        lay_out_sales(tmp_path / name, events=1_000, files=2)

    one, other = (ds.dataset(tmp_path / name).to_table() for name in ("one", "other"))
    assert one.equals(other)
    assert flights_file(7) == flights_file(7) != flights_file(8)


def test_files_of_one_folder_differ(tmp_path):
    lay_out_sales(tmp_path / "sales", events=1_000, files=2)

    first, second = (ds.dataset(path).to_table() for path in sorted((tmp_path / "sales").iterdir()))
    assert not first.equals(second)


def test_a_batch_of_half_a_million_has_about_67_000_shops(tmp_path):
    totals = lay_out_sales(tmp_path / "sales", events=500_000, files=1)

    assert 64_000 < totals.shops < 70_000


def test_a_flight_has_the_columns_that_the_flights_pipeline_reads():
    flights = [json.loads(line) for line in flights_file(0).splitlines()]

    assert len(flights) == FLIGHTS_PER_FILE
    assert all(flight.keys() == columns(FLIGHT) for flight in flights)


def test_flights_are_laid_out_in_files_of_equal_length_in_the_order_of_their_times(tmp_path):
    lay_out_flights(tmp_path, flights=3, files=2)

    first, second = sorted(tmp_path.iterdir())
    assert [len(path.read_text().splitlines()) for path in (first, second)] == [3, 3]
    assert first.stat().st_mtime < second.stat().st_mtime
    assert first.read_text() != second.read_text()
