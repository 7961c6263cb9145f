"""The calls of a client. `async_client.py` has the same calls, to await, and this file is written from it."""

import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from tidemark.client import documents, entries, events, exports, lookups
from tidemark.client.calls import Call, Options, Server
from tidemark.client.connection import ApiKey, Connection
from tidemark.client.documents import BatchDocument, PipelineDocument, Run, StateDocument
from tidemark.client.entries import PAGE_ENTRIES, Entry, History, Page, Range
from tidemark.client.events import Event, Feed
from tidemark.client.exports import Export, Format
from tidemark.client.lookups import Answer, Combined, Query, When
from tidemark.client.transport import Transport


class Client:
    """Reads the states of a Tidemark server, over a pool of connections. Threads may share it. Close it, by `with`.

    url: of the web process, or of the proxy in front. key: an API key or token, or a function that returns the current
    one; by default TIDEMARK_API_KEY of the environment. events_url: of the events process, where it has an address of
    its own. timeout: seconds for a call with all its requests and retries; of an iterator, for each page. retries: how
    often at most a request is sent again, after a 429, 502 or 503 or without an answer; what is not safe to repeat is
    sent again only if the server cannot have done it. typed: whether values have the Python types of their columns, or
    are as in JSON. connections: at most. verify: of TLS, as httpx takes it.
    """

    def __init__(
        self,
        url: str,
        key: ApiKey | None = None,
        *,
        events_url: str | None = None,
        timeout: float = Options.timeout,
        retries: int = Options.retries,
        typed: bool = True,
        connections: int = 20,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._connection = Connection(url, key, events_url)
        self._options = Options(timeout, retries, typed=typed)
        self._server = Server()
        self._transport = Transport(self._connection, connections, verify)

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

    def state(self, name: str) -> "State":
        return State(self, name)

    def query(
        self,
        queries: Sequence[Query],
        *,
        as_of: int | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> list[Answer]:
        """Look up keys of several states of one pipeline, all at one batch. Returns an answer per query.

        as_of, min_txid, epoch, wait: as of `State.get_many`.
        """
        when = When(as_of, min_txid, epoch, wait)
        return self._transport.run(lookups.look_up_together(self._call(wait), queries, when))

    def states(self) -> list[StateDocument]:
        return self._transport.run(documents.states(self._call()))

    def pipelines(self) -> list[PipelineDocument]:
        return self._transport.run(documents.pipelines(self._call()))

    def pipeline(self, name: str) -> PipelineDocument:
        return self._transport.run(documents.pipeline(self._call(), name))

    def batches(self, pipeline: str, limit: int = 50) -> list[BatchDocument]:
        """Return a pipeline's batches, newest first."""
        return self._transport.run(documents.batches(self._call(), pipeline, limit))

    def pause(self, pipeline: str) -> PipelineDocument:
        return self._transport.run(documents.steer(self._call(), pipeline, "pause"))

    def resume(self, pipeline: str) -> PipelineDocument:
        return self._transport.run(documents.steer(self._call(), pipeline, "resume"))

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
        """Yield the events of all pipelines, endlessly; after a drop it reconnects. path: after `/events`.

        last_id: of the last event that was seen, to go on from there.
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
        """Yield the changes of a state, of some of its keys, or of those with a prefix, endlessly.

        A drop is resumed where it was. What cannot be resumed is a `Reset`.
        """
        request = events.state_request(state, keys, prefix, measures)
        return self._transport.follow(Feed(self._call, request, state, last_id))

    def _call(self, extra_seconds: float | None = None) -> Call:
        return Call(self._options, self._server, extra_seconds or 0.0)


class State:
    """One state of a server: `client.state(name)`."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"{self._client!r}.state({self.name!r})"

    def info(self) -> StateDocument:
        return self._client._transport.run(documents.state(self._client._call(), self.name))

    def get(
        self,
        key: Any,
        *,
        measures: Sequence[str] | None = None,
        as_of: int | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Any:
        """Return the value of a key, by measure; None if it is missing or expired. Arguments as of `get_many`."""
        query, when = Query(self.name, [key], measures), When(as_of, min_txid, epoch, wait)
        return self._client._transport.run(lookups.get(self._client._call(wait), query, when))

    def get_many(
        self,
        keys: Sequence[Any],
        *,
        measures: Sequence[str] | None = None,
        as_of: int | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Answer:
        """Look up any number of keys, all at one batch. Returns one result per key, in their order.

        keys: tuples of key parts; with one key column, bare values. measures: which; None: all. as_of: answer as after
        this batch. min_txid: wait until this batch is committed; wait: for so many seconds, by default as long as the
        server allows in one request. epoch: of the answer that as_of or min_txid is from.
        Raises NotReachedError, BatchGoneError, OtherEpochError, SnapshotLostError and other ClientErrors.
        """
        query, when = Query(self.name, keys, measures), When(as_of, min_txid, epoch, wait)
        return self._client._transport.run(lookups.look_up(self._client._call(wait), query, when))

    def combine(
        self,
        keys: Sequence[Any],
        *,
        measures: Sequence[str] | None = None,
        as_of: int | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Combined:
        """Fold the values of keys into one: counts add, distinct counts are unions. Arguments as of `get_many`.

        The server folds them in one request, so their number is limited.
        """
        query, when = Query(self.name, keys, measures, combine=True), When(as_of, min_txid, epoch, wait)
        return self._client._transport.run(lookups.combine(self._client._call(wait), query, when))

    def entries(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        search: str | None = None,
        order_by: str | None = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        as_of: int | Literal["committed"] | None = None,
        limit: int | None = None,
        page_size: int = PAGE_ENTRIES,
    ) -> Iterator[Entry]:
        """Yield the entries of a range, page by page.

        prefix: the first parts of the keys. start, stop: keys from here on, and before here. search: keys with a part
        that starts with this text. order_by: a measure, `-flights` for descending order; key order if None. where:
        filters on values, such as `flights>1000`, all of which hold. as_of: a batch, or `committed` for the batch of
        the first page; else each page in key order shows its own. limit: how many entries; None: all. page_size: how
        many per request, up to 1,000.
        Raises PagesGoneError if the batch that the pages show does not stay available.
        """
        for page in self.pages(
            prefix=prefix, start=start, stop=stop, search=search, order_by=order_by, where=where, measures=measures,
            as_of=as_of, limit=limit, page_size=page_size,
        ):  # fmt: skip
            yield from page

    def pages(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        search: str | None = None,
        order_by: str | None = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        as_of: int | Literal["committed"] | None = None,
        limit: int | None = None,
        page_size: int = PAGE_ENTRIES,
    ) -> Iterator[Page]:
        """Yield the pages that `entries` takes its entries from, each with the batch that it shows."""
        wanted = Range(prefix, start, stop, measures, as_of, where)
        pages = entries.pages(self.name, wanted, search, order_by, limit, page_size)
        while not pages.ended:
            yield self._client._transport.run(pages.next(self._client._call()))

    def history(self, key: Any, *, limit: int = 100, before: int | None = None) -> History:
        """Return the committed versions of a key, newest first. before: only versions of earlier batches."""
        return self._client._transport.run(entries.history(self._client._call(), self.name, key, limit, before))

    def export(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        as_of: int | None = None,
        limit: int | None = None,
    ) -> Export:
        """Return all entries of a range, from one batch, as an Arrow stream.

        AsyncClient downloads it first; Client reads it as it comes."""
        wanted = Range(prefix, start, stop, measures, as_of, where)
        steps = exports.opened(self._client._call(), self.name, wanted, limit, "arrow")
        return self._client._transport.export(steps)

    def export_to(
        self,
        file: str | os.PathLike[str],
        format: Format = "arrow",
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        as_of: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Write all entries of a range to a file, which appears once it is complete. Returns the batch they are of."""
        wanted = Range(prefix, start, stop, measures, as_of, where)
        steps = exports.opened(self._client._call(), self.name, wanted, limit, format)
        return self._client._transport.export_to(steps, file)

    def compact(self) -> Run:
        """Request a compaction. Scope of the API key: maintain."""
        return self._client._transport.run(documents.request_run(self._client._call(), self.name, "compaction"))

    def expire(self) -> Run:
        """Request that expired rows are deleted. Scope of the API key: maintain."""
        return self._client._transport.run(documents.request_run(self._client._call(), self.name, "expiry"))
