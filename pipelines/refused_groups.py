"""Groups whose key no table can hold: a null part, a NUL character, too many bytes.

They are rare, and one of them in a COPY would stop the pipeline for ever. So they are sifted out by column, without
a look at single rows, and kept as dead letters with their partial aggregates.
"""

from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from state_backends.journal.dead_letters import DeadLetter
from state_backends.spec import MAX_KEY_BYTES, StateSpec


class RefusedGroups:
    """Sifts the Arrow batches of one partition; `letters` holds what was refused of those that went through."""

    def __init__(self, spec: StateSpec) -> None:
        self.letters: list[DeadLetter] = []
        self._spec = spec
        self._texts = [name for name, kind in spec.key.items() if kind == "text"]

    def sift(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the groups that cannot be stored."""
        for batch in batches:
            rest = batch
            for name in self._spec.key:
                rest = self._refuse(rest, pc.is_null(rest[name]), f"key column {name} is null")
            for name in self._texts:
                has_nul = pc.match_substring(rest[name], "\0")
                rest = self._refuse(rest, has_nul, f"key column {name} holds a NUL character")
            if self._texts:
                too_long = pc.greater(self._text_bytes(rest), MAX_KEY_BYTES)
                rest = self._refuse(rest, too_long, f"the key's text is over the limit of {MAX_KEY_BYTES} bytes")
            if rest.num_rows:
                yield rest

    def _refuse(self, batch: pa.RecordBatch, faulty: pa.BooleanArray, reason: str) -> pa.RecordBatch:
        if not faulty.true_count:
            return batch
        self.letters += [self._letter(group, reason) for group in batch.filter(faulty).to_pylist()]
        return batch.filter(pc.invert(faulty))

    def _text_bytes(self, batch: pa.RecordBatch) -> pa.Array:
        total = pc.binary_length(batch[self._texts[0]])
        for name in self._texts[1:]:
            total = pc.add(total, pc.binary_length(batch[name]))
        return total

    def _letter(self, group: dict[str, object], reason: str) -> DeadLetter:
        return DeadLetter(f"state {self._spec.name}", orjson.dumps(group, default=str).decode(), reason)
