"""Keys in one piece: batches cut anew where Arrow's size limit has parted the tuples of a key.

An updater that is woken by a timer, or says what a key amounts to, must have seen all that the batch brings of the key.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa


def whole_keys(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, all rows of a key in one batch.

    batches: with the rows of a key next to each other. The last key of each is held back until another one comes.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        last = _key(batch, batch.num_rows - 1, key)
        begins = bisect_left(range(batch.num_rows), True, key=lambda row: _key(batch, row, key) == last)
        if held and (begins or _key(held[0], 0, key) != last):
            yield pa.concat_batches([*held, batch.slice(0, begins)])
            held = []
        elif begins:
            yield batch.slice(0, begins)
        held.append(batch.slice(begins))
    if held:
        yield pa.concat_batches(held)


def _key(batch: pa.RecordBatch, row: int, key: Sequence[str]) -> str:
    # As text, in which a NaN equals itself.
    return repr([batch[name][row].as_py() for name in key])
