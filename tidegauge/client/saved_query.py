"""The calls of a saved query. Generated from async_saved_query.py by tools/blocking_client.py: edit that file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidegauge.client import saved_queries
from tidegauge.client.entries import Entry, Page
from tidegauge.client.saved_queries import Parameters, SavedAnswer, SavedPages
from tidegauge.client.values import Time

if TYPE_CHECKING:
    from tidegauge.client.client import Client


class SavedQuery:
    """One saved query of a server: `client.saved_query(name)`, or `client.saved_query(name, version=2)`.

    Its calls take `parameters`, values by name: text, numbers, booleans, times with a zone, dates, UUIDs, or a list if
    the parameter has many values. None: the default. They raise RequestError for an invalid parameter, NotFoundError,
    and GoneError if the query was withdrawn or reads a state that no longer exists.
    """

    def __init__(self, client: "Client", name: str, version: int | None = None) -> None:
        self._client = client
        self.name = name
        self.version = version

    def __repr__(self) -> str:
        return f"{self._client!r}.saved_query({self.name!r}, version={self.version!r})"

    def run(
        self, parameters: Parameters | None = None, *, at_txid: int | None = None, at_time: Time | None = None
    ) -> SavedAnswer:
        """Return the answers of all reads, at one batch; for entries the first page. at_txid, at_time: a batch."""
        steps = saved_queries.run(
            self._client._call(), self.name, self.version, parameters, saved_queries.batch(at_txid, at_time)
        )
        return self._client._transport.run(steps)

    def pages(
        self, parameters: Parameters | None = None, *, at_txid: int | None = None, at_time: Time | None = None
    ) -> Iterator[Page]:
        """Yield the pages of a query whose only read is of entries. Raises InvalidArgumentError for other queries."""
        pages = SavedPages(self.name, self.version, parameters, saved_queries.batch(at_txid, at_time))
        while not pages.ended:
            yield self._client._transport.run(pages.next_entries(self._client._call()))

    def entries(
        self, parameters: Parameters | None = None, *, at_txid: int | None = None, at_time: Time | None = None
    ) -> Iterator[Entry]:
        """Yield the entries, and request the next page when it is needed."""
        for page in self.pages(parameters, at_txid=at_txid, at_time=at_time):
            yield from page

    def table(
        self, parameters: Parameters | None = None, *, at_txid: int | None = None, at_time: Time | None = None
    ) -> list[dict[str, Any]]:
        """Return all rows of a query with one read, over all pages, each a dict by column.

        `pandas.DataFrame`, `polars.DataFrame` and `pyarrow.Table.from_pylist` take them.
        """
        pages, rows = SavedPages(self.name, self.version, parameters, saved_queries.batch(at_txid, at_time)), []
        while not pages.ended:
            rows += (self._client._transport.run(pages.next(self._client._call()))).table()
        return rows

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of only this query."""
        return self._client._transport.run(saved_queries.openapi(self._client._call(), self.name, self.version))
