"""Mutants of the merge in PostgreSQL, and of what a task writes beside it."""

from tests.mutants.mutant import Mutant

MERGE = "state_backends/backends/postgres/merge.py"
ROWS = "state_backends/backends/postgres/rows.py"
INCOMING = "state_backends/backends/postgres/incoming.py"
SESSION = "state_backends/backends/postgres/session.py"
CHANGELOG = "state_backends/changelog.py"
CONNECTIONS = "pipelines/connections.py"

TESTS = ["tests/state_backends/backends/test_merge.py"]
GENERIC = ["tests/state_backends/backends/test_generic_path.py"]
BACKING_MAPS = ["tests/state_backends/backends/test_backing_maps.py"]
SESSIONS = ["tests/state_backends/backends/postgres/test_session.py"]
LOG = ["tests/state_backends/test_changelog.py"]

MUTANTS = [
    Mutant(
        "merge/an-opaque-replay-is-skipped",
        MERGE,
        'return sql.SQL("t.txid <= {}").format(NEWEST)',
        'return sql.SQL("t.txid < {}").format(NEWEST)',
        TESTS,
    ),
    Mutant(
        "merge/a-transactional-replay-counts-again",
        MERGE,
        'return sql.SQL("t.txid < {}").format(TXID) if',
        'return sql.SQL("t.txid <= {}").format(TXID) if',
        TESTS,
    ),
    Mutant(
        "merge/an-older-batch-writes",
        MERGE,
        'return sql.SQL("t.txid <= {}").format(NEWEST)',
        'return sql.SQL("true")',
        TESTS,
    ),
    Mutant(
        "merge/a-replay-shifts-the-versions-again",
        MERGE,
        '"CASE WHEN t.txid = {} THEN {} ELSE {} END"',
        '"CASE WHEN t.txid < {} - 1 THEN {} ELSE {} END"',
        TESTS,
    ),
    Mutant(
        "merge/prev-txid-is-not-shifted",
        MERGE,
        'for name in [*table.version, "txid"]}',
        "for name in table.version}",
        TESTS,
    ),
    Mutant(
        "merge/a-replay-builds-on-the-failed-attempt",
        MERGE,
        "CASE WHEN t.txid < {txid} THEN CASE WHEN {live}",
        "CASE WHEN t.txid <= {txid} THEN CASE WHEN {live}",
        TESTS,
    ),
    Mutant(
        "merge/an-expired-version-counts",
        MERGE,
        "THEN CASE WHEN {live} THEN {current} ELSE {nothing} END ",
        "THEN CASE WHEN true THEN {current} ELSE {nothing} END ",
        TESTS,
    ),
    Mutant(
        "merge/an-expired-previous-version-counts-in-a-replay",
        MERGE,
        "t.prev_txid IS NOT NULL AND {prev_live} THEN",
        "t.prev_txid IS NOT NULL THEN",
        TESTS,
    ),
    Mutant(
        "merge/an-expired-version-counts-where-only-one-is-kept",
        MERGE,
        'return sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(live, current, nothing)',
        'return sql.SQL("CASE WHEN {} OR true THEN {} ELSE {} END").format(live, current, nothing)',
        TESTS,
    ),
    Mutant(
        "merge/an-update-does-not-restart-the-ttl",
        MERGE,
        '"updated_at": CLOCK}',
        '"updated_at": sql.SQL("t.updated_at")}',
        TESTS,
    ),
    Mutant(
        "merge/a-count-of-rows-that-is-not-fed-removes-the-key",
        MERGE,
        '"({} IS NOT NULL AND {} = 0)"',
        '"({} IS NULL OR {} = 0)"',
        TESTS,
    ),
    Mutant(
        "merge/two-runs-of-a-task-read-the-same-base",
        MERGE,
        "WHERE {same} FOR UPDATE OF t) b",
        "WHERE {same}) b",
        GENERIC,
    ),
    Mutant(
        "merge/postgresql-takes-the-rows-as-they-come",
        MERGE,
        'order = sql.SQL("") if in_order else',
        'order = sql.SQL("") if in_order or True else',
        TESTS,
    ),
    Mutant(
        "merge/arrow-takes-the-rows-as-they-come",
        INCOMING,
        "csv_rows(chunk.sort_by(order))",
        "csv_rows(chunk)",
        TESTS,
    ),
    Mutant(
        "merge/several-sorted-chunks-are-taken-for-one",
        INCOMING,
        "self.in_order = chunks < 2",
        "self.in_order = True",
        TESTS,
    ),
    Mutant(
        "merge/the-planner-chooses-how-rows-are-looked-up",
        ROWS,
        "                self._conn.execute(BY_KEY)\n",
        "",
        TESTS,
    ),
    Mutant(
        "merge/later-statements-of-the-transaction-are-planned-like-the-merge",
        ROWS,
        "                self._conn.execute(AS_BEFORE)\n",
        "",
        TESTS,
    ),
    Mutant(
        "merge/a-second-run-that-inserts-the-same-keys-fails",
        ROWS,
        "            if self._incoming.has_key_twice():",
        "            if True:",
        TESTS,
    ),
    Mutant(
        "merge/a-newer-transactional-row-is-left-alone-without-a-word",
        ROWS,
        "        if applied < merged and self._table.keeps_txid:",
        "        if applied < merged and self._table.keeps_previous:",
        TESTS,
    ),
    Mutant(
        "merge/a-skipped-replay-is-refused-as-older",
        MERGE,
        '"WHERE t.txid > {newest} LIMIT 1"',
        '"WHERE t.txid >= {newest} LIMIT 1"',
        TESTS,
    ),
    Mutant(
        "merge/revert-deletes-every-row-of-the-batch",
        ROWS,
        "WHERE txid = %s AND prev_txid IS NULL",
        "WHERE txid = %s",
        BACKING_MAPS,
    ),
    Mutant(
        "merge/revert-leaves-a-previous-version-of-itself",
        ROWS,
        "txid = prev_txid, prev_txid = NULL WHERE",
        "txid = prev_txid WHERE",
        BACKING_MAPS,
    ),
    Mutant(
        "merge/put-replaces-a-newer-row",
        ROWS,
        "WHERE t.txid <= excluded.txid",
        "WHERE true",
        BACKING_MAPS,
    ),
    Mutant(
        "merge/a-task-writes-without-the-fence",
        SESSION,
        "            before=self._ask_fence,\n",
        "",
        SESSIONS,
    ),
    Mutant(
        "merge/an-updater-writes-without-the-fence",
        SESSION,
        "        lock_fence(self._conn, self._batch)\n",
        "",
        SESSIONS,
    ),
    Mutant(
        "merge/states-over-a-kept-connection-have-no-transaction",
        CONNECTIONS,
        '            if in_transaction:\n                conn.execute("BEGIN")\n',
        "",
        ["tests/pipelines/batch/test_tasks.py"],
    ),
    Mutant(
        "merge/states-over-a-new-connection-have-no-transaction",
        CONNECTIONS,
        '        if in_transaction:\n            conn.execute("BEGIN")\n    try:',
        "    try:",
        ["tests/pipelines/batch/test_tasks.py"],
    ),
    Mutant(
        "merge/a-task-appends-nothing-to-the-changelog",
        SESSION,
        "after=self._append if self._spec.changelog else None",
        "after=None",
        SESSIONS,
    ),
    Mutant(
        "merge/statements-that-the-server-has-skipped-count-as-prepared",
        ROWS,
        "with self._conn.transaction(force_rollback=True):",
        "if False:",
        SESSIONS,
    ),
    Mutant(
        "merge/revert-leaves-the-entries",
        SESSION,
        "            self._log.revert(self._batch.txid)\n",
        "            pass\n",
        SESSIONS,
    ),
    Mutant(
        "merge/an-older-writer-changes-history",
        CHANGELOG,
        "            self._refuse_older()\n",
        "",
        LOG,
    ),
    Mutant(
        "merge/revert-deletes-later-entries",
        CHANGELOG,
        '"DELETE FROM {} WHERE txid = %s"',
        '"DELETE FROM {} WHERE txid <= %s"',
        LOG,
    ),
]
