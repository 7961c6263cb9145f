"""Runs a saved query: its reads, with the values of a client, all at one batch."""

from collections.abc import Sequence
from typing import Any

import psycopg
from rest_framework.exceptions import ParseError

from tidegauge.state_backends import Snapshot
from tidegauge.state_backends.reader.multi_state import until_one_batch
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.entries import EntriesPage, EntriesQuery, InvalidCursorError, PageCursor, read_page
from tidegauge.webapp.api.fields import check_number_of_keys
from tidegauge.webapp.api.lookups import Answer, answer_together, batch_document, batch_of, read
from tidegauge.webapp.api.requests import Lookup, When
from tidegauge.webapp.api.saved_queries.definition import Definition, Read
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.parameters import ParameterError, Values, as_condition, as_json
from tidegauge.webapp.api.saved_queries.selectors import BrokenQueryError, problems_of


def run(
    query: SavedQuery,
    definition: Definition,
    values: Values,
    scope: KeyScope,
    when: When,
    *,
    cursor: str | None,
) -> dict[str, Any]:
    """Return the answer. values: of all parameters. when: the batch. cursor: of a query with one read, of entries.

    Raises BrokenQueryError, ParseError, OutsideError, and what reads of states raise.
    """
    # On the primary: a replica may not have replayed a state yet.
    if found := problems_of(definition):
        raise BrokenQueryError(query, found, scope)
    return read(lambda conn: _run(conn, query, definition, values, scope.of_reads, when, cursor))


def _run(
    conn: psycopg.Connection,
    query: SavedQuery,
    definition: Definition,
    values: Values,
    scope: KeyScope,
    when: When,
    cursor: str | None,
) -> dict[str, Any]:
    # Before they are made: a key of three parameters with a thousand values each stands for a thousand million.
    check_number_of_keys(sum(each.number_of_keys(values) for each in definition.reads))
    try:
        reads = [_composed(each, values) for each in definition.reads]
    except ParameterError as error:
        raise ParseError(str(error)) from None
    page_cursor = None if cursor is None else _checked(cursor, definition.reads[0], reads[0])
    limits = [1 if each.keys is not None else each.typed_limit(values) for each in definition.reads]

    def ask(txid: int | None) -> list[Answer | EntriesPage]:
        pages = [
            _page(conn, each, state.state, txid, page_cursor, limit, scope) if isinstance(each, EntriesQuery) else None
            for each, state, limit in zip(reads, definition.reads, limits, strict=True)
        ]
        keys = [each for each in reads if isinstance(each, Lookup)]
        answers = iter(answer_together(conn, keys, When(at_txid=txid), scope) if keys else [])
        return [next(answers) if page is None else page for page in pages]

    at_txid = batch_of(conn, definition.states[0], when)
    answers = until_one_batch(ask, _snapshot, definition.states, at_txid)
    return {
        "query": query.name,
        "version": query.version,
        **batch_document(_snapshot(answers[0])),
        "answers": [_document(answer, is_paged=definition.is_paged) for answer in answers],
    }


def _composed(template: Read, values: Values) -> Lookup | EntriesQuery:
    """Return what the API's own calls would ask. Raises ParameterError."""
    if template.keys is not None:
        keys = [[as_json(part) for part in key] for key in template.typed_keys(values)]
        return Lookup(template.state, keys, template.measures, template.combine)
    return EntriesQuery(
        prefix=[as_json(part) for part in template.typed_prefix(values)],
        order_by=template.order_by.removeprefix("-") or None,
        descending=template.order_by.startswith("-"),
        measures=template.measures,
        where=[as_condition(each) for each in template.typed_where(values)],
    )


def _checked(text: str, template: Read, composed: Lookup | EntriesQuery) -> PageCursor:
    """Return the cursor of the same query with the same values. Raises InvalidCursorError for another one."""
    cursor = PageCursor.from_text(text)
    cursor.check(template.state, {})
    if not isinstance(composed, EntriesQuery) or EntriesQuery(**{**cursor.query, "at_txid": None}) != composed:
        raise InvalidCursorError(
            "cursor belongs to another query, or to other values; send the values of the first page with it"
        )
    return cursor


def _page(
    conn: psycopg.Connection,
    query: EntriesQuery,
    state: str,
    txid: int | None,
    cursor: PageCursor | None,
    limit: int,
    scope: KeyScope,
) -> EntriesPage:
    at = EntriesQuery(**(vars(query) | {"at_txid": txid} if cursor is None else cursor.query))
    return read_page(conn, state, at, cursor, limit, scope)


def _snapshot(answer: Answer | EntriesPage) -> Snapshot:
    return answer.snapshot


def _document(answer: Answer | EntriesPage, *, is_paged: bool) -> dict[str, Any]:
    of_batch: Sequence[str] = ("epoch", "txid", "batch_time")
    document = {name: value for name, value in answer.document.items() if name not in of_batch}
    if isinstance(answer, EntriesPage) and not is_paged:
        del document["next"]
    return document
