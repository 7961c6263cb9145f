"""Streams: all entries of a range to a client, at one batch, however many there are and however it ends.

An export holds a snapshot of the database and reads on as the client does, so it has a connection of its own, which is
closed with the response: at the end, at an error, or when the client has gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

import psycopg
from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.exceptions import ParseError

from webapp.api_keys.confinement import Confinement
from webapp.lookup.entries import Question
from webapp.lookup.formats import Format
from webapp.lookup.parameters import whole_number
from webapp.lookup.question import LARGEST_TXID
from webapp.observability.metrics import exported
from webapp.states import specs, stores

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
    name: str, asked: Mapping[str, str], file_format: str, form: Format, confined: Confinement, *, only_head: bool
) -> HttpResponseBase:
    """Return the response that streams what a query string asks for. Raises what `entries.page` does."""
    confined.check_state(name)
    for parameter in PAGES_ONLY:
        if parameter in asked:
            raise ParseError(f"{parameter} is for pages; a stream holds all entries of a range, in key order")
    question, limit = Question.of(asked), whole_number(asked, "limit", 1, LARGEST_TXID)
    with ExitStack() as opening:
        conn = opening.enter_context(stores.own_connection())
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


def _export(conn: psycopg.Connection, name: str, question: Question, confined: Confinement) -> Any:
    def opened() -> Any:
        reader = specs.reader(conn, name)
        # An export is of one batch, whatever `as_of` says.
        bounds = question.bounds(reader.spec, confined)
        return reader.export(**bounds, measures=question.measures, as_of=question.batch)

    return specs.asked_again(opened)


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
