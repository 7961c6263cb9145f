"""Exports: all entries of a range, from one batch, of any size, as Arrow or as a file.

An export that breaks off raises an error, and never returns an incomplete table. pyarrow, pandas and polars are needed
only by the methods that return their types.
"""

import importlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

import httpx

from tidegauge.client.calls import Call, Opened, Request, Steps, path
from tidegauge.client.connection import BROKEN_OFF
from tidegauge.client.entries import Range
from tidegauge.client.errors import IncompleteExportError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow

Format = Literal["arrow", "csv", "ndjson"]

MEDIA_TYPES: Mapping[Format, str] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
}

BUFFER_BYTES = 1 << 20
KEPT_IN_MEMORY_BYTES = 16 << 20  # a larger download is kept on disk


class MissingFormatError(ImportError):
    """The package of the result's type is not installed."""


class Export:
    """Entries as an Arrow stream, all from batch `txid` of `epoch`. Read it only once, and close it or use `with`."""

    def __init__(self, headers: Mapping[str, str], file: IO[bytes]) -> None:
        self.txid = int(headers["tidegauge-txid"])
        self.epoch = headers["tidegauge-epoch"]
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def reader(self) -> "pyarrow.RecordBatchReader":
        """Return a reader of record batches, which holds one batch in memory. `numeric` columns are text."""
        reader: pyarrow.RecordBatchReader = _package("pyarrow.ipc", "reader()").open_stream(self._file)
        return reader

    def to_pandas(self) -> "pandas.DataFrame":
        _package("pandas", "to_pandas()")
        table: pandas.DataFrame = self.reader().read_pandas()
        return table

    def to_polars(self) -> "polars.DataFrame":
        frame: polars.DataFrame = _package("polars", "to_polars()").from_arrow(self.reader().read_all())
        return frame


class Content(io.RawIOBase):
    """The content of an answer as a file that is read while the content arrives."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self._parts = answer.iter_bytes()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with naming_the_break():
            while not self._rest:
                part = next(self._parts, None)
                if part is None:
                    return 0
                self._rest = part
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        self._answer.close()
        super().close()


def opened(call: Call, state: str, wanted: Range, limit: int | None, format: Format) -> Steps[Opened]:
    """Begin an export. It fails if no byte arrives within the timeout of the options."""
    asked = wanted.parameters() | {"format": format} | ({} if limit is None else {"limit": str(limit)})
    request = Request("GET", path("states", state, "export"), asked, media_type=MEDIA_TYPES[format])
    return (yield from call.open(request, call.options.timeout))


def batch_of(answer: Opened) -> int:
    return int(answer.headers["tidegauge-txid"])


def as_file(answer: httpx.Response) -> IO[bytes]:
    return io.BufferedReader(Content(answer), BUFFER_BYTES)


def download() -> IO[bytes]:
    """Return a temporary file for an export that is read once it is complete."""
    return tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY_BYTES)


@contextmanager
def whole_file(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file that gets its name only when it is complete, so that no reader sees a part of it."""
    target = Path(target)
    handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(part).replace(target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@contextmanager
def naming_the_break() -> Iterator[None]:
    try:
        yield
    except BROKEN_OFF as error:
        raise IncompleteExportError(f"the export broke off: {type(error).__name__}: {error}") from error


def _package(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingFormatError(
            f"{what} needs the package {error.name!r}, which is not installed", name=error.name
        ) from error
