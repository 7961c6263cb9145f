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
"""

from typing import Any

from tidegauge.state_backends.backends.guard import Attempt, BatchRecord, StoreStatus, refuse
from tidegauge.state_backends.backends.redis.keys import KeyNames
from tidegauge.state_backends.backends.redis.row_codec import text_of
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls
from tidegauge.state_backends.backends.redis.server import wait_for_replicas
from tidegauge.state_backends.errors import FencedError, LostWritesError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import attempt_name
from tidegauge.state_backends.spec.state_spec import StateSpec


class RedisGuard:
    """The guard of one state for one attempt. attempt=None is for work outside any attempt, which is not checked."""

    def __init__(
        self, client: Client, scripts: ScriptCalls, names: KeyNames, spec: StateSpec, attempt: Attempt | None = None
    ) -> None:
        self._client: Any = client
        self._scripts = scripts
        self._names = names
        self._spec = spec
        self._attempt = attempt

    def under(self, attempt: Attempt) -> "RedisGuard":
        return RedisGuard(self._client, self._scripts, self._names, self._spec, attempt)

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
        self.under(attempt).refuse(self._scripts.call("admit", [self._names.guard, self._names.keys], arguments))

    def check(self, txid: int, keys: int | None) -> None:
        reply = self._scripts.call("check", [self._names.guard], [self.argument(txid), text_of(txid), text_of(keys)])
        self.refuse(reply)
        if isinstance(reply, list):
            raise LostWritesError(
                f"state {self._spec.name!r}: the tasks of batch {txid} wrote {keys} keys, and Redis has {reply[1]} of "
                "them: it has lost writes that it had acknowledged; the batch is tried again"
            )
        wait_for_replicas(self._client, self._names)

    def publish(self, txid: int, keys: int | None) -> list[bytes]:
        """Show batch `txid`. Returns the older ones whose written keys are on record."""
        own = [self._names.guard, self._names.batches]
        reply: list[Any] = self._scripts.call("publish", own, [self.argument(), text_of(txid), text_of(keys)])
        self.refuse(reply)
        if reply[:1] == [b"lacking"]:
            raise findings.lost_keys(self._spec, txid, int(reply[1]), keys or 0)
        return reply

    def status(self) -> StoreStatus:
        published, attempt, rebuilding, counted, lost, rows, names = self._scripts.call(
            "status", [self._names.guard, self._names.keys], []
        )
        admitted = int(attempt.split()[1]) if attempt else 0
        missing = abs(int(counted) - rows) if counted else 0
        return StoreStatus(int(published or 0), admitted, not names, bool(rebuilding), max(missing, int(lost or 0)))

    def record(self, txid: int) -> BatchRecord:
        fields = f"by:{txid}", f"keys:{txid}", "reverting", "written"
        by, keys, reverting, written = self._client.hmget(self._names.guard, fields)
        name = (by or b"").decode()
        _, of, attempt, token = (reverting or b"0 0 0 ").decode().split(" ")
        counted = None if self._spec.kind == "non_transactional" else int(keys or 0)
        is_reverted = (int(of), attempt_name(token, int(attempt))) != (txid, name)
        return BatchRecord(name, counted, is_reverted, int(keys or 0) > 0 or int(written or 0) >= txid)
