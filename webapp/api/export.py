"""Entries as files: CSV, JSON lines, Arrow; the same columns in each, key parts first, then measures.

Every writer takes batches of rows and gives bytes for each, so a state of any size goes through in the memory of one
batch. A null is an empty field in CSV. Numbers of any precision (`numeric`) are text in Arrow, since a column of its
decimals has one precision for all; JSON values are text in CSV and Arrow.
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
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.exceptions import ParseError

from state_backends.types import SqlType, type_of
from webapp.accounts.permissions import KeyScope
from webapp.api.entries import Question, whole_number
from webapp.api.question import LARGEST_TXID
from webapp.core.metrics import exported
from webapp.states import readers

Columns = Mapping[str, str]
Rows = Sequence[tuple[Any, ...]]
Cell = Callable[[Any], Any]


@dataclass(frozen=True)
class Format:
    """write: columns, name to SQL type, and batches of rows to bytes."""

    media_type: str
    content_type: str
    write: Callable[[Columns, Iterable[Rows]], Iterator[bytes]]


def csv_lines(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    cells = [_csv_cell(type_of(sql_type)) for sql_type in columns.values()]
    yield _csv([list(columns)])
    for rows in batches:
        yield _csv([_converted(row, cells) for row in rows])


def json_lines(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    names = list(columns)
    cells = [_json_cell(type_of(sql_type)) for sql_type in columns.values()]
    for rows in batches:
        lines = [dict(zip(names, _converted(row, cells), strict=True)) for row in rows]
        yield b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


def arrow_stream(columns: Columns, batches: Iterable[Rows]) -> Iterator[bytes]:
    schema = pa.schema([(name, type_of(sql_type).arrow) for name, sql_type in columns.items()])
    cells = [_arrow_cell(type_of(sql_type)) for sql_type in columns.values()]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for rows in batches:
            converted = [_converted(row, cells) for row in rows]
            arrays = [pa.array([row[place] for row in converted], field.type) for place, field in enumerate(schema)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


FORMATS = {
    "csv": Format("text/csv", "text/csv; charset=utf-8", csv_lines),
    "ndjson": Format("application/x-ndjson", "application/x-ndjson", json_lines),
    "arrow": Format("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream", arrow_stream),
}


def _converted(row: tuple[Any, ...], cells: Sequence[Cell]) -> list[Any]:
    return [value if value is None else cell(value) for cell, value in zip(cells, row, strict=True)]


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _taken(sink: io.BytesIO) -> bytes:
    """Return what was written since the last time."""
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def _csv_cell(sql_type: SqlType) -> Cell:
    if sql_type.python in (float, Decimal):
        return _number_as_text
    if sql_type.python is bool:
        return lambda value: "true" if value else "false"
    return _arrow_cell(sql_type) if sql_type.is_text_in_arrow else _text


def _json_cell(sql_type: SqlType) -> Cell:
    if sql_type.python is float:
        return lambda value: value if math.isfinite(value) else _number_as_text(value)
    if sql_type.python is Decimal:
        return lambda value: orjson.Fragment(format(value, "f")) if value.is_finite() else _number_as_text(value)
    return _text if sql_type.python is bytes else _utc if sql_type.python is datetime else _same


def _arrow_cell(sql_type: SqlType) -> Cell:
    if sql_type.python is Decimal:
        return _number_as_text
    if sql_type.python is object:
        return lambda value: orjson.dumps(value, default=str).decode()
    return str if sql_type.is_text_in_arrow else _same


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
    # Sessions may have another zone; a file has one.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _same(value: Any) -> Any:
    return value


# Streams: all entries of a range to a client, at one batch, however many there are and however it ends.
#
# An export holds a snapshot of the database and reads on as the client does, so it has a connection of its own, which
# is closed with the response: at the end, at an error, or when the client has gone.


PAGES_ONLY = ("cursor", "search", "order_by")


class Stream:
    """Bytes on their way. chunks: what is sent. held: what is closed with it."""

    def __init__(self, chunks: Iterator[bytes], held: ExitStack) -> None:
        self._chunks = chunks
        self._held = held

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> bytes:
        return next(self._chunks)

    def close(self) -> None:
        # The server may have ended it already, with all that it held.
        with suppress(psycopg.OperationalError):
            self._held.close()


def stream(
    name: str, asked: Mapping[str, str], file_format: str, form: Format, confined: KeyScope, *, only_head: bool
) -> HttpResponseBase:
    """Return the response that streams what a query string asks for. Raises what `entries.page` does."""
    confined.check_state(name)
    for parameter in PAGES_ONLY:
        if parameter in asked:
            raise ParseError(f"{parameter} is for pages; a stream holds all entries of a range, in key order")
    question, limit = Question.of(asked), whole_number(asked, "limit", 1, LARGEST_TXID)
    with ExitStack() as opening:
        conn = opening.enter_context(readers.own_connection())
        _limit(conn)
        export = _export(conn, name, question, confined)
        opening.callback(export.close)
        headers = {
            "Tidemark-Txid": str(export.txid),
            "Content-Disposition": f'attachment; filename="{name}-{export.txid}.{file_format}"',
        }
        if only_head:
            return HttpResponse(content_type=form.content_type, headers=headers)
        chunks = form.write(export.columns, _counted(name, _first(export.batches(), limit)))
        return StreamingHttpResponse(Stream(chunks, opening.pop_all()), content_type=form.content_type, headers=headers)


def _limit(conn: psycopg.Connection) -> None:
    conn.execute(f"SET statement_timeout = {settings.TIDEMARK_STATEMENT_TIMEOUT_MS:d}")
    conn.execute(f"SET idle_in_transaction_session_timeout = {settings.TIDEMARK_STREAM_IDLE_MS:d}")


def _export(conn: psycopg.Connection, name: str, question: Question, confined: KeyScope) -> Any:
    def opened() -> Any:
        reader = readers.reader(conn, name)
        # An export is of one batch, whatever `as_of` says.
        bounds = question.bounds(reader.spec, confined)
        return reader.export(**bounds, measures=question.measures, as_of=question.batch)

    return readers.asked_again(opened)


def _counted(name: str, batches: Iterable[Sequence[tuple[Any, ...]]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    for rows in batches:
        yield rows
        exported(name, len(rows))


def _first(batches: Iterable[Sequence[tuple[Any, ...]]], limit: int | None) -> Iterator[Sequence[tuple[Any, ...]]]:
    left = limit
    for rows in batches:
        if left is None:
            yield rows
            continue
        yield list(islice(rows, left))
        left -= len(rows)
        if left <= 0:
            return
