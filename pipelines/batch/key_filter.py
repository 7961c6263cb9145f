"""Key filter: turns groups that a state cannot store into dead letters.

Groups whose key cannot be stored (a null part, a NUL character, a time out of range, too many bytes) are rare, but one
of them in a COPY would stop the pipeline. They are filtered out column by column, so that no Python runs per row.
"""

from collections.abc import Callable, Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegauge.pipelines.batch.misfits import MISFITS
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.spec.state_spec import MAX_KEY_BYTES, StateSpec, stored_column

# The years 1 to 9999, in UTC: what a key may hold and every reader can read back.
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def _is_out_of_range(total: pa.Array) -> pa.BooleanArray:
    """Return where Spark could not compute a total: it is null, or an infinite double."""
    missing = pc.is_null(total)
    return pc.or_kleene(missing, pc.is_inf(total)) if pa.types.is_floating(total.type) else missing


def _outside(bounds: tuple[int, int], integers: pa.DataType) -> Callable[[pa.Array], pa.BooleanArray]:
    def is_outside(column: pa.Array) -> pa.BooleanArray:
        numbers = pc.cast(column, integers)
        return pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))

    return is_outside


# Key type to a check for values that cannot be stored, and the reason that the dead letter gives.
FAULTS: dict[str, tuple[Callable[[pa.Array], pa.BooleanArray], str]] = {
    "text": (lambda column: pc.match_substring(column, "\0"), "holds a NUL character"),
    "timestamptz": (_outside(MICROSECONDS, pa.int64()), "is outside the years 1 to 9999"),
    "date": (_outside(DAYS, pa.int32()), "is outside the years 1 to 9999"),
    "uuid": (lambda column: pc.invert(pc.match_substring_regex(column, UUID)), "is not a uuid"),
}


class KeyFilter:
    """Filters the Arrow batches of one partition. `letters`: the invalid groups of the batches filtered so far.

    misfits: how many events were grouped separately because they do not fit (see misfits.py).
    partials: whether the batches are partial aggregates, whose totals may be out of range; if not, they are tuples.
    """

    def __init__(self, spec: StateSpec, *, partials: bool) -> None:
        self.letters: list[DeadLetter] = []
        self.misfits = 0
        self._spec = spec
        self._texts = [name for name, kind in spec.key.items() if kind == "text"]
        self._totals = [
            (measure, stored_column(measure, suffix))
            for measure, aggregator in spec.measures.items()
            for suffix in getattr(aggregator, "totals", ())
            if partials
        ]
        self._faults = {name: FAULTS[kind] for name, kind in spec.key.items() if kind in FAULTS}

    def filter_invalid(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the groups that cannot be stored."""
        for batch in batches:
            rest = self._without_misfits(batch)
            for name in self._spec.key:
                rest = self._remove(rest, pc.is_null(rest[name]), f"key column {name} is null")
            for name, (is_faulty, reason) in self._faults.items():
                rest = self._remove(rest, is_faulty(rest[name]), f"key column {name} {reason}")
            if self._texts:
                too_long = pc.greater(self._text_bytes(rest), MAX_KEY_BYTES)
                rest = self._remove(rest, too_long, f"the key's text is over the limit of {MAX_KEY_BYTES} bytes")
            for measure, name in self._totals:
                reason = f"measure {measure}: the total of this batch alone is out of range"
                rest = self._remove(rest, _is_out_of_range(rest[name]), reason)
            if rest.num_rows:
                yield rest

    def _without_misfits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if MISFITS not in batch.schema.names:
            return batch
        counts = batch[MISFITS]
        self.misfits += pc.sum(counts).as_py() or 0
        return batch.filter(pc.is_null(counts)) if counts.null_count < len(counts) else batch

    def _remove(self, batch: pa.RecordBatch, faulty: pa.BooleanArray, reason: str) -> pa.RecordBatch:
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
    """Return the groups as dicts, times as the numbers that Arrow stores, because Python cannot hold all of them."""
    for place, column in enumerate(groups.schema):
        if pa.types.is_temporal(column.type):
            numbers = pc.cast(groups[place], pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
            groups = groups.set_column(place, column.name, numbers)
    return groups.to_pylist()  # type: ignore[no-any-return]
