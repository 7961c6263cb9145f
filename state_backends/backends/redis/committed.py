"""What a reader of the committed batch sees in Redis: whole batches only, whatever is written meanwhile."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from state_backends.backends.redis.keys import HashTags, Share
from state_backends.backends.redis.row_codec import RowFields, text_of
from state_backends.backends.redis.scripts import Call, ScriptCalls, by_row, unpack
from state_backends.errors import MovedOnError, TidemarkError
from state_backends.key_bytes import from_microseconds
from state_backends.reader.scanned import CommittedRow
from state_backends.row import Key
from state_backends.spec import StateSpec

# What committed.lua answers for a batch where a row has moved on too far to show the one asked for.
MOVED_ON = -1

# Far more than a publish that is on its way can need.
TRIES = 100


class CommittedReads:
    """Reads the rows of one state at the txid that was published to all of its hash tags."""

    def __init__(self, scripts: ScriptCalls, tags: HashTags, spec: StateSpec) -> None:
        self._name = spec.name
        self._scripts = scripts
        self._tags = tags
        self._fields = RowFields(spec)
        self._width = 3 + len(spec.value_columns)
        self._ttl = text_of(spec.ttl)

    def multi_get(self, keys: Sequence[Key], limit: int) -> tuple[int, list[CommittedRow]]:
        """Return the published txid and the rows in the order asked, `limit` keys per script call."""
        at = None
        for _ in range(TRIES):
            txids, rows = self._read(self._shares(keys, limit), len(keys), at)
            if len(txids) == 1 and MOVED_ON not in txids:
                return txids.pop(), rows
            # A publish came in between, or is on its way from tag to tag: read what all of them can show.
            at = None if MOVED_ON in txids else min(txids)
        raise TidemarkError(
            f"state {self._name!r}: its partitions do not agree which batch is published, after {TRIES} looks; publish "
            "the committed one again"
        )

    def get_at(self, keys: Sequence[bytes], txid: int) -> list[CommittedRow]:
        """Return what readers of batch `txid` see of keys that are bytes already, in the order asked.

        Raises MovedOnError where a row no longer shows it.
        """
        found, rows = self._read(self._tags.encoded_shares(keys, len(keys)), len(keys), txid)
        if MOVED_ON in found:
            raise MovedOnError(f"state {self._name!r}: rows have moved on from batch {txid} while they were read")
        return rows

    def _read(self, shares: Iterable[Share], count: int, at: int | None) -> tuple[set[int], list[CommittedRow]]:
        rows = [CommittedRow("missing", None, None)] * count
        txids = set()
        for share, (txid, lengths, text) in self._scripts.run("committed", self._calls(shares, at)):
            txids.add(txid)
            for position, row in zip(share.positions, by_row(self._width, unpack(lengths, text)), strict=False):
                rows[position] = self._seen(*row)
        return txids, rows

    def _shares(self, keys: Sequence[Key], limit: int) -> Iterator[Share]:
        # Without keys every tag is asked for its txid alone.
        return self._tags.shares(keys, limit) if keys else (Share(tag, [], []) for tag in self._tags)

    def _calls(self, shares: Iterable[Share], at: int | None) -> Iterable[Call[Share]]:
        arguments = [text_of(at), self._ttl]
        return ((share, [share.tag.guard, *share.rows], arguments) for share in shares)

    def _seen(self, status: Any, txid: bytes | None, at: bytes | None, *stored: bytes | None) -> CommittedRow:
        value = self._fields.value(stored) if status == b"found" else None
        time = None if at is None else from_microseconds(int(at))
        return CommittedRow(status.decode(), value, None if txid is None else int(txid), time)
