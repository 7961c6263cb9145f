"""Groups whose key no table can hold: a null part, a NUL character, a time out of range, too many bytes.

They are rare, and one of them in a COPY would stop the pipeline for ever. So they are sifted out by column, without
a look at single rows, and kept as dead letters with their partial aggregates.
"""

from collections.abc import Callable, Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from state_backends.journal.dead_letters import DeadLetter
from state_backends.spec import MAX_KEY_BYTES, StateSpec

# The years 1 to 9999, in UTC: what a key may hold and every reader can read back.
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def _outside(bounds: tuple[int, int], integers: pa.DataType) -> Callable[[pa.Array], pa.BooleanArray]:
    def is_outside(column: pa.Array) -> pa.BooleanArray:
        numbers = pc.cast(column, integers)
        return pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))

    return is_outside


# Key type to what may be wrong with a value of it, and how that is called.
FAULTS: dict[str, tuple[Callable[[pa.Array], pa.BooleanArray], str]] = {
    "text": (lambda column: pc.match_substring(column, "\0"), "holds a NUL character"),
    "timestamptz": (_outside(MICROSECONDS, pa.int64()), "is outside the years 1 to 9999"),
    "date": (_outside(DAYS, pa.int32()), "is outside the years 1 to 9999"),
    "uuid": (lambda column: pc.invert(pc.match_substring_regex(column, UUID)), "is no uuid"),
}


class RefusedGroups:
    """Sifts the Arrow batches of one partition; `letters` holds what was refused of those that went through."""

    def __init__(self, spec: StateSpec) -> None:
        self.letters: list[DeadLetter] = []
        self._spec = spec
        self._texts = [name for name, kind in spec.key.items() if kind == "text"]
        self._faults = {name: FAULTS[kind] for name, kind in spec.key.items() if kind in FAULTS}

    def sift(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the groups that cannot be stored."""
        for batch in batches:
            rest = batch
            for name in self._spec.key:
                rest = self._refuse(rest, pc.is_null(rest[name]), f"key column {name} is null")
            for name, (is_faulty, reason) in self._faults.items():
                rest = self._refuse(rest, is_faulty(rest[name]), f"key column {name} {reason}")
            if self._texts:
                too_long = pc.greater(self._text_bytes(rest), MAX_KEY_BYTES)
                rest = self._refuse(rest, too_long, f"the key's text is over the limit of {MAX_KEY_BYTES} bytes")
            if rest.num_rows:
                yield rest

    def _refuse(self, batch: pa.RecordBatch, faulty: pa.BooleanArray, reason: str) -> pa.RecordBatch:
        if not faulty.true_count:
            return batch
        self.letters += [self._letter(group, reason) for group in _readable(batch.filter(faulty))]
        return batch.filter(pc.invert(faulty))

    def _text_bytes(self, batch: pa.RecordBatch) -> pa.Array:
        total = pc.binary_length(batch[self._texts[0]])
        for name in self._texts[1:]:
            total = pc.add(total, pc.binary_length(batch[name]))
        return total

    def _letter(self, group: dict[str, object], reason: str) -> DeadLetter:
        return DeadLetter(f"state {self._spec.name}", orjson.dumps(group, default=str).decode(), reason)


def _readable(groups: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the groups as dicts; times that Python cannot hold come as the numbers behind them."""
    for place, field in enumerate(groups.schema):
        if pa.types.is_temporal(field.type):
            numbers = pc.cast(groups[place], pa.int64() if pa.types.is_timestamp(field.type) else pa.int32())
            groups = groups.set_column(place, field.name, numbers)
    return groups.to_pylist()  # type: ignore[no-any-return]
