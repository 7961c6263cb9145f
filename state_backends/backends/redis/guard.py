"""The guard of a state in Redis: a hash beside the rows, which every script that writes checks in the same call.

    attempt, epoch  the admitted attempt (fence, txid, attempt, token) and its epoch
    committed       the batch that readers see
    by:<txid>       the attempt that was admitted last to a batch; of the newest two batches
    keys:<txid>     how many keys carry the batch's txid; of the newest two batches
    reverting       the admitted attempt, until it has reverted those before it
    written         the last batch that has written any key, even if it was reverted since
    shown:<txid>    the attempt that was published; of the newest 1,000 batches
    rows, lost      how many rows there are, counted as they come and go, and how many were found to be missing
    rebuilding      set while a rebuild runs
    oldest          rows no longer show batches before it, although nothing in them says so; 0 if absent
    checked         the last batch that was compared before its commit

`counted` and `timers` are in server.py and timers.py. Guards of earlier releases lack `written`, `shown` and `oldest`.

A spread state has a guard in each bucket, and all of them admit, revert and publish each attempt, because rows of an
attempt before may be anywhere. Two nodes cannot publish at the same time. So buckets publish a batch before the ledger
commits it, when it is checked, and a reader takes batch and attempt from the ledger and asks the buckets for these.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from tidegauge.state_backends.backends.guard import Attempt, BatchRecord, GuardPart, StoreStatus, refuse
from tidegauge.state_backends.backends.redis.keys import Buckets, KeyNames
from tidegauge.state_backends.backends.redis.row_codec import text_of
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls, on_each_bucket
from tidegauge.state_backends.backends.redis.server import wait_for_replicas
from tidegauge.state_backends.errors import FencedError, LostBatchesError, LostWritesError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import attempt_name
from tidegauge.state_backends.spec.state_spec import StateSpec

# Batches whose written keys are on record, by bucket.
Older: TypeAlias = list[tuple[KeyNames, list[bytes]]]


class RedisGuard:
    """The guards of one state for one attempt. attempt=None is for work outside any attempt, which is not checked."""

    def __init__(
        self, client: Client, scripts: ScriptCalls, buckets: Buckets, spec: StateSpec, attempt: Attempt | None = None
    ) -> None:
        self._client: Any = client
        self._scripts = scripts
        self._buckets = buckets
        self._spec = spec
        self._attempt = attempt

    def under(self, attempt: Attempt) -> "RedisGuard":
        return RedisGuard(self._client, self._scripts, self._buckets, self._spec, attempt)

    def argument(self, txid: int | None = None) -> bytes:
        """Return the attempt in the form that scripts compare. txid: the batch that is written or reverted.

        Raises FencedError unless that is the attempt's own, except at a driver's start, which reverts the batch after.
        """
        own = self._attempt
        if own is None:
            return b""
        if txid is not None and txid != own.txid and own.attempt:
            raise FencedError(
                f"state {self._spec.name!r}: {own} may not write or revert batch {txid}, which is not its own; "
                "stop this one"
            )
        return f"{own.fence} {own.txid} {own.attempt} {own.token}".encode()

    def refuse(self, reply: Any) -> None:
        """Raise the error of a script that the guard has refused; other replies pass."""
        if not isinstance(reply, list) or not reply:
            return
        if reply[0] == b"fenced":
            own, admitted = self._attempt or Attempt(0, 0, 0), reply[1].decode().split()
            raise refuse(self._spec.name, own, admitted, reply[2].decode() if admitted else own.epoch)
        if reply[0] == b"lost":
            raise findings.lost_rows(self._spec, int(reply[1]))

    def admit(self, attempt: Attempt) -> None:
        numbers = [text_of(number) for number in attempt[:3]]
        arguments = [*numbers, attempt.token.encode(), attempt.epoch.encode(), attempt.name.encode()]
        own = self.under(attempt)
        for _, reply in self._on_each("admit", lambda names: ([names.guard, names.keys], arguments)):
            own.refuse(reply)

    def check(self, txid: int, keys: int | None) -> Older:
        """See GuardedMap. In a spread state, this publishes the batch, and returns what `publish` does."""
        older: Older = []
        written = self._checked(txid, None if self._buckets.is_spread else keys)
        if self._buckets.is_spread:
            if self._lacks(sum(written), keys):
                raise self._lost_writes(txid, keys, sum(written))
            try:
                older = self._publish(txid, written)
            except LostBatchesError as error:
                raise self._lost_writes(txid, keys, sum(self._checked(txid, None))) from error
        wait_for_replicas(self._client, self._buckets)
        return older

    def publish(self, txid: int, keys: int | None) -> Older:
        """Show batch `txid`. Returns the older ones of each bucket whose written keys are on record."""
        if not self._buckets.is_spread:
            return self._publish(txid, [keys])
        written = [int(count or 0) for (count,) in self._each_hmget([f"keys:{txid}"])]
        if self._lacks(sum(written), keys):
            raise findings.lost_keys(self._spec, txid, sum(written), keys or 0)
        return self._publish(txid, written)

    def status(self) -> StoreStatus:
        return _joined_status(self._statuses())

    def record(self, txid: int) -> BatchRecord:
        return _joined_record([records[txid] for records in self._records([txid])])

    def parts(self, txid: int) -> list[GuardPart]:
        """Return what each guard has recorded about batch `txid` and the two after it."""
        return list(map(GuardPart, self._statuses(), self._records(range(txid, txid + 3))))

    def _checked(self, txid: int, keys: int | None) -> list[int]:
        """Return how many keys of the batch each bucket has. Raises LostWritesError for another number than `keys`."""
        arguments, written = [self.argument(txid), text_of(txid), text_of(keys)], []
        for _, reply in self._on_each("check", lambda names: ([names.guard], arguments)):
            self.refuse(reply)
            if isinstance(reply, list):
                raise self._lost_writes(txid, keys, reply[1])
            written.append(int(reply))
        return written

    def _lost_writes(self, txid: int, keys: int | None, found: int) -> LostWritesError:
        return LostWritesError(
            f"state {self._spec.name!r}: the tasks of batch {txid} wrote {keys} keys, and Redis has {found} of "
            "them: it has lost writes that it had acknowledged; the batch is tried again"
        )

    def _publish(self, txid: int, keys: Sequence[int | None]) -> Older:
        """keys: how many each bucket must have of the batch."""
        expected = dict(zip(self._buckets.names, keys, strict=True))
        own, batch = self.argument(), text_of(txid)
        older: Older = []
        for names, reply in self._on_each(
            "publish", lambda names: ([names.guard, names.batches], [own, batch, text_of(expected[names])])
        ):
            self.refuse(reply)
            if reply[:1] == [b"lacking"]:
                raise findings.lost_keys(self._spec, txid, int(reply[1]), expected[names] or 0)
            older.append((names, reply))
        return older

    def _lacks(self, found: int, keys: int | None) -> bool:
        # As `lacking` in common.lua does, for all buckets together.
        if keys is None or self._spec.kind == "non_transactional":
            return False
        return found < keys or (self._spec.kind == "opaque" and found > keys)

    def _statuses(self) -> list[StoreStatus]:
        return [_status(*reply) for _, reply in self._on_each("status", lambda names: ([names.guard, names.keys], []))]

    def _records(self, txids: Sequence[int]) -> list[dict[int, BatchRecord]]:
        """Return of each guard its records of some batches, by txid."""
        fields = ["reverting", "written", *(f"{of}:{txid}" for txid in txids for of in ("by", "keys"))]
        return [dict(self._read_records(txids, *found)) for found in self._each_hmget(fields)]

    def _read_records(
        self, txids: Sequence[int], reverting: bytes | None, written: bytes | None, *found: bytes | None
    ) -> Iterator[tuple[int, BatchRecord]]:
        _, of, attempt, token = (reverting or b"0 0 0 ").decode().split(" ")
        unfinished = int(of), attempt_name(token, int(attempt))
        for txid, by, keys in zip(txids, found[::2], found[1::2], strict=True):
            name = (by or b"").decode()
            counted = None if self._spec.kind == "non_transactional" else int(keys or 0)
            has_written = int(keys or 0) > 0 or int(written or 0) >= txid
            yield txid, BatchRecord(name, counted, unfinished != (txid, name), has_written)

    def _each_hmget(self, fields: Sequence[str]) -> list[list[bytes | None]]:
        return on_each_bucket(self._client, self._buckets.names, lambda pipe, names: pipe.hmget(names.guard, fields))

    def _on_each(
        self, script: str, call: Callable[[KeyNames], tuple[Sequence[bytes], Sequence[bytes]]]
    ) -> Iterator[tuple[KeyNames, Any]]:
        """Run a script on each bucket; yield its names and the reply. call: returns keys and arguments."""
        return self._scripts.run(script, ((names, *call(names)) for names in self._buckets.names))


def _status(
    published: Any, attempt: Any, rebuilding: Any, counted: Any, lost: Any, rows: int, found: int
) -> StoreStatus:
    admitted = int(attempt.split()[1]) if attempt else 0
    missing = abs(int(counted) - rows) if counted else 0
    return StoreStatus(int(published or 0), admitted, not found, bool(rebuilding), max(missing, int(lost or 0)))


def _joined_status(parts: Sequence[StoreStatus]) -> StoreStatus:
    """Return the status of the whole: as far as every part is."""
    if len(parts) == 1:
        return parts[0]
    return StoreStatus(
        min(part.published for part in parts),
        min(part.admitted for part in parts),
        all(part.is_empty for part in parts),
        any(part.is_rebuilding for part in parts),
        sum(part.missing_rows for part in parts),
    )


def _joined_record(parts: Sequence[BatchRecord]) -> BatchRecord:
    """Return the record of the whole. by: "" unless the same attempt was admitted everywhere."""
    names = {part.by for part in parts}
    return BatchRecord(
        names.pop() if len(names) == 1 else "",
        None if parts[0].keys is None else sum(part.keys or 0 for part in parts),
        all(part.is_reverted for part in parts),
        any(part.has_written for part in parts),
    )
