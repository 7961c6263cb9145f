"""Entries as files: CSV, JSON lines, Arrow. All entries of a range at one batch, of any size, as a stream.

All formats have the same columns, key parts first, then measures. A writer takes batches of rows and gives bytes for
each, so a stream needs the memory of one batch. A null is an empty field in CSV. `numeric` is text in Arrow, because
Arrow's decimals have one precision per column; JSON values are text in CSV and Arrow. Text that a spreadsheet would run
as a formula begins with an apostrophe in CSV, because keys and dead letters are input from outside.

A stream holds a snapshot of the database for as long as its client reads, so it has a connection of its own. It is
closed with the response: at the end, at an error, or when the client disconnects.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import orjson
import psycopg
import pyarrow as pa
from django.conf import settings
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes

from tidegauge.state_backends.spec.types import SqlType, type_of
from tidegauge.webapp.accounts.concurrency import EXPORTS
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.entries import EntriesQuery
from tidegauge.webapp.catalog import readers, replicas
from tidegauge.webapp.core.metrics import exported

ARROW = "application/vnd.apache.arrow.stream"
LINE_END = orjson.Fragment(b"\n")
# With these a cell of a spreadsheet is a formula (OWASP, CSV injection).
FORMULA_STARTS = frozenset("=+-@\t\r\n")

Columns = Mapping[str, str]
Rows = Sequence[Sequence[Any]]
# How a value that is not null is written; None: as it is.
Cell = Callable[[Any], Any] | None


@dataclass(frozen=True)
class Format:
    """write: columns, name to SQL type, and batches of rows to bytes. content: what it is in OpenAPI."""

    media_type: str
    content_type: str
    write: Callable[[Columns, Iterable[Rows]], Iterator[bytes]]
    content: OpenApiTypes = OpenApiTypes.STR


def csv_lines(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    cells = [_csv_cell(type_of(sql_type)) for sql_type in columns.values()]
    yield _csv([list(columns)])
    for rows in batches:
        yield _csv(_converted(rows, cells))


def json_lines(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    names = list(columns)
    cells = [_json_cell(type_of(sql_type)) for sql_type in columns.values()]
    for rows in batches:
        yield _json([dict(zip(names, row, strict=True)) for row in _converted(rows, cells)])


def arrow_stream(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    schema = pa.schema([(name, type_of(sql_type).arrow) for name, sql_type in columns.items()])
    cells = [_arrow_cell(type_of(sql_type)) for sql_type in columns.values()]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for rows in batches:
            values = _by_column(rows, cells)
            arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


FORMATS = {
    "csv": Format("text/csv", "text/csv; charset=utf-8", csv_lines),
    "ndjson": Format("application/x-ndjson", "application/x-ndjson", json_lines),
    "arrow": Format(ARROW, ARROW, arrow_stream, OpenApiTypes.BINARY),
}


def _converted(rows: Rows, cells: Sequence[Cell]) -> Rows:
    return rows if not any(cells) else list(zip(*_by_column(rows, cells), strict=True))


def _by_column(rows: Rows, cells: Sequence[Cell]) -> list[Sequence[Any]]:
    """Return the values of each column. A call per value is most of the time of an export, so few columns have one."""
    return [
        [row[place] for row in rows]
        if cell is None
        else [None if row[place] is None else cell(row[place]) for row in rows]
        for place, cell in enumerate(cells)
    ]


def _csv(rows: Rows) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _json(lines: list[dict[str, Any]]) -> bytes:
    """Write a JSON object per line: all in one call, as a call for each takes ten times as long."""
    parted = orjson.dumps([part for line in lines for part in (line, LINE_END)])
    # JSON has a line feed in a string as an escape, so this is found between two objects only.
    return parted[1:-1].replace(b",\n,", b"\n").removesuffix(b",\n") + b"\n" if lines else b""


def _taken(sink: io.BytesIO) -> bytes:
    """Return what was written since the last call, and empty the sink."""
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def _csv_cell(sql_type: SqlType) -> Cell:
    if sql_type.python in (float, Decimal):
        return _number_as_text
    if sql_type.python is bool:
        return lambda value: "true" if value else "false"
    if sql_type.is_text_in_arrow:
        return _arrow_cell(sql_type)
    if sql_type.name == "text":
        return without_formula
    return None if sql_type.python in (int, date) else _text


def without_formula(value: str) -> str:
    """Return a text that no spreadsheet runs."""
    return f"'{value}" if value[:1] in FORMULA_STARTS else value


def _json_cell(sql_type: SqlType) -> Cell:
    if sql_type.python is float:
        return lambda value: value if math.isfinite(value) else _number_as_text(value)
    if sql_type.python is Decimal:
        return lambda value: orjson.Fragment(format(value, "f")) if value.is_finite() else _number_as_text(value)
    return _text if sql_type.python is bytes else _utc if sql_type.python is datetime else None


def _arrow_cell(sql_type: SqlType) -> Cell:
    if sql_type.python is Decimal:
        return _number_as_text
    if sql_type.python is object:
        return lambda value: orjson.dumps(value, default=str).decode()
    return str if sql_type.is_text_in_arrow else None


def _number_as_text(value: float | Decimal) -> str:
    """Return what PostgreSQL would: no exponent in decimals, `NaN` and `Infinity` by name."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return format(value, "f") if isinstance(value, Decimal) else repr(value).removesuffix(".0")


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return _utc(value).isoformat() if isinstance(value, date | datetime) else value


