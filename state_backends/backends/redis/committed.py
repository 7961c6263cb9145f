"""What a reader of the committed batch sees in Redis: complete batches only, whatever is written meanwhile.

A read is work in steps: a step asks for the replies to calls of the script `committed`. So rows.py reads in a thread,
and loop_rows.py on an event loop.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from tidegauge.state_backends.backends.redis.keys import Buckets, Chunk, in_order
from tidegauge.state_backends.backends.redis.row_codec import RowFields, text_of
from tidegauge.state_backends.backends.redis.scripts import Call, by_row, unpack
from tidegauge.state_backends.errors import FindingError, MovedOnError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.spec.key_bytes import from_microseconds
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.steps import Steps

Result = TypeVar("Result")

# A step asks for the reply to each of these calls, in their order.
RedisSteps: TypeAlias = Steps[Iterable[Call[None]], Result]

SCRIPT = "committed"

# What committed.lua returns as the batch if the rows do not show the one that was asked for.
NOT_SHOWN = Published(-1)

# What it returns if the state is being rebuilt, and if rows of it are known to be missing.
REBUILDING, LOST = -2, -3

# How often the keys are read before a read gives up. It starts again if a batch is published while it runs.
MAX_READS = 100


class CommittedReads:
    """Reads the rows of one state at the published txid."""

    def __init__(self, buckets: Buckets, spec: StateSpec) -> None:
        self._spec, self._name = spec, spec.name
        self._buckets = buckets
        self._fields = RowFields(spec)
        self._width = 3 + len(spec.value_columns)
        self._ttl = text_of(spec.ttl)

    def published(self) -> RedisSteps[Published]:
        """Return the published batch, 0 before the first, and in a spread state the oldest of a bucket.

        Raises FindingError, as every read does.
        """
        batches, _ = yield from self._read(self._buckets.empty_chunks(), None)
        return min(batches)

    def multi_get(
        self, keys: Sequence[Key], limit: int, clock: datetime | None = None, pinned: Published | None = None
    ) -> RedisSteps[tuple[Published, list[CommittedRow]]]:
        """Return the published batch and the rows in the order asked, `limit` keys per script call.

        clock: the time by which ttls end; None: the server's. pinned: read this batch; the answer is NOT_SHOWN if a
        row does not show it. Raises MovedOnError if batches are published faster than the calls are made.
        """
        if pinned is not None:
            batches, rows = yield from self._read(self._buckets.chunks(keys, limit), pinned, clock)
            return (NOT_SHOWN, []) if NOT_SHOWN in batches else (pinned, rows)
        if not keys:
            return (yield from self.published()), []
        at = None
        for _ in range(MAX_READS):
            batches, rows = yield from self._read(self._buckets.chunks(keys, limit), at, clock)
            # If a batch was published between two calls, read the older one, because all rows can still show it.
            at = min(batches)
            if at == NOT_SHOWN:
                at = None
            elif len(batches) == 1:
                return at, rows
        raise MovedOnError(
            f"state {self._name!r}: batches were published during each of {MAX_READS} reads of {len(keys)} keys; "
            "ask for fewer keys"
        )

    def get_at(self, keys: Sequence[bytes], at: Published) -> RedisSteps[list[CommittedRow]]:
        """Return what readers of a batch see of keys that are already bytes, in the order asked.

        One script call per bucket. Raises MovedOnError if the rows no longer show that batch; without keys it only
        checks that, in all buckets.
        """
        chunks = self._buckets.encoded_chunks(keys, 0) if keys else self._buckets.empty_chunks()
        found, rows = yield from self._read(chunks, at)
        if NOT_SHOWN in found:
            raise MovedOnError(
                f"state {self._name!r}: batch {at.txid} was reverted, or later ones replaced it, while it was read; "
                "read again"
            )
        return rows

    def _read(
        self, chunks: Iterable[Chunk], at: Published | None, clock: datetime | None = None
    ) -> RedisSteps[tuple[set[Published], list[CommittedRow]]]:
        """Return the batches at which the calls have read, and the rows in the order of the chunks' positions."""
        arguments = [self._ttl, *([text_of(at.txid), at.by.encode()] if at else [b"", b""]), text_of(clock)]
        called: list[Chunk] = []

        def calls() -> Iterator[Call[None]]:
            for chunk in chunks:
                called.append(chunk)
                yield None, [chunk.names.guard, *chunk.rows], arguments

        replies = yield calls()
        batches: set[Published] = set()
        seen: list[CommittedRow] = []
        for txid, by, lengths, text in replies:
            if txid in (REBUILDING, LOST):
                raise self._finding(txid)
            batches.add(Published(txid, by.decode()))
            seen.extend(self._seen(*row) for row in by_row(self._width, unpack(lengths, text)))
        if not self._buckets.is_spread or NOT_SHOWN in batches:
            return batches, seen
        return batches, in_order(called, seen)

    def _finding(self, reply: int) -> FindingError:
        if reply == LOST:
            return findings.lost_rows(self._spec, None)
        return findings.rebuilding(self._spec)

    def _seen(self, status: Any, txid: bytes | None, at: bytes | None, *stored: bytes | None) -> CommittedRow:
        value = self._fields.value(stored) if status == b"found" else None
        time = None if at is None else from_microseconds(int(at))
        return CommittedRow(status.decode(), value, None if txid is None else int(txid), time)
