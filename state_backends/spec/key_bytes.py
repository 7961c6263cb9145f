"""Order-preserving encoding of keys as bytes, for stores that sort by bytes and have no types.

The encoding of a part is never a prefix of the encoding of another part of the same type. So keys sort part by part, as
in PostgreSQL, and the encoded first parts of a key are a prefix of its bytes.
"""

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zlib import crc32

from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.types import KEY_TYPES, SqlType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# Masks for the 64 bits of a double.
SIGN, ALL = 1 << 63, (1 << 64) - 1
_UINT32, _UINT64, _DOUBLE = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">d")
_UNSIGNED = {2: struct.Struct(">H"), 4: _UINT32, 8: _UINT64}

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


def microseconds(at: datetime) -> int:
    """Return the microseconds from 1970 to `at`, exactly."""
    return (at - EPOCH) // MICROSECOND


def from_microseconds(number: int) -> datetime:
    return EPOCH + number * MICROSECOND


@cache
def _of_integers(width: int) -> tuple[Encode, Decode]:
    unsigned, offset = _UNSIGNED[width], 1 << 8 * width - 1
    return lambda part: unsigned.pack(part + offset), lambda part: int(unsigned.unpack(part)[0]) - offset


_integer, _from_integer = _of_integers(8)


def _double(number: float) -> bytes:
    # Adding 0.0 turns -0.0 into 0.0, and all bit patterns of a NaN are encoded as one, the largest number, because
    # PostgreSQL takes them for equal.
    bits = _UINT64.unpack(_DOUBLE.pack(math.nan if number != number else number + 0.0))[0]
    return _UINT64.pack(bits ^ (ALL if bits & SIGN and number == number else SIGN))


def _from_double(part: bytes) -> float:
    bits = _UINT64.unpack(part)[0]
    number: float = _DOUBLE.unpack(_UINT64.pack(bits ^ (SIGN if bits & SIGN else ALL)))[0]
    return math.nan if number != number else number


# Python type to encoder and decoder; integers have a pair per width.
FORMS: dict[type, tuple[Encode, Decode]] = {
    str: (lambda part: part.encode() + b"\0", lambda part: part[:-1].decode()),
    bool: (lambda part: b"\1" if part else b"\0", lambda part: part == b"\1"),
    float: (_double, _from_double),
    datetime: (lambda part: _integer(microseconds(part)), lambda part: from_microseconds(_from_integer(part))),
    date: (lambda part: _UINT32.pack(part.toordinal()), lambda part: date.fromordinal(_UINT32.unpack(part)[0])),
    uuid.UUID: (lambda part: part.bytes, lambda part: uuid.UUID(bytes=part)),
}


def form(sql_type: SqlType) -> tuple[Encode, Decode]:
    """Return the encoder and the decoder of key parts of a type."""
    return _of_integers(sql_type.width) if sql_type.python is int else FORMS[sql_type.python]


class KeyBytes:
    """Encodes the keys of one state as bytes and decodes them. Takes keys as `spec.check_key` returns them.

    Text ends with a NUL byte. Integers and times are big-endian with the sign bit inverted. A double is its IEEE bits
    with the sign bit inverted, or all bits if it is negative; NaN is the largest number and -0.0 becomes 0.0.
    """

    def __init__(self, spec: StateSpec) -> None:
        types = [KEY_TYPES[sql_type] for sql_type in spec.key.values()]
        self.encoders = [form(sql_type)[0] for sql_type in types]
        # Text has width 0: it ends at its NUL.
        self._decoders = [(form(sql_type)[1], sql_type.width) for sql_type in types]

    def encode(self, parts: Key) -> bytes:
        """Return the bytes of a key, or of its first parts."""
        return b"".join([encode(part) for encode, part in zip(self.encoders, parts, strict=False)])

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return the bytes of n keys, given as one column per part."""
        encoded = [map(encode, column) for encode, column in zip(self.encoders, columns, strict=True)]
        return list(map(b"".join, zip(*encoded, strict=True)))

    def decode(self, key: bytes) -> Key:
        parts, start = [], 0
        for decode, width in self._decoders:
            stop = start + width if width else key.index(b"\0", start) + 1
            parts.append(decode(key[start:stop]))
            start = stop
        return tuple(parts)


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket, from 0, of a key as bytes."""
    return crc32(key) % buckets


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest bytes greater than all that begin with `prefix`; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