def _utc(value: Any) -> Any:
    # The session may have another time zone; all times of a file are in UTC.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


class ExportBody:
    """The body of a response. chunks: what is sent. held: what is closed with it."""

    def __init__(self, chunks: Iterator[bytes], held: ExitStack) -> None:
        self._chunks = chunks
        self._held = held

    def __iter__(self) -> "ExportBody":
        return self

    def __next__(self) -> bytes:
        return next(self._chunks)

    def close(self) -> None:
        # PostgreSQL may have ended the session already.
        with suppress(psycopg.OperationalError):
            self._held.close()


def stream(
    name: str, asked: Mapping[str, Any], file_format: str, scope: KeyScope, *, client: str, only_head: bool
) -> HttpResponseBase:
    """Return the response that streams a range. asked: what `ExportParameters` read. client: whose exports it is of.

    Raises TooManyAtOnceError, BusyError, UnknownStateError, KeyShapeError, FilterError, SpecError, OutsideError,
    NotCommittedError, OutOfReachError.
    """
    form = FORMATS[file_format]
    with ExitStack() as opening:
        opening.enter_context(EXPORTS.held(client))
        query = EntriesQuery.of(asked)
        export = replicas.own_connection(opening, lambda conn: _export(conn, name, query, scope))
        opening.callback(export.close)
        headers = {
            "Tidegauge-Epoch": export.epoch,
            "Tidegauge-Txid": str(export.txid),
            "Content-Disposition": f'attachment; filename="{name}-{export.txid}.{file_format}"',
        }
        chunks = form.write(export.columns, _counted(name, _first(export.batches(), asked.get("limit"))))
        return streamed(form, chunks, opening, headers, only_head=only_head)


def streamed(
    form: Format, chunks: Iterator[bytes], opening: ExitStack, headers: Mapping[str, str], *, only_head: bool
) -> HttpResponseBase:
    """Return the response that sends chunks. opening: what is closed after the last one."""
    if only_head:
        # Streaming, like the answer to GET: nothing says that the file is empty.
        return StreamingHttpResponse(content_type=form.content_type, headers=headers)
    return StreamingHttpResponse(ExportBody(chunks, opening.pop_all()), content_type=form.content_type, headers=headers)


def set_timeouts(conn: psycopg.Connection) -> None:
    conn.execute(f"SET statement_timeout = {settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS:d}")
    conn.execute(f"SET idle_in_transaction_session_timeout = {settings.TIDEGAUGE_STREAM_IDLE_MS:d}")


def _export(conn: psycopg.Connection, name: str, query: EntriesQuery, scope: KeyScope) -> Any:
    set_timeouts(conn)

    def opened() -> Any:
        reader = readers.reader(conn, name)
        # `at_txid=committed` needs nothing more: an export always shows one batch.
        at_txid = query.with_batch(conn, name).batch
        return reader.export(**query.bounds(reader.spec, scope), measures=query.measures, at_txid=at_txid)

    return readers.retry_if_redeclared(opened)


def _counted(name: str, batches: Iterable[Rows]) -> Iterator[Rows]:
    for rows in batches:
        yield rows
        exported(name, len(rows))


def _first(batches: Iterable[Rows], limit: int | None) -> Iterator[Rows]:
    left = limit
    for rows in batches:
        if left is None:
            yield rows
            continue
        yield list(islice(rows, left))
        left -= len(rows)
        if left <= 0:
            return
