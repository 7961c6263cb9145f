"""Rebuild: write the rows of a state again from its changelog, on any backend.

For a state whose rows are lost, or are moved to another store. Stop its pipeline first. The ledger stays as it is, so
the pipeline continues after the committed batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegauge.state_backends.changelog import Change, Changelog, Extent
from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.ledger.state_lock import StateWork, lock_unless
from tidegauge.state_backends.maintenance import note_expired
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec

CHUNK_KEYS = 10_000


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is. last_key: where to resume. keys: how many this run has done. of: about how many there are.

    txid: the batch whose values the rows have.
    """

    last_key: Key
    keys: int
    of: int
    txid: int


def rebuild(
    log: Changelog,
    target: IBackingMap,
    *,
    upto: int | None = None,
    chunk_keys: int = CHUNK_KEYS,
    resume_from: Key | None = None,
    work: StateWork | None = None,
) -> Iterator[Progress]:
    """Replace the rows of a state in `target`, in key order, a chunk of keys per step; stop iterating to stop.

    upto: the batch to rebuild; None means the committed one, without what an open batch has written.
    resume_from: the `last_key` of an interrupted run; starting over gives the same rows but takes longer.
    work: the state's lock, if the caller holds it.
    Opaque rows get their newest two versions, so that replays, reverts and reads during an open batch find the version
    that they need. Rows that the next merge would ignore are left out: versions past their ttl, which lookups then
    report as missing, and tombstones of batches that can no longer be reverted. Any other rows in `target` are removed,
    range by range: rows of keys that were removed meanwhile, and rows of a newer batch.
    Raises OutOfReachError, NotCommittedError, UnknownStateError; StateBusyError while another work has the state's
    tables, because entries must not be deleted between two chunks.
    """
    with lock_unless(work, log.conn, log.spec.name, "rebuild"):
        yield from _rebuild(log, target, upto, chunk_keys, resume_from)


def _rebuild(
    log: Changelog, target: IBackingMap, upto: int | None, chunk_keys: int, resume_from: Key | None
) -> Iterator[Progress]:
    extent = log.extent()
    if extent.ttl is not None:
        # Noted before any row is left out, because a batch that comes again must not count on rows past their ttl.
        note_expired(log.conn, log.spec.name, extent.clock)
    txid = extent.committed if upto is None else upto
    done, of, last = 0, log.estimate_keys(), resume_from
    while True:
        chunk = log.newest(txid, after=last, limit=chunk_keys)
        log.check_reach(txid)
        upto_key = chunk[-1][0] if chunk else None
        rows = {key: stored_row(log.spec, found) for key, found in chunk if _is_needed(found[0], txid, extent)}
        with log.conn.transaction():
            _replace(target, last, upto_key, rows)
        if upto_key is None:
            return
        done, last = done + len(chunk), upto_key
        yield Progress(last, done, max(of, done), txid)


def _replace(target: IBackingMap, after: Key | None, last: Key | None, rows: dict[Key, Versioned]) -> None:
    """Make `rows` the only rows of `target` after key `after`, up to key `last`; None: from the start, to the end."""
    surplus = [key for key, txid in _held(target, after, last) if key not in rows or txid > (rows[key].txid or 0)]
    for first in range(0, len(surplus), CHUNK_KEYS):
        # Removed first, because a backing map refuses to replace a row by one of an older batch.
        target.multi_remove(surplus[first : first + CHUNK_KEYS])
    target.multi_put(list(rows), list(rows.values()))


def _held(target: IBackingMap, after: Key | None, last: Key | None) -> Iterator[tuple[Key, int]]:
    """Yield the keys of that range with the batch that wrote each."""
    if not target.spec.key:
        # A state without key columns has one row. It belongs to the first range, because no key is before or after it.
        yield from ((key, row.txid or 0) for key, row in target.scan() if after is None)
        return
    for key, row in target.scan(start=after, stop=last):
        if key != after:
            yield key, row.txid or 0
    if last is not None and (end := target.multi_get([last])[0]):
        yield last, end.txid or 0


def _is_needed(newest: Change, txid: int, extent: Extent) -> bool:
    if newest.value is None:
        return newest.txid == txid
    return is_live(False, newest.batch_time, extent.ttl, extent.clock)


def stored_row(spec: StateSpec, versions: Sequence[Change]) -> Versioned:
    """Return the row that has these versions: its newest two, the newest first, or its only one."""
    newest, *before = versions
    value = _value(spec, newest)
    if spec.kind != "opaque" or not before:
        return Versioned(value, newest.txid, at=newest.batch_time)
    (prev,) = before
    return Versioned(value, newest.txid, _value(spec, prev), prev.txid, newest.batch_time, prev.batch_time)


def _value(spec: StateSpec, change: Change) -> object:
    return change.value if spec.measures or change.value is None else change.value["value"]
