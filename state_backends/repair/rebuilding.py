"""Rebuild: make the rows of a state again from its changelog, on any backend.

For a state whose rows are lost, or move to another store. Stop its pipeline first; the ledger stays as it is, so the
pipeline goes on from the committed batch.
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
    """How far a rebuild is. last_key: what to resume from. keys: done by this run, of about `of` there are in all.

    txid: the batch whose state the rows show.
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

    upto: the batch whose state to rebuild; None means the committed one, whatever has been written of an open one.
    resume_from: the `last_key` of a run that was cut short; starting over gives the same, only later.
    work: the state's lock, if the caller holds it.
    Opaque rows carry their newest two versions, so that readers beside an open batch, replays and reverts find what
    they would have found. Left out is what the next merge would take as nothing: versions past their ttl, which
    lookups answer as missing from then on, and tombstones of batches that cannot be undone any more. Whatever else
    `target` holds goes, range by range: rows that were removed meanwhile, rows of a newer batch.
    Raises OutOfReachError, NotCommittedError, UnknownStateError; StateBusyError while another work has the state's
    tables: entries must not be deleted between two chunks.
    """
    with lock_unless(work, log.conn, log.spec.name, "rebuild"):
        yield from _rebuild(log, target, upto, chunk_keys, resume_from)


def _rebuild(
    log: Changelog, target: IBackingMap, upto: int | None, chunk_keys: int, resume_from: Key | None
) -> Iterator[Progress]:
    extent = log.extent()
    if extent.ttl is not None:
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
    """Make `rows` all that `target` holds after one key and up to another; None: from its start, to its end."""
    surplus = [key for key, txid in _held(target, after, last) if key not in rows or txid > (rows[key].txid or 0)]
    for first in range(0, len(surplus), CHUNK_KEYS):
        # Removed first: a row is never replaced by one of an older batch.
        target.multi_remove(surplus[first : first + CHUNK_KEYS])
    target.multi_put(list(rows), list(rows.values()))


def _held(target: IBackingMap, after: Key | None, last: Key | None) -> Iterator[tuple[Key, int]]:
    """Yield the keys of that range with the batch that wrote each."""
    if not target.spec.key:
        # The only row: no key is before or after it.
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
    """Return the row whose newest two versions these are, the newest first, or the only one."""
    newest, *before = versions
    value = _value(spec, newest)
    if spec.kind != "opaque" or not before:
        return Versioned(value, newest.txid, at=newest.batch_time)
    (prev,) = before
    return Versioned(value, newest.txid, _value(spec, prev), prev.txid, newest.batch_time, prev.batch_time)


def _value(spec: StateSpec, change: Change) -> object:
    return change.value if spec.measures or change.value is None else change.value["value"]
