"""The calls of a client in a program with an event loop. `client.py` has the same calls, without `await`.

That file is written from this one, by `python -m tests.tidemark.client.sync_file`; a test compares them.
"""

import os
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from tidemark.client import documents, entries, events, exports, lookups
from tidemark.client.async_transport import AsyncTransport
from tidemark.client.calls import Call, Options, Server
from tidemark.client.connection import ApiKey, Connection
from tidemark.client.documents import BatchDocument, PipelineDocument, Run, StateDocument
from tidemark.client.entries import PAGE_ENTRIES, Entry, History, Page, Range
from tidemark.client.events import Event, Feed
from tidemark.client.exports import Export, Format
from tidemark.client.lookups import Answer, Combined, Query, When


class AsyncClient:
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
        self._transport = AsyncTransport(self._connection, connections, verify)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def with_options(self, **options: Any) -> Self:
        """Return a client with other options (timeout, retries, typed) that shares the connections of this one."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_options": replace(self._options, **options)}
        return other

    def state(self, name: str) -> "AsyncState":
        return AsyncState(self, name)

    async def query(
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
        return await self._transport.run(lookups.look_up_together(self._call(wait), queries, when))

    async def states(self) -> list[StateDocument]:
        return await self._transport.run(documents.states(self._call()))

    async def pipelines(self) -> list[PipelineDocument]:
        return await self._transport.run(documents.pipelines(self._call()))

    async def pipeline(self, name: str) -> PipelineDocument:
        return await self._transport.run(documents.pipeline(self._call(), name))

    async def batches(self, pipeline: str, limit: int = 50) -> list[BatchDocument]:
        """Return a pipeline's batches, newest first."""
        return await self._transport.run(documents.batches(self._call(), pipeline, limit))

    async def pause(self, pipeline: str) -> PipelineDocument:
        return await self._transport.run(documents.steer(self._call(), pipeline, "pause"))

    async def resume(self, pipeline: str) -> PipelineDocument:
        return await self._transport.run(documents.steer(self._call(), pipeline, "resume"))

    async def runs(
        self, *, state: str | None = None, kind: str | None = None, status: str | None = None, limit: int = 50
    ) -> list[Run]:
        """Return maintenance runs, newest first."""
        return await self._transport.run(documents.runs(self._call(), limit, state=state, kind=kind, status=status))

    async def run(self, run_id: int) -> Run:
        return await self._transport.run(documents.run(self._call(), run_id))

    async def cancel(self, run_id: int) -> Run:
        return await self._transport.run(documents.cancel(self._call(), run_id))

    async def wait_for(self, run_id: int, seconds: float = 600.0) -> Run:
        """Return a maintenance run once it is done, failed or cancelled. Raises DeadlineError."""
        return await self._transport.run(documents.wait_for(self._call(seconds), run_id, seconds))

    def events(self, path: str = "/tide", *, last_id: str = "") -> AsyncIterator[Event]:
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
    ) -> AsyncIterator[Event]:
        """Yield the changes of a state, of some of its keys, or of those with a prefix, endlessly.

        A drop is resumed where it was. What cannot be resumed is a `Reset`.
        """
        request = events.state_request(state, keys, prefix, measures)
        return self._transport.follow(Feed(self._call, request, state, last_id))

    def _call(self, extra_seconds: float | None = None) -> Call:
        return Call(self._options, self._server, extra_seconds or 0.0)


class AsyncState:
    """One state of a server: `client.state(name)`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"{self._client!r}.state({self.name!r})"

    async def info(self) -> StateDocument:
        return await self._client._transport.run(documents.state(self._client._call(), self.name))

    async def get(
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
        return await self._client._transport.run(lookups.get(self._client._call(wait), query, when))

    async def get_many(
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
        return await self._client._transport.run(lookups.look_up(self._client._call(wait), query, when))

    async def combine(
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
        return await self._client._transport.run(lookups.combine(self._client._call(wait), query, when))

    async def entries(
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
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a range, page by page.

        prefix: the first parts of the keys. start, stop: keys from here on, and before here. search: keys with a part
        that starts with this text. order_by: a measure, `-flights` for descending order; key order if None. where:
        filters on values, such as `flights>1000`, all of which hold. as_of: a batch, or `committed` for the batch of
        the first page; else each page in key order shows its own. limit: how many entries; None: all. page_size: how
        many per request, up to 1,000.
        Raises PagesGoneError if the batch that the pages show does not stay available.
        """
        async for page in self.pages(
            prefix=prefix, start=start, stop=stop, search=search, order_by=order_by, where=where, measures=measures,
            as_of=as_of, limit=limit, page_size=page_size,
        ):  # fmt: skip
            for entry in page:
                yield entry

    async def pages(
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
    ) -> AsyncIterator[Page]:
        """Yield the pages that `entries` takes its entries from, each with the batch that it shows."""
        wanted = Range(prefix, start, stop, measures, as_of, where)
        pages = entries.pages(self.name, wanted, search, order_by, limit, page_size)
        while not pages.ended:
            yield await self._client._transport.run(pages.next(self._client._call()))

    async def history(self, key: Any, *, limit: int = 100, before: int | None = None) -> History:
        """Return the committed versions of a key, newest first. before: only versions of earlier batches."""
        return await self._client._transport.run(entries.history(self._client._call(), self.name, key, limit, before))

    async def export(
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
        return await self._client._transport.export(steps)

    async def export_to(
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
        return await self._client._transport.export_to(steps, file)

    async def compact(self) -> Run:
        """Request a compaction. Scope of the API key: maintain."""
        return await self._client._transport.run(documents.request_run(self._client._call(), self.name, "compaction"))

    async def expire(self) -> Run:
        """Request that expired rows are deleted. Scope of the API key: maintain."""
        return await self._client._transport.run(documents.request_run(self._client._call(), self.name, "expiry"))
