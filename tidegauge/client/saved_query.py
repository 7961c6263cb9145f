"""The calls of a saved query. Generated from async_saved_query.py by tools/blocking_client.py: edit that file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidegauge.client import saved_queries
from tidegauge.client.entries import Entry, Page
from tidegauge.client.saved_queries import Parameters, SavedAnswer, SavedPages

if TYPE_CHECKING:
    from tidegauge.client.client import Client


class SavedQuery:
    """One saved query of a server: `client.saved_query(name)`, or `client.saved_query(name, version=2)`.

    Its calls take `parameters`, values by name: text, numbers, booleans, times with a zone, dates, UUIDs; a list for
    one that has many values. None: the default. They raise RequestError for a wrong one, NotFoundError, and GoneError
    for a query that was withdrawn or reads what is no longer there.
    """

    def __init__(self, client: "Client", name: str, version: int | None = None) -> None:
        self._client = client
        self.name = name
        self.version = version

    def __repr__(self) -> str:
        return f"{self._client!r}.saved_query({self.name!r}, version={self.version!r})"

    def run(self, parameters: Parameters | None = None, *, as_of: int | None = None) -> SavedAnswer:
        """Return the answers of all reads, all at one batch; of entries, the first page. as_of: as after this batch."""
        steps = saved_queries.run(self._client._call(), self.name, self.version, parameters, as_of)
        return self._client._transport.run(steps)

    def pages(self, parameters: Parameters | None = None, *, as_of: int | None = None) -> Iterator[Page]:
        """Yield the pages of a query with one read, of entries. Raises InvalidArgumentError for another query."""
        pages = SavedPages(self.name, self.version, parameters, as_of)
        while not pages.ended:
            yield self._client._transport.run(pages.next_entries(self._client._call()))

    def entries(self, parameters: Parameters | None = None, *, as_of: int | None = None) -> Iterator[Entry]:
        """Yield the entries of the pages, as they are needed."""
        for page in self.pages(parameters, as_of=as_of):
            yield from page

    def table(self, parameters: Parameters | None = None, *, as_of: int | None = None) -> list[dict[str, Any]]:
        """Return all rows of a query with one read, over all pages, each a dict by column.

        `pandas.DataFrame`, `polars.DataFrame` and `pyarrow.Table.from_pylist` take them.
        """
        pages, rows = SavedPages(self.name, self.version, parameters, as_of), []
        while not pages.ended:
            rows += (self._client._transport.run(pages.next(self._client._call()))).table()
        return rows

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of this query alone."""
        return self._client._transport.run(saved_queries.openapi(self._client._call(), self.name, self.version))
