"""Many values in two strings, as scripts take and give them: what redis-py sends and parses costs it time per value.

The first string holds the lengths, four bytes each and -1 for a null; the second holds the values, end to end.
The other half is packing.lua.
"""

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

NULL = -1


def pack(values: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    lengths = [NULL if value is None else len(value) for value in values]
    return struct.pack(f"<{len(lengths)}i", *lengths), b"".join(filter(None, values))


def pack_array(values: pa.Array) -> tuple[bytes, bytes]:
    """Return the same of an Arrow array of binary, without a Python object per value."""
    lengths = pc.fill_null(pc.binary_length(values), NULL).cast(pa.int32())
    one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pc.fill_null(values, b""))
    return _int32_bytes(lengths), pc.binary_join(one_list, b"")[0].as_py()


def unpack(lengths: bytes, text: bytes) -> Iterator[bytes | None]:
    start = 0
    for (length,) in struct.iter_unpack("<i", lengths):
        if length == NULL:
            yield None
        else:
            yield text[start : start + length]
            start += length


def by_row(width: int, values: Iterator[bytes | None]) -> Iterator[tuple[bytes | None, ...]]:
    """Yield the values that come row after row as rows of `width`."""
    return zip(*[values] * width, strict=True)


def _int32_bytes(numbers: pa.Int32Array) -> bytes:
    start = numbers.offset * 4
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * 4].tobytes()
