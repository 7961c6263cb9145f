"""Mutants of what readers see: committed versions, live ones, earlier batches, several states at one batch."""

from tests.mutants.mutant import Mutant

COMMITTED = "state_backends/committed.py"
COMBINED = "state_backends/backends/postgres/combined.py"
STATE_READER = "state_backends/backends/postgres/reader.py"
CHANGELOG = "state_backends/changelog.py"
CHANGES = "state_backends/reader/changes.py"
HISTORY = "state_backends/reader/history.py"
MULTI_STATE = "state_backends/reader/multi_state.py"
PINNED = "state_backends/reader/pinned.py"
SCHEMA = "state_backends/schema/migrations/0001_initial.sql"

READER = ["tests/state_backends/reader/test_reader.py"]
AT_TXID = ["tests/state_backends/reader/test_at_txid.py"]
LIVE = ["tests/state_backends/test_committed.py"]
LOG = ["tests/state_backends/test_changelog.py"]
CHANGES_TESTS = ["tests/state_backends/reader/test_changes.py"]
HISTORY_TESTS = ["tests/state_backends/reader/test_history.py"]
MULTI_STATE_TESTS = ["tests/state_backends/reader/test_multi_state.py"]
PINNED_TESTS = ["tests/state_backends/reader/test_pinned.py"]

MUTANTS = [
    Mutant(
        "readers/an-open-batch-shows",
        COMMITTED,
        '"CASE WHEN t.txid <= p.committed_txid THEN {} ELSE {} END"',
        '"CASE WHEN t.txid <= p.committed_txid + 1 THEN {} ELSE {} END"',
        READER,
    ),
    Mutant(
        "readers/a-new-row-of-an-open-batch-is-an-entry",
        COMMITTED,
        'return sql.SQL("(t.txid <= p.committed_txid OR t.prev_txid IS NOT NULL)")',
        'return sql.SQL("true")',
        READER,
    ),
    Mutant(
        "readers/a-row-of-the-open-batch-alone-is-left-out",
        COMMITTED,
        'return sql.SQL("(t.txid <= p.committed_txid OR t.prev_txid IS NOT NULL)")',
        'return sql.SQL("(t.txid <= p.committed_txid)")',
        READER,
    ),
    Mutant(
        "readers/a-version-is-live-at-the-end-of-its-ttl-in-python",
        COMMITTED,
        "return not removed and (ttl is None or clock - updated_at < ttl)",
        "return not removed and (ttl is None or clock - updated_at <= ttl)",
        LIVE,
    ),
    Mutant(
        "readers/a-version-is-live-at-the-end-of-its-ttl-in-sql",
        SCHEMA,
        "(ttl IS NULL OR clock - updated_at < ttl)",
        "(ttl IS NULL OR clock - updated_at <= ttl)",
        LIVE,
    ),
    Mutant(
        "readers/all-types-are-read-in-binary-form-beside-a-sketch",
        STATE_READER,
        'return {sql_type.partition("(")[0] for sql_type in stored.values()} <= TYPES.keys()',
        "return True",
        ["tests/state_backends/backends/postgres/test_combined.py"],
    ),
    Mutant(
        "readers/a-removed-row-is-expired-not-missing",
        COMBINED,
        "OR NOT {exists} OR v.removed THEN 'missing'",
        "OR NOT {exists} THEN 'missing'",
        READER,
    ),
    Mutant(
        "readers/ttl-counts-from-now-in-the-past",
        COMBINED,
        'live_sql("v", TTL, THEN)',
        'live_sql("v", TTL, NOW)',
        AT_TXID,
    ),
    Mutant(
        "readers/the-version-before-is-read-in-the-past",
        COMMITTED,
        'WHERE {same} AND t.txid <= p.committed_txid "\n        "ORDER BY t.txid DESC LIMIT 1)',
        'WHERE {same} AND t.txid < p.committed_txid "\n        "ORDER BY t.txid DESC LIMIT 1)',
        AT_TXID,
    ),
    Mutant(
        "readers/compaction-does-not-shorten-the-reach",
        COMMITTED,
        'return sql.SQL("greatest(s.oldest_txid, s.since_txid, p.first_txid)")',
        'return sql.SQL("greatest(s.since_txid, p.first_txid)")',
        AT_TXID,
    ),
    Mutant(
        "readers/a-version-that-a-revert-used-up-is-taken-for-a-new-key",
        COMMITTED,
        "coalesce(t.prev_txid, CASE WHEN p.retried_txid > t.txid THEN t.txid END)",
        "t.prev_txid",
        AT_TXID,
    ),
    Mutant(
        "readers/rows-without-txids-are-told-while-a-batch-is-open",
        COMMITTED,
        "coalesce(p.open_txid, p.newest_txid))",
        "p.newest_txid)",
        AT_TXID,
    ),
    Mutant(
        "readers/history-shows-an-open-batch",
        HISTORY,
        "WHERE {} AND t.txid <= p.committed_txid)",
        "WHERE {} AND t.txid <= p.committed_txid + 1)",
        HISTORY_TESTS,
    ),
    Mutant(
        "readers/history-that-lost-versions-is-complete",
        HISTORY,
        '"s.oldest_txid = 0 AND NOT EXISTS',
        '"NOT EXISTS',
        HISTORY_TESTS,
    ),
    Mutant(
        "readers/a-replay-of-the-batch-that-was-seen-is-no-gap",
        CHANGES,
        "if self.attempt_then != attempt and (attempt is not None or self.attempt_then > 1):",
        "if attempt is None and self.attempt_then > 1:",
        CHANGES_TESTS,
    ),
    Mutant(
        "readers/another-epoch-is-no-gap",
        CHANGES,
        "        if epoch is not None and epoch != self.epoch:\n            return other_epoch(after)\n",
        "",
        CHANGES_TESTS,
    ),
    Mutant(
        "readers/the-changelog-answers-for-batches-that-it-lost",
        CHANGELOG,
        "        if txid < extent.oldest:\n            raise OutOfReachError(self.spec.name, txid, extent.oldest)\n",
        "",
        LOG,
    ),
    Mutant(
        "readers/states-differ-in-the-attempt",
        MULTI_STATE,
        "{(each.epoch, each.txid, each.attempt) for each in shown}",
        "{(each.epoch, each.txid) for each in shown}",
        MULTI_STATE_TESTS,
    ),
    Mutant(
        "readers/a-pinned-batch-is-not-checked-at-the-beginning",
        PINNED,
        "    try:\n        check_same(conn, batch)\n",
        "    try:\n        pass\n",
        PINNED_TESTS,
    ),
]
