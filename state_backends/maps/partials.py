"""The generic path: fold a batch's partial aggregates in Python, for values that the store itself cannot fold."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from state_backends.maps.batch_map import BatchMap
from state_backends.maps.updaters import Fold
from state_backends.row import Key
from state_backends.spec import StateSpec

# Rows folded at a time: one read and one write of the store each.
CHUNK_ROWS = 10_000


def merge_partials(counts: BatchMap, spec: StateSpec, batches: Iterable[pa.RecordBatch]) -> int:
    """Fold partial aggregates into the map, whose batch has been begun. Returns the number of rows.

    batches: Arrow batches with the key columns and the columns of `spec.partial_columns`, by name.
    Under the map's rules: a replay builds upon the version before, an older batch raises StaleBatchError.
    """
    merged = 0
    for chunk in _chunks(batches):
        keys, updaters = _keys(chunk, spec), _updaters(chunk, spec)
        counts.multi_update(keys, updaters)
        merged += len(keys)
    return merged


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for first in range(0, batch.num_rows, CHUNK_ROWS):
            yield batch.slice(first, CHUNK_ROWS)


def _keys(chunk: pa.RecordBatch, spec: StateSpec) -> list[Key]:
    if not spec.key:
        return [()] * chunk.num_rows
    return list(zip(*(chunk[name].to_pylist() for name in spec.key), strict=True))


def _updaters(chunk: pa.RecordBatch, spec: StateSpec) -> list[Fold]:
    names = list(spec.partial_columns)
    rows = zip(*(chunk[name].to_pylist() for name in names), strict=True)
    return [Fold(spec, dict(zip(names, row, strict=True))) for row in rows]
