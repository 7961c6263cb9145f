"""Whole ranges as streams: complete, of one batch, in bounded memory, and closed when the client disconnects."""

import json
import select
import tracemalloc
from urllib.parse import urlencode

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.catalog import readers

STATE = "/states/flights_by_carrier"


@pytest.fixture
def api(lasting, api):
    return api


@pytest.fixture
def opened(monkeypatch):
    """The connections that streams open."""
    connections = []
    open_connection = readers.own_connection

    def record(*work):
        connections.append(open_connection(*work))
        return connections[-1]

    monkeypatch.setattr(readers, "own_connection", record)
    return connections


def streamed(api, file_format="ndjson", path=STATE, **parameters):
    return api.ask("GET", f"{path}/export?format={file_format}&{urlencode(parameters)}")


def lines(response):
    return [json.loads(line) for line in response.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("file_format", "media_type"),
    [("csv", "text/csv"), ("ndjson", "application/x-ndjson"), ("arrow", "application/vnd.apache.arrow.stream")],
)
def test_the_parameter_chooses_the_format(api, file_format, media_type):
    response = streamed(api, file_format)

    assert response.headers["Content-Type"].startswith(media_type)
    assert response.headers["Tidegauge-Txid"] == "2"
    assert response.headers["Content-Disposition"] == (f'attachment; filename="flights_by_carrier-2.{file_format}"')
    response.close()


def test_the_whole_state_comes_in_key_order(api):
    rows = lines(streamed(api))

    assert len(rows) == 60
    assert rows[0] == {"origin": "EWR", "carrier": "C00", "flights": 1100, "mean_delay": 12.5, "max_delay": 1040.0}
    assert rows == sorted(rows, key=lambda row: (row["origin"], row["carrier"]))


def test_arrow_has_the_rows_of_json_lines(api):
    with pa.ipc.open_stream(streamed(api, "arrow").getvalue()) as reader:
        table = reader.read_all()

    assert table.to_pylist() == lines(streamed(api))


def test_a_range_has_the_requested_measures_and_number_of_rows(api):
    rows = lines(streamed(api, prefix="JFK", **{"from": '["JFK", "C05"]'}, measures="flights", limit=2))

    assert rows == [{"origin": "JFK", "carrier": f"C0{n}", "flights": 100 - n} for n in (5, 6)]


def test_an_earlier_batch_may_be_streamed(api, lasting):
    lasting.commit({("AAA", "C00"): 1})
    [(time,)] = lasting.conn.execute("SELECT batch_time FROM tidegauge.batch WHERE pipeline = 'flights' AND txid = 2")

    for when in ({"at_txid": 2}, {"at_time": time.isoformat()}):
        response = streamed(api, **when)

        assert response.headers["Tidegauge-Txid"] == "2"
        assert len(lines(response)) == 60


def test_what_is_committed_meanwhile_is_not_in_it(api, lasting, monkeypatch):
    response = streamed(api)
    chunks = iter(response)
    lasting.commit({("EWR", "C00"): 1, ("ZZZ", "C00"): 1})

    rows = [json.loads(line) for chunk in chunks for line in chunk.splitlines()]

    assert (len(rows), rows[0]["flights"]) == (60, 1100)


def test_a_state_in_redis_streams_too(api):
    with readers.own_connection() as conn, redis_views(conn) as views:
        views.commit({f"page {n:03}": n for n in range(150)})
        response = streamed(api, path=f"/states/{views.name}", measures="views")
        rows = lines(response)
        response.close()

    assert rows == [{"page": f"page {n:03}", "views": n} for n in range(150)]


class TestEnd:
    def test_the_connection_is_closed_at_the_end(self, api, opened):
        response = streamed(api)
        response.getvalue()
        response.close()

        assert [conn.closed for conn in opened] == [True]

    @pytest.mark.parametrize("read", [0, 1])
    def test_the_connection_is_closed_when_the_client_disconnects(self, api, opened, read):
        response = streamed(api)
        for _ in zip(range(read), response, strict=False):
            pass

        response.close()

        assert [conn.closed for conn in opened] == [True]

    def test_a_stream_that_fails_at_the_start_leaves_no_connection(self, api, opened):
        response = streamed(api, at_txid=3)

        assert (response.status_code, response.json()["committed_txid"]) == (409, 2)
        assert [conn.closed for conn in opened] == [True]

    def test_a_head_request_closes_its_connection(self, api, opened):
        response = api.head(f"/api/v1{STATE}/export?format=csv")

        assert (response.status_code, b"".join(response), response.headers["Tidegauge-Txid"]) == (200, b"", "2")
        assert [conn.closed for conn in opened] == [True]

    def test_a_client_that_stops_reading_loses_its_session(self, api, opened, settings):
        settings.TIDEGAUGE_STREAM_IDLE_MS = 50
        response = streamed(api)

        # PostgreSQL sends the error and closes the connection.
        select.select([opened[0].pgconn.socket], [], [], 10)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            opened[0].execute("SELECT 1")

        response.close()
        assert opened[0].closed


@pytest.mark.parametrize("name", ["cursor", "search", "order_by"])
def test_parameters_of_pages_are_refused(api, name):
    response = streamed(api, **{name: "flights"})

    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    assert f"unknown parameter '{name}'; there are at_time, at_txid, format, from, limit" in response.json()["detail"]


@pytest.mark.parametrize(
    ("parameter", "accept", "media_type"),
    [
        ("", "*/*", "text/csv"),
        ("", "application/x-ndjson", "application/x-ndjson"),
        ("?format=ndjson", "text/csv", "application/x-ndjson"),
        ("?format=ndjson", "text/html", "application/x-ndjson"),
    ],
)
def test_without_the_parameter_accept_chooses_the_format(api, parameter, accept, media_type):
    response = api.ask("GET", f"{STATE}/export{parameter}", headers={"Accept": accept})

    assert response.headers["Content-Type"].partition(";")[0] == media_type
    assert {"Accept", "Authorization"} <= set(response.headers["Vary"].split(", "))
    response.close()


def test_an_unknown_format_is_refused(api):
    by_name = api.ask("GET", f"{STATE}/export?format=json")

    assert by_name.status_code == 400
    assert by_name.json()["detail"] == "format must be one of csv, ndjson, arrow, got 'json'"
    assert api.ask("GET", f"{STATE}/export", headers={"Accept": "application/json"}).status_code == 406


def test_a_request_for_a_file_of_entries_is_a_406_that_names_the_path(api):
    response = api.ask("GET", f"{STATE}/entries", headers={"Accept": "text/csv"})

    assert response.status_code == 406
    assert response.json()["detail"] == (
        "pages of entries are JSON; for csv, ndjson, arrow GET /api/v1/states/flights_by_carrier/export"
    )


def test_a_large_state_goes_through_in_little_memory(api, lasting):
    """200,000 rows are about 60 MB as Python values; a batch of them is about 2."""
    spec = StateSpec("large", key={"k": "bigint"}, measures={"n": Count()})
    Catalog(lasting.conn).register_states("flights", [spec], {"large": "exactly once"})
    columns = sql.SQL("INSERT INTO tidegauge_state.large (k, n, txid, updated_at) ")
    lasting.conn.execute(columns + sql.SQL("SELECT g, g, 1, now() FROM generate_series(1, 200000) g"))
    size = 0
    try:
        tracemalloc.start()
        response = streamed(api, "csv", path="/states/large")
        for chunk in response:
            size += len(chunk)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        response.close()

    assert size > 2_500_000
    assert most < 12_000_000
