"""The demo's input is the whole year, one file per day, with time stamps by which a source reads it in order."""

import json

import pytest

from tidegauge.pipelines.demo import lay_out, recount

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "flights"
    lay_out(folder)
    return folder


def test_every_flight_is_in_the_file_of_its_day(folder):
    files = sorted(folder.glob("*.jsonl"))
    flights = [json.loads(line) for file in files for line in file.read_text().splitlines()]

    assert (len(files), files[0].name, files[-1].name) == (365, "2013-01-01.jsonl", "2013-12-31.jsonl")
    assert len(flights) == 336_776
    assert sum(flight["dep_time"] is None for flight in flights) == 8_255


def test_the_files_time_stamps_are_in_the_order_of_their_days(folder):
    files = sorted(folder.glob("*.jsonl"))

    assert [file.name for file in sorted(files, key=lambda file: file.stat().st_mtime)] == [file.name for file in files]


def test_missing_files_are_written_again(folder):
    lost = folder / "2013-07-04.jsonl"
    before = lost.read_bytes()
    lost.unlink()

    lay_out(folder)

    assert lost.read_bytes() == before
    assert [path for path in folder.parent.iterdir() if path != folder] == []


def test_the_recount_has_the_known_numbers_of_the_year():
    states = recount()

    assert {name: len(keys) for name, keys in states.items()} == {
        "flights_by_carrier": 35,
        "flights_by_hour": 19_486,
        "routes": 224,
        "totals": 1,
    }
    assert states["totals"] == {(): (336_776, 8_255)}
