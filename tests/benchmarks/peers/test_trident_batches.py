"""Trident reads the same sales as Tidegauge, and its totals are checked against them."""

import pyarrow.dataset as ds
import pytest

from benchmarks.input_files import Totals
from benchmarks.peers.trident_batches import HASH, Size, _check, _lay_out, _trident_totals
from benchmarks.servers import redis_client

SIZE = Size(events=200, files=3, warm_up=1, passes=2)


def test_the_lines_are_the_rows_of_the_parquet_files(tmp_path):
    sales = _lay_out(SIZE, tmp_path)

    rows = ds.dataset(sales.parquet).to_table().to_pylist()
    lines = [line.split(",") for file in sorted(sales.csv.iterdir()) for line in file.read_text().splitlines()]
    assert sorted((shop, float(x)) for shop, x in lines) == sorted((row["shop"], row["x"]) for row in rows)
    assert [file.stem for file in sorted(sales.csv.iterdir())] == [f.stem for f in sorted(sales.parquet.iterdir())]
    assert len(lines) == sales.totals.n == 600


def test_totals_are_those_of_the_current_values():
    with redis_client() as client:
        client.hset(HASH, mapping={"shop-1": "[3,[2,40.5],[1,20.0]]", "shop-2": "[1,[1,7.0],null]"})

        assert _trident_totals(client) == Totals(shops=2, n=3, total=47.5)


def test_totals_of_another_number_of_reads_are_refused():
    once = Totals(shops=2, n=3, total=47.5)

    _check(Totals(2, 6, 95.0), once, passes=2)
    with pytest.raises(RuntimeError, match="read 2 times"):
        _check(Totals(2, 7, 95.0), once, passes=2)
