"""Exports of a client: as Arrow, pandas, polars and files, typed values, and what happens when one breaks off."""

import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from tests.webapp.api.states import add_state
from tests.webapp.client.cutting_proxy import cutting_proxy
from tests.webapp.flights import FIRST_HOUR
from tidegauge.client import IncompleteExportError, MissingFormatError, NotFoundError, RequestError
from tidegauge.state_backends import Count, First, Max, StateSpec, Sum

LARGE = StateSpec("large", key={"k": "bigint", "name": "text"}, measures={"n": Count()})
ROWS = 60_000

EXACT = Decimal("12345678901234567890.123456789")
MONEY = StateSpec(
    "money",
    key={"id": "uuid", "day": "date", "share": "double precision"},
    measures={
        "amount": Sum("amount"),
        "largest": Max("x"),
        "last": Max("at", "timestamptz"),
        "who": First("who", "at", "text"),
        "big": Sum("n", type="bigint"),
    },
)
WHO, DAY, AT = UUID(int=7), date(2013, 2, 28), datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def large(flights):
    add_state(flights.conn, LARGE, {})
    flights.conn.execute(
        "INSERT INTO tidegauge_state.large (k, name, n, txid, updated_at) "
        "SELECT g, repeat('x', 200), g, 1, now() FROM generate_series(1, %s) g",
        [ROWS],
    )


def test_entries_are_record_batches_of_one_batch(reading):
    with reading.state("flights_by_carrier").export(prefix="JFK", measures=["flights"]) as export:
        table = export.reader().read_all()

    assert (table.num_rows, table.column_names, export.txid) == (30, ["origin", "carrier", "flights"], 2)
    assert sum(table["flights"].to_pylist()) == sum(range(71, 101))
    assert export.epoch


def test_entries_become_a_frame_of_pandas(reading):
    with reading.state("flights_by_hour").export(at_txid=1) as export:
        frame = export.to_pandas()

    assert list(frame["hour"]) == [FIRST_HOUR, FIRST_HOUR]
    assert export.txid == 1


def test_entries_become_a_frame_of_polars(reading):
    with reading.state("flights_by_carrier").export(start=("JFK", "C10"), limit=5) as export:
        frame = export.to_polars()

    assert frame["carrier"].to_list() == ["C10", "C11", "C12", "C13", "C14"]
    assert frame["flights"].sum() == 90 + 89 + 88 + 87 + 86


@pytest.mark.parametrize(("package", "call"), [("pyarrow", "reader"), ("pandas", "to_pandas"), ("polars", "to_polars")])
def test_a_package_that_is_missing_is_named(reading, monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.ipc", None)

    with (
        reading.state("totals").export() as export,
        pytest.raises(MissingFormatError, match=rf"{call}\(\) needs .*{package}"),
    ):
        getattr(export, call)()


@pytest.mark.parametrize(("format", "start"), [("csv", b"origin,carrier,flights"), ("ndjson", b'{"origin":')])
def test_entries_are_written_to_a_file(reading, tmp_path, format, start):
    file = tmp_path / f"flights.{format}"

    txid = reading.state("flights_by_carrier").export_to(file, format, prefix="JFK", measures=["flights"])

    assert txid == 2
    assert file.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [file]


def test_a_large_export_is_read_as_it_comes(client, large):
    with client.state("large").export() as export:
        counts = [batch.num_rows for batch in export.reader()]

    assert (sum(counts), len(counts) > 3) == (ROWS, True)


def test_an_export_that_breaks_off_is_an_error_and_no_short_table(web, large, connect):
    with cutting_proxy(web.port, cut_after=2_000_000) as proxy, pytest.raises(IncompleteExportError, match="broke off"):
        connect(proxy.url).state("large").export().to_polars()


def test_an_export_that_breaks_off_leaves_no_file(web, large, connect, tmp_path):
    with cutting_proxy(web.port, cut_after=2_000_000) as proxy, pytest.raises(IncompleteExportError):
        connect(proxy.url).state("large").export_to(tmp_path / "large.csv", "csv")

    assert list(tmp_path.iterdir()) == []


def test_an_export_that_does_not_begin_is_begun_again(web, flights, connect):
    with cutting_proxy(web.port, cut_after=20) as proxy, connect(proxy.url).state("totals").export() as export:
        assert export.reader().read_all().num_rows == 1

    assert proxy.cuts == 1


def test_an_export_of_an_unknown_state_is_an_error(reading):
    with pytest.raises(NotFoundError):
        reading.state("nothing").export()


def test_values_keep_every_digit_and_their_type(client, flights):
    row = {"amount": EXACT, "largest": math.inf, "last": AT, "who": "ann", "who_at": AT, "big": 2**63 - 1}
    stored = {name: row.get(name) for name in MONEY.value_columns}
    key = (WHO, DAY, 0.5)
    add_state(flights.conn, MONEY, {key: stored})
    value = client.state("money").get(key)
    [entry] = client.state("money").entries()
    missing = client.state("money").get((WHO, DAY, 2))

    assert entry.key == key
    assert (value["amount"], value["last"], value["big"], missing) == (EXACT, AT, 2**63 - 1, None)
    assert value["largest"] == math.inf
    assert {name: type(each) for name, each in value.items()} == {
        "amount": Decimal, "largest": float, "last": datetime, "who": str, "big": int,
    }  # fmt: skip


def test_a_key_that_json_cannot_say_is_refused(reading):
    with pytest.raises(ValueError, match="has no time zone"):
        reading.state("flights_by_hour").get((datetime(2013, 1, 1, 10), "JFK"))


def test_a_part_of_a_key_that_is_no_number_is_sent_as_it_is_answered(reading):
    with pytest.raises(RequestError, match="invalid_key: key 0: hour must be timestamptz, got 'NaN'"):
        reading.state("flights_by_hour").get((math.nan, "JFK"))
