"""The calls of a client. Generated from async_client.py by tools/blocking_client.py: edit that file."""

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from tidegauge.client import documents, events, saved_queries, series
from tidegauge.client.alerts import AlertDocument, AlertPages
from tidegauge.client.answers import Answer
from tidegauge.client.calls import Call, Options, Server
from tidegauge.client.connection import ApiKey, Connection, http_options
from tidegauge.client.documents import BatchDocument, PipelineDocument, Run, StateDocument
from tidegauge.client.errors import InvalidArgumentError
from tidegauge.client.events import Event, Feed
from tidegauge.client.lookups import Lookup, When, look_up_together
from tidegauge.client.saved_queries import SavedQueryDocument
from tidegauge.client.saved_query import SavedQuery
from tidegauge.client.series import Series, Span
from tidegauge.client.state import State
from tidegauge.client.tokens import Renew, Renewal, Token
from tidegauge.client.transport import Transport
from tidegauge.client.values import Time


class Client:
    """Reads the states of a Tidegauge server over a pool of connections. Threads may share it. Close it, or use `with`.

    url: the address of the web process, or of the proxy in front of it. key: an API key or token, or a function that
    returns the current one; by default TIDEGAUGE_API_KEY of the environment. renew: a function that returns a new
    token, a `Token` or its text; it is called before the first request, before the token expires, and when it is
    refused. events_url: the address of the events process, if it differs. timeout: seconds for a call with all its
    requests and retries; for an iterator, for each page. retries: how often a request is sent again at most, after a
    429, 502 or 503 or without an answer; a request that is not safe to repeat is sent again only if the server cannot
    have carried it out. typed: whether values have the Python types of their columns; False: as in JSON. connections:
    their maximum number. verify: for TLS, as in httpx. proxy: its address; None: from the environment (HTTPS_PROXY,
    NO_PROXY).
    """

    def __init__(
        self,
        url: str,
        key: ApiKey | None = None,
        *,
        renew: Renew | None = None,
        events_url: str | None = None,
        timeout: float = Options.timeout,
        retries: int = Options.retries,
        typed: bool = True,
        connections: int = 20,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
    ) -> None:
        if renew is not None and key is not None:
            raise InvalidArgumentError("give either an API key or `renew`, whose tokens are used instead of a key")
        self._renewal = None if renew is None else Renewal(renew)
        self._connection = Connection(url, key if self._renewal is None else self._renewal.text, events_url)
        self._options = Options(timeout, retries, typed=typed)
        self._server = Server()
        self._transport = Transport(self._connection, http_options(connections, verify, proxy))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def with_options(self, **options: Any) -> Self:
        """Return a client with other options (timeout, retries, typed) that shares the connections of this one."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_options": replace(self._options, **options)}
        return other

    def state(self, name: str) -> State:
        return State(self, name)

    def saved_query(self, name: str, version: int | None = None) -> SavedQuery:
        """version: None: the newest version that is published at the time of each call."""
        return SavedQuery(self, name, version)

    def lookup(
        self,
        lookups: Sequence[Lookup],
        *,
        at_txid: int | None = None,
        at_time: Time | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> list[Answer]:
        """Look up keys of several states of one pipeline, all at one batch. Returns an answer per lookup.

        at_txid, at_time, min_txid, epoch, wait: as for `State.get_many`.
        """
        when = When(at_txid, min_txid, epoch, wait, at_time)
        return self._transport.run(look_up_together(self._call(wait), lookups, when))

    def states(self) -> list[StateDocument]:
        return self._transport.run(documents.states(self._call()))

    def saved_queries(self) -> list[SavedQueryDocument]:
        """Return the saved queries that the API key may run."""
        return self._transport.run(saved_queries.saved_queries(self._call()))

    def pipelines(self) -> list[PipelineDocument]:
        return self._transport.run(documents.pipelines(self._call()))

    def pipeline(self, name: str) -> PipelineDocument:
        return self._transport.run(documents.pipeline(self._call(), name))

    def batches(self, pipeline: str, limit: int = 50) -> list[BatchDocument]:
        """Return a pipeline's batches, newest first."""
        return self._transport.run(documents.batches(self._call(), pipeline, limit))

    def series(
        self,
        pipeline: str,
        *,
        start: Time | None = None,
        stop: Time | None = None,
        last: int | None = None,
        points: int | None = None,
    ) -> Series:
        """Return figures of a pipeline over a range of time: rows, seconds, lag, freshness, dead letters and so on.

        start, stop, last, points: as for `State.series`.
        """
        steps = series.of_pipeline(self._call(), pipeline, Span(start, stop, last, points))
        return self._transport.run(steps)

    def alerts(
        self,
        *,
        pipeline: str | None = None,
        state: str | None = None,
        status: Literal["open", "over"] | None = None,
        limit: int | None = None,
    ) -> Iterator[AlertDocument]:
        """Yield the alerts that rules have reported, newest first, page by page. limit: how many; None: all."""
        pages = AlertPages(limit, pipeline=pipeline, state=state, status=status)
        while not pages.ended:
            yield from self._transport.run(pages.next(self._call()))

    def pause(self, pipeline: str) -> PipelineDocument:
        return self._transport.run(documents.steer(self._call(), pipeline, "pause"))

    def resume(self, pipeline: str) -> PipelineDocument:
        return self._transport.run(documents.steer(self._call(), pipeline, "resume"))

    def make_token(
        self,
        *,
        states: Sequence[str] | None = None,
        key_prefix: Any = None,
        lifetime_seconds: int | None = None,
        sub: str | None = None,
        rate: int | None = None,
        burst: int | None = None,
    ) -> Token:
        """Make a short-lived token that can only read. The API key needs the scopes read and issue_tokens.

        states, key_prefix: what the token is restricted to, never more than the API key may read. lifetime_seconds: 600
        if None. sub: your own name for its user, who can read it. rate: requests per minute. burst: requests at once.
        """
        return self._transport.run(
            documents.make_token(
                self._call(), states, key_prefix, lifetime_seconds=lifetime_seconds, sub=sub, rate=rate, burst=burst
            )
        )

    def runs(
        self, *, state: str | None = None, kind: str | None = None, status: str | None = None, limit: int = 50
    ) -> list[Run]:
        """Return maintenance runs, newest first."""
        return self._transport.run(documents.runs(self._call(), limit, state=state, kind=kind, status=status))

    def run(self, run_id: int) -> Run:
        return self._transport.run(documents.run(self._call(), run_id))

    def cancel(self, run_id: int) -> Run:
        return self._transport.run(documents.cancel(self._call(), run_id))

    def wait_for(self, run_id: int, seconds: float = 600.0) -> Run:
        """Return a maintenance run once it is done, failed or cancelled. Raises DeadlineError."""
        return self._transport.run(documents.wait_for(self._call(seconds), run_id, seconds))

    def events(self, path: str = "/tide", *, last_id: str = "") -> Iterator[Event]:
        """Yield the events of all pipelines without end; it reconnects when the connection drops.

        path: the part after `/events`. last_id: the id of the last event that was seen, to continue after it.
        """
        return self._transport.follow(Feed(self._call, events.request(path), None, last_id))

    def watch(
        self,
        state: str,
        *,
        keys: Sequence[Any] | None = None,
        prefix: Any = None,
        measures: Sequence[str] | None = None,
        last_id: str = "",
    ) -> Iterator[Event]:
        """Yield the changes of a state, of some of its keys, or of the keys with a prefix, without end.

        When the connection drops, it continues after the last event. If that is not possible, it yields a `Reset`.
        """
        request = events.state_request(state, keys, prefix, measures)
        return self._transport.follow(Feed(self._call, request, state, last_id))

    def _call(self, extra_seconds: float | None = None) -> Call:
        return Call(self._options, self._server, self._renewal, extra_seconds or 0.0)
