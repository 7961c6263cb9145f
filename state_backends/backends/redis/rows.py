"""A backing map in Redis: a hash per row, keys in order in a sorted set, batches merged by scripts on the server.

A write to Redis is not in the ledger's transaction, so Redis itself stores what guards a state: which attempt may
write, which batch is committed, and which keys each recent batch has written, so that it can be reverted. Every script
that writes checks the attempt first.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from tidegauge.state_backends.backends.guard import Attempt, BatchRecord, GuardPart, StoreStatus
from tidegauge.state_backends.backends.redis.committed import SCRIPT, CommittedReads, RedisSteps
from tidegauge.state_backends.backends.redis.guard import RedisGuard
from tidegauge.state_backends.backends.redis.keys import Buckets, Chunk, KeyNames, in_order
from tidegauge.state_backends.backends.redis.pages import pages, written
from tidegauge.state_backends.backends.redis.row_codec import Partials, RowFields, text_of
from tidegauge.state_backends.backends.redis.scripts import (
    Call,
    Client,
    ScriptCalls,
    by_row,
    executed,
    on_each_bucket,
    pack,
    unpack,
)
from tidegauge.state_backends.backends.redis.server import check_server
from tidegauge.state_backends.backends.redis.timers import RedisTimers
from tidegauge.state_backends.dead_letters.letters import DeadLetter, refusal, refused_fold
from tidegauge.state_backends.errors import FoldRangeError, SpecError
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.spec.key_bytes import KeyBytes, after_prefix
from tidegauge.state_backends.spec.row import Key, Versioned, check_paired, check_unique, stale
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.steps import run

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

# Keys per script call and per page of a scan. Few, because the server does nothing else meanwhile, for some 10 ms.
CHUNK_KEYS = 1_000

# Keys that a scan of committed rows reads first. Fewer, because many readers need one page only.
FIRST_KEYS = 100

# Keys that a scan of a spread state reads of all its buckets together, to sort them.
SORTED_KEYS = 4_000

# Batches whose written keys stay on record: the open one, and the committed one, which may be replayed.
KEPT_BATCHES = 2


class RedisBackingMap:
    """Rows of one state in Redis, under the hash tag `tidegauge:{<state>}:`, or spread over a tag for each partition.

    client: a redis.Redis or RedisCluster that returns bytes (no `decode_responses`); redis.RedisError passes through.
    max_get_keys, max_put_keys: keys that one script call reads, or writes; 0 puts all of them into one call, during
        which Redis serves no other client: 100,000 take a second. Storm's MicroBatchIBackingMap.
    A value is a dict of stored column to value, or any JSON value for a `value="jsonb"` state.

    One script call is all or nothing, so a write is atomic up to `max_put_keys` keys, and in each bucket by itself. The
    keys of a larger one are checked before anything is written; if it fails later, the calls before stay until `revert`
    or the replay corrects them. Times are compared to the microsecond until the year 2255.

    Writes that Redis has acknowledged and then loses are lost to the state, so run it with an append-only file.
    """

    def __init__(
        self, client: Client, spec: StateSpec, *, max_get_keys: int = CHUNK_KEYS, max_put_keys: int = CHUNK_KEYS
    ) -> None:
        for name, limit in {"max_get_keys": max_get_keys, "max_put_keys": max_put_keys}.items():
            if type(limit) is not int or limit < 0:
                raise SpecError(f"state {spec.name!r}: {name} {limit!r} must be a whole number; 0 sets no limit")
        if client.get_encoder().decode_responses:
            raise SpecError(f"state {spec.name!r}: rows are bytes; give a client without decode_responses=True")
        self.spec = spec
        self.refused: list[DeadLetter] = []  # by the last merge
        self._client: Any = client
        self._max_get_keys, self._max_put_keys = max_get_keys, max_put_keys
        self._scripts = ScriptCalls(client, spec)
        self._buckets = Buckets(spec)
        self._guard = RedisGuard(client, self._scripts, self._buckets, spec)
        self._bytes = KeyBytes(spec)
        self._fields = RowFields(spec)
        self._committed = CommittedReads(self._buckets, spec)

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the stored row of each key, in the order asked; None where a key is absent.

        keys: n tuples, one part per key column in the order of `spec.key`. Repeats are allowed.
        Raises KeyShapeError naming the key's index.

        Four script calls share a round trip. The contract is Trident's IBackingMap.multiGet (apache/storm,
        trident/state/map/IBackingMap.java).
        """
        return list(self._rows(self._buckets.chunks(keys, self._max_get_keys)))

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Store rows[i] under keys[i]; all or none up to `max_put_keys` keys.

        Raises KeyShapeError, DuplicateKeyError if a key comes twice, ValueShapeError, StaleBatchError if a stored row
        has a newer txid than its replacement, FencedError.
        """
        check_paired(self.spec, keys, rows)
        self._check_unique(keys)
        calls = (self._put(chunk, keys, rows) for chunk in self._buckets.chunks(keys, self._max_put_keys))
        for chunk, reply in self._scripts.run("put", calls):
            if isinstance(reply, list):
                position = self._refused_at(chunk, reply)
                raise stale(self.spec, self.spec.check_key(keys[position]), rows[position].txid, int(reply[2]))
            self._keep_few_records(chunk.names, reply)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Delete the rows of these keys with all versions; absent keys are not an error. Raises FencedError."""
        self._check_unique(keys)
        for _, reply in self._scripts.run("remove", map(self._remove, self._buckets.chunks(keys, self._max_put_keys))):
            self._guard.refuse(reply)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Yield (key, row) in key order: from `start` (with it) to `stop` (without it), or under a prefix of parts.

        Reads pages of 1,000 keys; concurrent writes may or may not be seen.
        """
        first = None if start is None else self.spec.check_key(start)
        last = None if stop is None else self.spec.check_key(stop)
        keys = self._ordered(*self._range(first, last, self.spec.check_prefix(prefix or ())))
        while page := list(islice(keys, CHUNK_KEYS)):
            rows = self._read(page)
            yield from ((self._bytes.decode(key), row) for key, row in zip(page, rows, strict=True) if row)

    def merge(self, batches: Iterable["pa.RecordBatch"], txid: int, batch_time: datetime) -> int:
        """Fold partial aggregates into the stored rows; one row per key in `batches`. Returns the number of keys.

        batches: Arrow batches with the key columns and the stored columns of every measure, by name; held until done.
        Raises DuplicateKeyError if a key comes twice and KeyShapeError if a part of a key is null, both before anything
        is written; StaleBatchError if a newer batch wrote one of the keys; FencedError. A row whose total would leave
        the range of its type stays as it was, and a dead letter for it is in `refused`. In a non-transactional state, a
        call that the client repeats counts twice.

        The columns go from Arrow to text without a Python object per value; a script folds `max_put_keys` keys a call.
        """
        if not self.spec.measures:
            raise SpecError(f"state {self.spec.name!r}: has no measures to merge; use a map's multi_update")
        if not self.spec.folds_in_lua:
            raise SpecError(f"state {self.spec.name!r}: Lua cannot fold its measures; use a map's multi_update")
        partials = Partials(self.spec, batches, txid)
        chunks = self._buckets.encoded_chunks(partials.keys, self._max_put_keys)
        calls = (self._merge(chunk, partials, txid, batch_time) for chunk in chunks)
        self.refused = []
        for chunk, reply in self._scripts.run("merge", calls):
            records = reply if not isinstance(reply, list) else self._refuse(reply, chunk, partials, txid, batch_time)
            self._keep_few_records(chunk.names, records)
        return len(partials.keys) - len(self.refused)

    def _refuse(self, reply: list[Any], chunk: Chunk, partials: Partials, txid: int, batch_time: datetime) -> int:
        """Raise the error of a refused call, or note the rows that it could not fold; returns its number of records."""
        if reply[0] != b"refused":
            raise stale(self.spec, partials.key(self._refused_at(chunk, reply)), txid, int(reply[2]))
        values = MAPS[self.spec.kind](self)
        values.begin_commit(txid, at=batch_time)
        for position, reason in zip(reply[2::2], reply[3::2], strict=True):
            place = chunk.positions[int(position)]
            key, partial = partials.key(place), partials.partial(place)
            [stored] = values.multi_get([key])
            error = refusal(self.spec, stored, partial) or FoldRangeError(reason.decode())
            self.refused.append(refused_fold(self.spec, key, partial, error))
        return int(reply[1])

    def revert(self, txid: int) -> int:
        """Return every row written by batch `txid` to its previous version; delete those that had none.

        Returns the number of rows. Only opaque rows can be reverted; other kinds are left alone, and return 0. If the
        batch was published, readers first go back to the one before it. Reads only the keys on the batch's record,
        1,000 a call; may be killed at any point and run again. Raises FencedError.
        """
        every = self._buckets.names
        # First without rows, so that readers are taken back before any row changes.
        self._revert(txid, ((names, []) for names in every))
        # For other kinds this does nothing, because their rows are on no batch's record.
        rows = self._revert(txid, self._written(txid))
        self._revert(txid, ((names, []) for names in every), b"end")
        return rows

    def _revert(self, txid: int, written: Iterable[tuple[KeyNames, list[bytes]]], end: bytes = b"") -> int:
        argument, batch = self._guard.argument(txid), text_of(txid)
        calls = (
            (None, [names.guard, names.keys, names.written(txid), *rows], [argument, names.row, batch, end])
            for names, rows in written
        )
        count = 0
        for _, reply in self._scripts.run("revert", calls):
            self._guard.refuse(reply)
            count += reply
        return count

    def admit(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> None:
        """Let only this attempt at this batch write from now on, of all that write under one (see `under`).

        The driver calls it once the ledger has begun the batch, before anything reverts or writes it, so that writes
        that an older attempt has in flight are refused. Raises FencedError if a newer one was admitted, one of the same
        fence with another token, or, unless this is attempt 0, one of another epoch.
        """
        self._guard.admit(Attempt(fence, txid, attempt, token, epoch))

    def under(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> "RedisBackingMap":
        """Return this map for writing under an attempt at a batch: it writes only while that is the admitted one.

        Otherwise its puts, removals, merges and reverts raise FencedError, from the script that would have written, or
        LostWritesError if Redis has forgotten that the attempt was admitted. A map that is under no attempt writes
        unchecked.
        """
        other = copy(self)
        other._guard = self._guard.under(Attempt(fence, txid, attempt, token, epoch))
        return other

    def check(self, txid: int, keys: int | None) -> None:
        """Raise LostWritesError unless this number of keys carries the batch's txid; None: unknown. And FencedError."""
        self._forget(self._guard.check(txid, keys))

    def publish(self, txid: int, keys: int | None = None) -> None:
        """Mirror the committed txid, after the ledger's commit; readers see that batch from now on. Ends a rebuild.

        Never takes readers back: only `revert` does. Drops the record of keys that older batches have written. Raises
        FencedError under an attempt that is not the admitted one, because the batch may be tried again already;
        LostBatchesError if another number of keys carries the batch's txid.
        """
        self._forget(self._guard.publish(txid, keys))

    def timers(self, due: str) -> RedisTimers:
        """Return the timers of keys, by the time in column or member `due`. For opaque states only."""
        return RedisTimers(self._client, self._scripts, self._buckets, self._guard, self._read, due)

    def _read(self, keys: Sequence[bytes]) -> Iterator[Versioned | None]:
        return self._rows(self._buckets.encoded_chunks(keys, CHUNK_KEYS))

    def status(self) -> StoreStatus:
        """Return which batch readers see, which was admitted last, and whether everything is there."""
        return self._guard.status()

    def record(self, txid: int) -> BatchRecord:
        """Return who was admitted last to one of the newest two batches, and how many keys carry its txid."""
        return self._guard.record(txid)

    def parts(self, txid: int) -> list[GuardPart]:
        """Return what each guard has recorded: the state's, or that of each bucket."""
        return self._guard.parts(txid)

    def begin_rebuild(self) -> None:
        """Delete every row and record, page by page; reads and writes are refused until a batch is published."""
        # Marked first, so that nobody reads a state that is partly removed.
        marks: Iterator[Call[KeyNames]] = ((names, [names.guard, names.batches], []) for names in self._buckets.names)
        self._forget(list(self._scripts.run("rebuild", marks)))
        for page in pages(self._client, self._buckets.names):
            calls = ((None, [names.guard, names.keys, *rows], [b"", names.row]) for names, rows in page.parts)
            list(self._scripts.run("remove", calls))

    def check_store(self) -> str:
        """Return a warning if Redis may lose acknowledged writes. Raises BackendSetupError, LostBatchesError."""
        return check_server(self._client, self._buckets, self.spec)

    def multi_get_committed(
        self, keys: Sequence[Key], *, clock: datetime | None = None, pinned: Published | None = None
    ) -> tuple[Published, list[CommittedRow]]:
        """Return the published batch (0 before the first) and what its readers see of each key, in the order asked.

        All rows are of that one batch, even while the next is written or published; a ttl ends by `clock`, or by the
        server's. Kinds that keep one version may show an open batch's rows. Raises KeyShapeError, and MovedOnError
        if batches are published faster than `max_get_keys` keys a call are read. pinned: as in ShownRows.
        """
        return self._run(self._committed.multi_get(keys, self._max_get_keys, clock, pinned))

    def scan_committed(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        prefix: Key | None = None,
        *,
        after: Key | None = None,
        pinned: Published | None = None,
    ) -> tuple[Published, Iterator[tuple[Key, CommittedRow]]]:
        """Return the published batch and an iterator over keys in key order, with what readers of that batch see.

        From `start` (with it) to `stop` (without it), under a prefix; each is the first parts of a key, and no bound if
        empty. after: only keys larger than this one.
        The iterator raises MovedOnError if batches are published faster than it reads, or if this one is reverted.
        """
        first, last, under = (self.spec.check_prefix(parts or ()) for parts in (start, stop, prefix))
        low, high = self._range(first, last or None, under)
        if after is not None:
            last_seen = self._bytes.encode(self.spec.check_key(after))
            low = max(low, b"[" + last_seen + b"\0")
        published = pinned or self._run(self._committed.published())
        return published, self._scan_committed(published, low, high)

    def split_keys(self, parts: int) -> list[Key]:
        """Return at most `parts` - 1 keys, in key order, that divide the rows into equal parts."""
        counts = self._on_each_bucket(lambda pipe, names: pipe.zcard(names.keys))
        # Of a spread state, the fullest bucket divides its keys alike, because a key's bucket depends on all its bytes.
        count, place = max((count, place) for place, count in enumerate(counts))
        names = self._buckets.names[place].keys
        ranks = dict.fromkeys(count * part // parts for part in range(1, parts))
        pages = [self._client.zrange(names, rank, rank) for rank in ranks if rank]
        return [self._bytes.decode(page[0]) for page in pages if page]

    def _scan_committed(self, at: Published, low: bytes, high: bytes) -> Iterator[tuple[Key, CommittedRow]]:
        keys, size = self._ordered(low, high), FIRST_KEYS
        while page := list(islice(keys, min(size, CHUNK_KEYS))):
            rows = self._run(self._committed.get_at(page, at))
            yield from ((self._bytes.decode(key), row) for key, row in zip(page, rows, strict=True))
            size = CHUNK_KEYS
        # Checked once more, because keys after the last one may have been freed before they were looked for.
        self._run(self._committed.get_at([], at))

    def _run(self, steps: RedisSteps[Result]) -> Result:
        return run(steps, lambda calls: (reply for _, reply in self._scripts.run(SCRIPT, calls)))

    def _check_unique(self, keys: Sequence[Key]) -> None:
        hashes = array("q", map(hash, self._buckets.encoded(keys)))
        # By hashes, so that a million keys take 50 MB. The keys themselves are compared only if two hashes are equal.
        if any(one == other for one, other in pairwise(sorted(hashes))):
            check_unique(self.spec, keys)

    def _rows(self, chunks: Iterable[Chunk]) -> Iterator[Versioned | None]:
        """Yield the rows of chunks in the order of their positions."""
        if self._buckets.is_spread:
            called = list(chunks)
            yield from in_order(called, self._rows_of(called))
        else:
            yield from self._rows_of(chunks)

    def _rows_of(self, chunks: Iterable[Chunk]) -> Iterator[Versioned | None]:
        for _, (lengths, text) in self._scripts.run("get", ((None, chunk.rows, []) for chunk in chunks)):
            yield from map(self._fields.decode, by_row(self._fields.width, unpack(lengths, text)))

    def _range(self, start: Key | None, stop: Key | None, prefix: Key) -> tuple[bytes, bytes]:
        under = self._bytes.encode(prefix)
        first = under if start is None else max(under, self._bytes.encode(start))
        ends = [after_prefix(under), None if stop is None else self._bytes.encode(stop)]
        bounds = [end for end in ends if end is not None]
        return b"[" + first, b"(" + min(bounds) if bounds else b"+"

    def _ordered(self, low: bytes, high: bytes) -> Iterator[bytes]:
        size = max(SORTED_KEYS // len(self._buckets.names), 1) if self._buckets.is_spread else CHUNK_KEYS
        while True:
            pages = self._on_each_bucket(
                lambda pipe, names: pipe.zrangebylex(names.keys, low, high, start=0, num=size)  # noqa: B023
            )
            # Keys up to the end of the first page that may not be the bucket's last; behind it, others may be missing.
            ends = [page[-1] for page in pages if len(page) == size]
            last = min(ends, default=None)
            yield from sorted(key for page in pages for key in page if last is None or key <= last)
            if last is None:
                return
            low = b"(" + last

    def _on_each_bucket(self, call: Callable[[Any, KeyNames], Any]) -> list[Any]:
        """Return the replies to one command per bucket."""
        return on_each_bucket(self._client, self._buckets.names, call)

    def _remove(self, chunk: Chunk) -> Call[None]:
        names = chunk.names
        return None, [names.guard, names.keys, *chunk.rows], [self._guard.argument(), names.row]

    def _put(self, chunk: Chunk, keys: Sequence[Key], rows: Sequence[Versioned]) -> Call[Chunk]:
        names, some = chunk.names, [(keys[position], rows[position]) for position in chunk.positions]
        values = [value for key, row in some for value in self._fields.encode(key, row)]
        txids = {row.txid for _, row in some if row.txid is not None} if self.spec.kind == "opaque" else set()
        touched = [names.guard, names.keys, names.batches, *map(names.written, txids), *chunk.rows]
        return chunk, touched, [self._guard.argument(), names.row, *pack(values), *map(text_of, txids)]

    def _merge(self, chunk: Chunk, partials: Partials, txid: int, batch_time: datetime) -> Call[Chunk]:
        names = chunk.names
        touched = [names.guard, names.keys, names.batches, names.written(txid), *chunk.rows]
        batch = [text_of(txid), text_of(batch_time), text_of(self.spec.ttl)]
        return chunk, touched, [self._guard.argument(txid), names.row, *batch, *partials.packed(chunk.positions)]

    def _written(self, txid: int) -> Iterator[tuple[KeyNames, list[bytes]]]:
        for found in written(self._client, self._buckets.names, txid):
            yield from ((names, names.rows(keys)) for names, keys in found)

    def _refused_at(self, chunk: Chunk, reply: list[Any]) -> int:
        self._guard.refuse(reply)
        return chunk.positions[int(reply[1])]

    def _keep_few_records(self, names: KeyNames, count: int) -> None:
        if count > KEPT_BATCHES:
            self._forget([(names, self._client.zrange(names.batches, 0, -1 - KEPT_BATCHES))])

    def _forget(self, older: Iterable[tuple[KeyNames, list[bytes]]]) -> None:
        on_record = [(names, txids) for names, txids in older if txids]
        pipe = self._client.pipeline(transaction=False) if self._buckets.is_spread else self._client
        for names, txids in on_record:
            for txid in txids:
                pipe.unlink(names.written(int(txid)))
            pipe.zrem(names.batches, *txids)
        if self._buckets.is_spread:
            executed(pipe)
