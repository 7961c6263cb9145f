"""Lookups on the event loop: what the view does in a thread, without one.

A thread costs a lookup as much as its statement does. Nearly every lookup finds its API key, its state's definition and
its turn of the rate limit in the memory of the process, and then waits for one statement alone. All other requests, and
those that are refused, are left to a thread, where Django asks the database again and says what is wrong.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from django.contrib.auth.models import AnonymousUser
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse
from rest_framework.views import APIView

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.reader.reader import LedgerRow, Reader, ShownRows
from tidegauge.state_backends.steps import run_on_loop
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.accounts.rate_limits import on_loop
from tidegauge.webapp.accounts.throttling import TAKEN, RateLimit, taking_of_key
from tidegauge.webapp.api.lookups import Answer, answer_with, check_epoch, etags_of, still_valid, typed_keys
from tidegauge.webapp.api.requests import Lookup, When
from tidegauge.webapp.catalog import readers, replicas

# More keys, folds and earlier batches go to threads, because the loop and its few connections are for what is quick.
MOST_KEYS = 500
# Of stores outside of the database, whose rows become JSON here, in some 10 microseconds each.
MOST_SHOWN_KEYS = 100


class ForAThreadError(Exception):
    """The request needs a thread, for one of many reasons, of which none is an error."""


class Database(Protocol):
    """The database as a request on the event loop has it."""

    async def first_row(self, statement: bytes, parameters: Sequence[Any]) -> Any:
        """Return the first row of a statement; None if it has none."""

    async def shown_rows(self, spec: StateSpec, step: ShownRows) -> Any:
        """Return what `multi_get_committed` does for a state whose rows are outside of the database."""

    async def wait_for(self, state: str, txid: int, seconds: float) -> bool:
        """Return once a state has this batch, the time is up, or the client has gone; when called again, in a moment.

        Returns whether to look again, which is False once the time is up.
        """


class LoopView(APIView):
    """A view of a state that also answers on the event loop.

    `on_loop` does for a request what the handler of its method does.
    """

    check_parameters: Callable[[Any], None]

    def is_for_loop(self, request: WSGIRequest) -> bool:
        """Return whether a request has a form that `on_loop` answers."""
        raise NotImplementedError

    async def on_loop(self, request: WSGIRequest, database: Database, name: str) -> HttpResponse:
        """Raises ForAThreadError, and what the handler of the request's method does."""
        raise NotImplementedError

    async def answer_on_loop(self, request: Any, database: Database, name: str) -> HttpResponse:
        """Admit a request and answer it, as `dispatch` does in a thread. Raises what `on_loop` does."""
        if not self.is_for_loop(request):
            raise ForAThreadError
        self.setup(request, name=name)
        self.headers = {"Allow": ", ".join(self.allowed_methods)}
        await self._admit_on_loop(request)
        response = await self.on_loop(request, database, name)
        for name, value in self.headers.items():
            response.headers[name] = value
        return response

    async def _admit_on_loop(self, request: Any) -> None:
        key = authentication.fresh(request.META)
        if key is None:
            raise ForAThreadError
        request.user, request.auth, request.authenticators = AnonymousUser(), key, ()
        self.check_permissions(request)
        # Kept for a thread, which must not take from the limit once more.
        request.META[TAKEN] = await on_loop(taking_of_key(key))
        RateLimit().allow_request(request, self)
        self.check_parameters(request)


async def look_up(
    lookup: Lookup, when: When, scope: KeyScope, known: Sequence[str], database: Database
) -> Answer | str:
    """Return what `lookups.look_up` does. Raises ForAThreadError, and what that does."""
    reader, version = await _reader(lookup.state, scope, database)
    keys = typed_keys(reader.spec, lookup.keys, scope)
    if lookup.combine or when.is_past or len(keys) > MOST_KEYS:
        raise ForAThreadError
    known = etags_of(lookup, when, known)
    while True:
        if known and (etag := await _valid_etag(lookup.state, when, known, database)):
            return etag
        steps = reader.multi_get_steps(keys, lookup.measures)
        snapshot = await run_on_loop(steps, partial(_get, reader.spec, database))
        if when.min_txid is None or snapshot.txid >= when.min_txid:
            return answer_with(reader, version, snapshot, lookup, when, known)
        check_epoch(f"state {lookup.state!r}", when, snapshot)
        if not await database.wait_for(lookup.state, when.min_txid, when.wait_ms / 1000):
            raise ForAThreadError


async def spec_of(name: str, scope: KeyScope, database: Database) -> StateSpec:
    """Return what `one_key.spec_of` does. Raises ForAThreadError, OutsideError."""
    spec = (await _reader(name, scope, database))[0].spec
    scope.prefix_of(spec)
    return spec


async def _reader(name: str, scope: KeyScope, database: Database) -> tuple[Reader, tuple[Any, ...] | None]:
    scope.check_state(name)
    if replicas.configured.all:
        raise ForAThreadError
    found = readers.fresh_reader(name)
    if found is None:
        # Here and not in a thread, because that would take one lookup in some hundreds several times as long.
        found = await run_on_loop(readers.checking(name), partial(_row, database))
    if found is None:
        raise ForAThreadError
    return found


async def _valid_etag(state: str, when: When, known: Sequence[str], database: Database) -> str | None:
    row = await database.first_row(readers.BATCH, [state])
    if row is None:  # the state is not registered any more
        raise ForAThreadError
    now = readers.BatchVersion.of(row)
    return None if now.batch.txid < (when.min_txid or 0) else still_valid(state, now, known)


async def _get(spec: StateSpec, database: Database, step: LedgerRow | ShownRows) -> Any:
    if isinstance(step, ShownRows):
        if len(step.keys) > MOST_SHOWN_KEYS:
            raise ForAThreadError
        return await database.shown_rows(spec, step)
    return await _row(database, step)


async def _row(database: Database, step: LedgerRow) -> Any:
    return await database.first_row(step.statement, step.parameters)
