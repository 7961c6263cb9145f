"""The calls of a state. Generated from async_state.py by tools/blocking_client.py: edit that file."""

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from tidegauge.client import documents, entries, exports, groups, lookups, series, windows
from tidegauge.client.answers import Answer, Combined
from tidegauge.client.documents import Run, StateDocument
from tidegauge.client.entries import PAGE_ENTRIES, Entry, History, Page, Range
from tidegauge.client.exports import Export, Format
from tidegauge.client.groups import Groups
from tidegauge.client.lookups import Lookup, When
from tidegauge.client.series import Series, Span
from tidegauge.client.values import Time
from tidegauge.client.windows import Windows

if TYPE_CHECKING:
    from tidegauge.client.client import Client


class State:
    """One state of a server: `client.state(name)`."""

    def __init__(self, client: "Client", name: str) -> None:
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
        at_txid: int | None = None,
        at_time: Time | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Any:
        """Return the value of a key, by measure; None if it is missing or expired. Arguments as for `get_many`."""
        lookup, when = Lookup(self.name, [key], measures), When(at_txid, min_txid, epoch, wait, at_time)
        return self._client._transport.run(lookups.get(self._client._call(wait), lookup, when))

    def get_many(
        self,
        keys: Sequence[Any],
        *,
        measures: Sequence[str] | None = None,
        at_txid: int | None = None,
        at_time: Time | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Answer:
        """Look up any number of keys, all at one batch. Returns one result per key, in their order.

        keys: tuples of key parts; with one key column, bare values. measures: their names; None: all. at_txid: answer
        with the values after this batch. at_time: instead, after the last batch whose time is not after this one, with
        a zone. min_txid: wait until this batch is committed. wait: for how many seconds; by default as long as the
        server allows in one request. epoch: of the answer that at_txid or min_txid is from.
        Raises NotReachedError, BatchGoneError, OtherEpochError, SnapshotLostError and other ClientErrors.
        """
        lookup, when = Lookup(self.name, keys, measures), When(at_txid, min_txid, epoch, wait, at_time)
        return self._client._transport.run(lookups.look_up(self._client._call(wait), lookup, when))

    def combine(
        self,
        keys: Sequence[Any],
        *,
        measures: Sequence[str] | None = None,
        at_txid: int | None = None,
        at_time: Time | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Combined:
        """Fold the values of keys into one: counts are added, distinct counts united. Arguments as for `get_many`.

        The number of keys is limited, because the server folds them in one request.
        """
        lookup, when = Lookup(self.name, keys, measures, combine=True), When(at_txid, min_txid, epoch, wait, at_time)
        return self._client._transport.run(lookups.combine(self._client._call(wait), lookup, when))

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
        at_txid: int | Literal["committed"] | None = None,
        at_time: Time | None = None,
        limit: int | None = None,
        page_size: int = PAGE_ENTRIES,
    ) -> Iterator[Entry]:
        """Yield the entries of a range, page by page.

        prefix: the first parts of the keys. start: the first key. stop: the key to end before. search: keys with a part
        that starts with this text. order_by: a measure, `-flights` for descending order; key order if None. where:
        filters on values, such as `flights>1000`, all of which must hold. at_txid: a batch, or `committed` for the
        batch of the first page; None: each page in key order shows the batch committed then. at_time: a time instead.
        limit: how many entries; None: all. page_size: how many per request, up to 1,000.
        Raises PagesGoneError if the batch that the pages show does not stay available.
        """
        for page in self.pages(
            prefix=prefix, start=start, stop=stop, search=search, order_by=order_by, where=where, measures=measures,
            at_txid=at_txid, at_time=at_time, limit=limit, page_size=page_size,
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
        at_txid: int | Literal["committed"] | None = None,
        at_time: Time | None = None,
        limit: int | None = None,
        page_size: int = PAGE_ENTRIES,
    ) -> Iterator[Page]:
        """Yield the entries of a range as pages, each with the batch that it shows. Arguments as for `entries`."""
        wanted = Range(prefix, start, stop, measures, at_txid, where, at_time)
        pages = entries.pages(self.name, wanted, search, order_by, limit, page_size)
        while not pages.ended:
            yield self._client._transport.run(pages.next(self._client._call()))

    def groups(
        self,
        by: Sequence[str],
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        order_by: str | None = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        at_txid: int | None = None,
        at_time: Time | None = None,
        limit: int | None = None,
    ) -> Groups:
        """Fold the entries of a range into one for each value of the key columns `by`, as their aggregators do.

        order_by: a measure of the groups, `-flights` for descending order; in the order of their keys if None. limit:
        how many groups, up to 1,000; 50 if None. Other arguments as for `entries`. The number of keys in the range is
        limited, because the server reads all of them.
        """
        wanted = Range(prefix, start, stop, measures, at_txid, where, at_time)
        steps = groups.groups(self._client._call(), self.name, by, wanted, order_by, limit)
        return self._client._transport.run(steps)

    def windows(
        self,
        keys: Sequence[Any],
        lengths: str | timedelta | Sequence[str | timedelta],
        *,
        to: Time | None = None,
        measures: Sequence[str] | None = None,
        at_txid: int | None = None,
        at_time: Time | None = None,
        min_txid: int | None = None,
        epoch: str | None = None,
        wait: float | None = None,
    ) -> Windows:
        """Fold keys of a state with tiles over trailing windows: `windows(["/home"], ["1h", "24h", "7d"])`.

        keys: without the key column that holds the tile. lengths: of the windows, such as `24h`, or `timedelta`.
        to: event time at which they end, with a zone; now if None, or the time of the batch that is asked for.
        Each window is extended to the start of a tile; `windows` of the result says which interval it covers. Other
        arguments as for `get_many`. The number of tiles is limited, because the server folds them in one request.
        Raises GoneError for a window that begins before the oldest tiles that are kept, NotReachedError.
        """
        when = When(at_txid, min_txid, epoch, wait, at_time)
        steps = windows.windows(self._client._call(), self.name, keys, lengths, to, measures, when)
        return self._client._transport.run(steps)

    def history(self, key: Any, *, limit: int = 100, cursor: str | None = None) -> History:
        """Return the committed versions of a key, newest first. cursor: `next` of the page before."""
        return self._client._transport.run(entries.history(self._client._call(), self.name, key, limit, cursor))

    def series(
        self,
        key: Any,
        *,
        measures: Sequence[str] | None = None,
        start: Time | None = None,
        stop: Time | None = None,
        last: int | None = None,
        points: int | None = None,
    ) -> Series:
        """Return the numbers that a key held over a range of time; a value holds until the next time.

        start, stop: times with a zone; stop: now if None. last: instead of start, how many seconds before stop; 3,600
        if None. points: about how many at most, up to 1,000; 300 if None.
        """
        steps = series.of_key(self._client._call(), self.name, key, measures, Span(start, stop, last, points))
        return self._client._transport.run(steps)

    def export(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        where: Sequence[str] = (),
        measures: Sequence[str] | None = None,
        at_txid: int | None = None,
        at_time: Time | None = None,
        limit: int | None = None,
    ) -> Export:
        """Return all entries of a range, from one batch, as an Arrow stream.

        AsyncClient downloads it completely first; Client reads it while it arrives."""
        wanted = Range(prefix, start, stop, measures, at_txid, where, at_time)
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
        at_txid: int | None = None,
        at_time: Time | None = None,
        limit: int | None = None,
    ) -> int:
        """Write all entries of a range to a file, which appears once it is complete. Returns the entries' batch."""
        wanted = Range(prefix, start, stop, measures, at_txid, where, at_time)
        steps = exports.opened(self._client._call(), self.name, wanted, limit, format)
        return self._client._transport.export_to(steps, file)

    def compact(self) -> Run:
        """Request a compaction. The API key needs the scope maintain."""
        return self._client._transport.run(documents.request_run(self._client._call(), self.name, "compaction"))

    def expire(self) -> Run:
        """Request that expired rows are deleted. The API key needs the scope maintain."""
        return self._client._transport.run(documents.request_run(self._client._call(), self.name, "expiry"))
