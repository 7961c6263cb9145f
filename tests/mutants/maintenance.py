"""Mutants of compaction, expiry, rewinds and rebuilds: what may go, and what must stay for readers and reverts."""

from tests.mutants.mutant import Mutant

MAINTENANCE = "state_backends/maintenance.py"
POSTGRES = "state_backends/backends/postgres/maintenance.py"
REBUILD = "state_backends/repair/rebuilding.py"
REWIND = "state_backends/repair/rewind.py"

FOLDING = "state_backends/backends/postgres/tiles.py"
TILES = ["tests/state_backends/test_tiles.py"]
COMPACTION = ["tests/state_backends/test_compaction.py"]
EXPIRY = ["tests/state_backends/test_expiry.py"]
REBUILDS = ["tests/state_backends/repair/test_rebuilding.py"]
REWINDS = ["tests/state_backends/repair/test_rewind.py"]
AT_TXID = ["tests/state_backends/reader/test_at_txid.py"]

MUTANTS = [
    Mutant(
        "maintenance/expiry-goes-by-now-while-a-batch-is-open",
        MAINTENANCE,
        '"clock": min(now, open_time or now),',
        '"clock": now,',
        EXPIRY,
    ),
    Mutant(
        "maintenance/a-page-does-not-lock-the-ledger",
        MAINTENANCE,
        'sql.SQL(" FOR SHARE OF p")',
        'sql.SQL("")',
        EXPIRY,
    ),
    Mutant(
        "maintenance/a-state-without-a-changelog-keeps-its-reach-after-expiry",
        POSTGRES,
        "        if not spec.changelog:\n            _shorten_reach(conn, page)\n",
        "",
        AT_TXID,
    ),
    Mutant(
        "maintenance/the-horizon-is-the-committed-batch",
        MAINTENANCE,
        'AND b.txid < p.committed_txid "\n        "AND b.batch_time',
        'AND b.txid <= p.committed_txid "\n        "AND b.batch_time',
        COMPACTION,
    ),
    Mutant(
        "maintenance/entries-after-the-horizon-are-dropped",
        MAINTENANCE,
        "AND n.txid > t.txid AND n.txid <= {horizon})",
        "AND n.txid > t.txid)",
        COMPACTION,
    ),
    Mutant(
        "maintenance/a-dead-entry-is-dropped-before-an-older-one",
        MAINTENANCE,
        "AND NOT EXISTS (SELECT FROM {log} o WHERE {same} AND o.txid < t.txid)",
        "AND EXISTS (SELECT)",
        COMPACTION,
    ),
    Mutant(
        "maintenance/a-tombstone-that-may-be-reverted-is-deleted",
        POSTGRES,
        'sql.SQL("t.txid <= {}").format(sql.Literal(horizon.txid)) if table.keeps_txid',
        'sql.SQL("{} >= 0").format(sql.Literal(horizon.txid)) if table.keeps_txid',
        COMPACTION,
    ),
    Mutant(
        "maintenance/the-ledger-loses-the-batch-before-the-committed-one",
        MAINTENANCE,
        "b.txid < p.committed_txid - %s ",
        "b.txid < p.committed_txid + %s ",
        COMPACTION,
    ),
    Mutant(
        "maintenance/the-ledger-loses-batches-that-a-changelog-reaches",
        MAINTENANCE,
        'AND r.oldest_txid <= b.txid) "',
        'AND r.oldest_txid < 0) "',
        COMPACTION,
    ),
    Mutant(
        "maintenance/a-rebuild-leaves-a-removal-out-that-may-be-reverted",
        REBUILD,
        "        return newest.txid == txid\n",
        "        return False\n",
        REBUILDS,
    ),
    Mutant(
        "maintenance/a-rebuild-keeps-rows-of-a-newer-batch",
        REBUILD,
        "if key not in rows or txid > (rows[key].txid or 0)]",
        "if key not in rows]",
        REBUILDS,
    ),
    Mutant(
        "maintenance/a-rewind-begins-no-epoch",
        REWIND,
        "        new_epoch(self._conn, reason, self.pipeline)\n",
        "",
        REWINDS,
    ),
    Mutant(
        "maintenance/a-rewind-leaves-later-entries",
        REWIND,
        "                    Changelog(self._conn, step.spec).forget_after(self.to)\n",
        "                    pass\n",
        REWINDS,
    ),
    Mutant(
        "maintenance/a-rewind-by-previous-versions-with-an-open-batch",
        REWIND,
        'if self._ledger["open_txid"] is not None:',
        'if self._ledger["open_txid"] == 0:',
        REWINDS,
    ),
    Mutant(
        "maintenance/a-rewind-two-batches-back-by-previous-versions",
        REWIND,
        "if self.to < self.committed - 1:",
        "if self.to < self.committed - 2:",
        REWINDS,
    ),
    Mutant(
        "tiles/compaction-folds-rows-of-the-committed-batch",
        FOLDING,
        "row.txid < committed}",
        "row.txid <= committed}",
        TILES,
    ),
    Mutant(
        "tiles/compaction-folds-into-rows-of-the-committed-batch",
        FOLDING,
        "(target in stored and target not in settled) or not fine",
        "not fine",
        TILES,
    ),
    Mutant(
        "tiles/compaction-does-not-hold-the-ledger",
        FOLDING,
        "FOR NO KEY UPDATE OF p",
        "",
        TILES,
    ),
    Mutant(
        "tiles/rows-are-folded-before-that-is-recorded",
        FOLDING,
        '"UPDATE tidegauge.state SET tiles_until = %s WHERE name = %s",',
        '"UPDATE tidegauge.state SET tiles_until = %s WHERE name = %s AND false",',
        TILES,
    ),
    Mutant(
        "tiles/a-folded-batch-can-be-read-as-of",
        FOLDING,
        'self.conn.execute(SHORTENED, {"reach": committed - 1,',
        'self.conn.execute(SHORTENED, {"reach": -1,',
        TILES,
    ),
    Mutant(
        "tiles/an-event-of-the-future-makes-tiles-coarse",
        FOLDING,
        'min(checked_clock(conn, f"state {spec.name!r}"), at + WIDTHS[tiles.finest])',
        "at + WIDTHS[tiles.finest]",
        TILES,
    ),
    Mutant(
        "tiles/a-total-that-does-not-fit-stops-the-run",
        FOLDING,
        "except FoldRangeError:",
        "except ZeroDivisionError:",
        TILES,
    ),
    Mutant(
        "tiles/a-window-is-answered-with-less-than-it-asks",
        "state_backends/spec/tiles.py",
        "if GONE in until and since < until[GONE]:",
        "if False:",
        TILES,
    ),
    Mutant(
        "tiles/a-window-of-too-many-tiles-is-cut",
        "state_backends/backends/postgres/reader.py",
        "if len(arrays[0] or ()) > most_folded:",
        "if False:",
        TILES,
    ),
    Mutant(
        "tiles/times-before-which-tiles-are-in-use-go-back",
        "state_backends/spec/tiles.py",
        "max(at, until.get(name, at))",
        "at",
        TILES,
    ),
    Mutant(
        "series/rows-that-a-rewind-gives-back-arrive-again",
        "webapp/catalog/series.py",
        "CASE WHEN b.went_back THEN NULL",
        "CASE WHEN false THEN NULL",
        ["tests/webapp/catalog/test_series.py"],
    ),
    Mutant(
        "console/the-rewind-of-another-pipeline-is-marked",
        "webapp/console/dashboard/timeline.py",
        """ and "pipeline '" not in reason""",
        "",
        ["tests/webapp/console/dashboard/test_timeline.py"],
    ),
    Mutant(
        "console/movers-read-any-number-of-keys",
        "webapp/console/dashboard/explorer/movers.py",
        "most_folded=MOST_KEYS",
        "most_folded=1_000_000",
        ["tests/webapp/console/dashboard/test_movers.py"],
    ),
    Mutant(
        "console/what-is-acknowledged-needs-somebody",
        "webapp/console/dashboard/strip.py",
        "taken = acknowledgements(troubled) if troubled and is_whole else {}",
        "taken = {}",
        ["tests/webapp/console/dashboard/test_strip.py"],
    ),
    Mutant(
        "tiles/an-explorer-page-mixes-tiles-of-two-sizes",
        "webapp/console/dashboard/explorer/then_and_now.py",
        "if tiles_in_use(spec.name) == in_use:",
        "if True:",
        ["tests/webapp/console/dashboard/test_tiles.py"],
    ),
    Mutant(
        "maintenance/a-sender-of-messages-keeps-its-lock",
        "webapp/notify/webhooks/outbox.py",
        "conn.execute(UNLOCK)",
        "pass",
        ["tests/webapp/notify/webhooks/test_outbox.py"],
    ),
]
