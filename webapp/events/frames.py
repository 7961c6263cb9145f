"""Server-sent events as text (WHATWG HTML, 9.2): an event per block, its data one line of JSON."""

from dataclasses import dataclass
from typing import Any

import orjson

HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, ready to send, so that it is written once for all who get it."""

    event: str
    body: bytes


def frame(event: str, data: dict[str, Any], txid: int | None = None) -> Frame:
    """Return an event. txid: becomes its id, which a client that comes again names in `Last-Event-ID`."""
    number = b"" if txid is None else b"id: %d\n" % txid
    return Frame(event, b"event: %s\n%sdata: %s\n\n" % (event.encode(), number, orjson.dumps(data)))


def standing(txid: int) -> bytes:
    """Return a block that moves a client's last id on and tells it nothing."""
    return b"id: %d\n\n" % txid


def retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds
