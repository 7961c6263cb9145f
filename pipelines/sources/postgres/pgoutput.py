"""A decoder for the messages of `pgoutput`, PostgreSQL's own decoding plugin, protocol version 1.

The format is that of the logical replication protocol (PostgreSQL manual, "Logical Replication Message Formats").
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

# Microseconds from 1970 to 2000, where PostgreSQL's clock starts.
PG_EPOCH_MICROS = 946_684_800 * 1_000_000

BEGIN = struct.Struct(">qqI")  # LSN of the commit record, time of the commit, xid
TRUNCATE = struct.Struct(">IB")  # number of relations, flags
LENGTH = struct.Struct(">I")
SHORT = struct.Struct(">H")


class Unchanged(Enum):
    """Stands for a value that was not sent: it is stored out of line (TOAST) and did not change."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Values = list[str | Unchanged | None]
Kind = Literal["insert", "update", "delete", "truncate"]

_ROW: dict[bytes, Kind] = {b"I": "insert", b"U": "update", b"D": "delete"}
_SKIPPED = (b"C", b"O", b"Y", b"M")  # commit, origin, type, an application's own message


class Transaction(NamedTuple):
    """commit_lsn: where its commit record starts. xid: 32 bits. at: time of the commit, microseconds since 1970."""

    commit_lsn: int
    xid: int
    at: int


@dataclass(frozen=True)
class Relation:
    """A table as it was when it was written to. key: the columns of its replica identity."""

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class RowChange(NamedTuple):
    """The change of one row. new, old: values as text, in the order of the relation's columns.

    old: for an update or a delete, what the replica identity gives: the whole row if it is FULL, else only the key.
    """

    kind: Kind
    lsn: int
    transaction: Transaction
    relation: Relation
    new: Values | None
    old: Values | None
    old_is_whole: bool


def decode(messages: Iterable[tuple[int, bytes]]) -> Iterator[RowChange]:
    """Yield the changes in a sequence of (LSN, message), in the order in which their transactions committed.

    Raises ValueError for a message that is not in protocol version 1.
    """
    relations: dict[int, Relation] = {}
    transaction = Transaction(0, 0, 0)
    for lsn, message in messages:
        tag = message[:1]
        if tag == b"B":
            commit_lsn, at, xid = BEGIN.unpack_from(message, 1)
            transaction = Transaction(commit_lsn, xid, at + PG_EPOCH_MICROS)
        elif tag == b"R":
            number, relation = _relation(message)
            relations[number] = relation
        elif tag == b"T":
            for number in _truncated(message):
                if number in relations:
                    yield RowChange("truncate", lsn, transaction, relations[number], None, None, False)
        elif tag in _ROW:
            yield _change(message, lsn, transaction, relations)
        elif tag not in _SKIPPED:
            raise ValueError(f"message {tag!r} at LSN {as_text(lsn)} is not of pgoutput's protocol version 1")


def as_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def as_number(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _change(message: bytes, lsn: int, transaction: Transaction, relations: dict[int, Relation]) -> RowChange:
    (number,) = LENGTH.unpack_from(message, 1)
    old, new, whole, place = None, None, False, 5
    if message[place : place + 1] in (b"K", b"O"):
        whole = message[place : place + 1] == b"O"
        old, place = _values(message, place + 1)
    if message[place : place + 1] == b"N":
        new, place = _values(message, place + 1)
    return RowChange(_ROW[message[:1]], lsn, transaction, relations[number], new, old, whole)


def _values(message: bytes, place: int) -> tuple[Values, int]:
    """Return a row's values and the offset after them."""
    (count,) = SHORT.unpack_from(message, place)
    place += 2
    values: Values = []
    for _ in range(count):
        form = message[place]
        place += 1
        if form == 0x74:  # t: text
            (length,) = LENGTH.unpack_from(message, place)
            place += 4 + length
            values.append(message[place - length : place].decode())
        else:  # n: null, u: unchanged
            values.append(None if form == 0x6E else UNCHANGED)
    return values, place


def _relation(message: bytes) -> tuple[int, Relation]:
    (number,) = LENGTH.unpack_from(message, 1)
    schema, place = _name(message, 5)
    name, place = _name(message, place)
    (count,) = SHORT.unpack_from(message, place + 1)  # past the replica identity
    place += 3
    columns, key = [], []
    for _ in range(count):
        column, after = _name(message, place + 1)
        columns.append(column)
        if message[place]:
            key.append(column)
        place = after + 8  # past type and modifier
    return number, Relation(schema or "pg_catalog", name, tuple(columns), tuple(key))


def _truncated(message: bytes) -> tuple[int, ...]:
    count, _flags = TRUNCATE.unpack_from(message, 1)
    return struct.unpack_from(f">{count}I", message, 1 + TRUNCATE.size)


def _name(message: bytes, place: int) -> tuple[str, int]:
    end = message.index(0, place)
    return message[place:end].decode(), end + 1
