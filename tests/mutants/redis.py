"""Mutants of the state in Redis: the scripts that merge, guard, publish, read and revert, and its comparison."""

from tests.mutants.mutant import Mutant

LUA = "state_backends/backends/redis/lua/"
COMPARISON = "state_backends/backends/comparison.py"

MERGE = ["tests/state_backends/backends/test_redis_merge.py"]
BATCHES = ["tests/state_backends/backends/test_redis_batches.py"]
BACKING_MAPS = ["tests/state_backends/backends/test_backing_maps.py"]
COMPARED = ["tests/state_backends/backends/test_comparison.py"]

MUTANTS = [
    Mutant(
        "redis/a-replay-builds-on-the-failed-attempt",
        LUA + "merge.lua",
        "return before[TXID] and before or nil, true",
        "return row, true",
        MERGE,
    ),
    Mutant(
        "redis/an-older-batch-writes",
        LUA + "merge.lua",
        "tonumber(row[TXID] or 0) > number then",
        "tonumber(row[TXID] or 0) > number + 1 then",
        MERGE,
    ),
    Mutant(
        "redis/a-replay-shifts-the-versions-again",
        LUA + "merge.lua",
        'KIND == "opaque" and not replay and row',
        'KIND == "opaque" and row',
        MERGE,
    ),
    Mutant(
        "redis/an-expired-version-counts",
        LUA + "merge.lua",
        "if upon and live(upon, ttl, clock) then",
        'if upon and upon[REMOVED] ~= "true" then',
        MERGE,
    ),
    Mutant(
        "redis/a-transactional-replay-counts-again",
        LUA + "merge.lua",
        'values[i] = not (replay and KIND == "transactional") and',
        "values[i] =",
        MERGE,
    ),
    Mutant(
        "redis/a-refused-total-is-written",
        LUA + "merge.lua",
        "values[i], overflow = false, nil",
        "overflow = nil",
        MERGE,
    ),
    Mutant(
        "redis/a-merge-of-an-old-attempt-writes",
        LUA + "merge.lua",
        "local refusal = fenced(ARGV[1])\n",
        "local refusal = nil\n",
        BATCHES,
    ),
    Mutant(
        "redis/a-put-of-an-old-attempt-writes",
        LUA + "put.lua",
        "local refusal = fenced(ARGV[1])\n",
        "local refusal = nil\n",
        BATCHES,
    ),
    Mutant(
        "redis/a-revert-by-an-old-attempt",
        LUA + "revert.lua",
        "local refusal = fenced(ARGV[1])\n",
        "local refusal = nil\n",
        BATCHES,
    ),
    Mutant(
        "redis/an-old-attempt-publishes",
        LUA + "publish.lua",
        "fenced(ARGV[1]) or lacking(",
        "lacking(",
        BATCHES,
    ),
    Mutant(
        "redis/a-batch-without-all-its-keys-is-published",
        LUA + "publish.lua",
        "fenced(ARGV[1]) or lacking(ARGV[2], ARGV[3])",
        "fenced(ARGV[1])",
        [*BATCHES, *COMPARED],
    ),
    Mutant(
        "redis/a-batch-with-more-keys-than-were-written-is-published",
        LUA + "common.lua",
        'have < tonumber(expected) or (KIND == "opaque" and have > tonumber(expected))',
        "have < tonumber(expected)",
        [*BATCHES, *COMPARED],
    ),
    Mutant(
        "redis/publish-goes-back",
        LUA + "publish.lua",
        '"committed") or 0) < tonumber(ARGV[2]) then',
        '"committed") or 0) ~= tonumber(ARGV[2]) then',
        BATCHES,
    ),
    Mutant(
        "redis/a-row-expires-a-moment-late",
        LUA + "common.lua",
        "clock - tonumber(version[UPDATED_AT]) < ttl)",
        "clock - tonumber(version[UPDATED_AT]) <= ttl)",
        MERGE,
    ),
    Mutant(
        "redis/a-driver-of-an-equal-fence-is-admitted",
        LUA + "admit.lua",
        'elseif place == 1 and (parts[4] or "") ~= ARGV[4] then\n      return true\n',
        "",
        BATCHES,
    ),
    Mutant(
        "redis/an-attempt-of-another-epoch-is-admitted",
        LUA + "admit.lua",
        "(not same_epoch and not starts) or ",
        "",
        BATCHES,
    ),
    Mutant(
        "redis/the-record-of-the-committed-batch-is-forgotten",
        LUA + "admit.lua",
        '"by:" .. ARGV[2] - 2, "keys:" .. ARGV[2] - 2',
        '"by:" .. ARGV[2] - 1, "keys:" .. ARGV[2] - 1',
        [*BATCHES, *COMPARED],
    ),
    Mutant(
        "redis/readers-see-an-open-batch",
        LUA + "committed.lua",
        'if KIND == "opaque" and tonumber(row[TXID] or 0) > at then\n    return redis.call("HMGET", key',
        'if KIND == "opaque" and tonumber(row[TXID] or 0) > at + 1 then\n    return redis.call("HMGET", key',
        BATCHES,
    ),
    Mutant(
        "redis/readers-see-a-version-before-the-committed-one",
        LUA + "committed.lua",
        'if KIND == "opaque" and tonumber(row[TXID] or 0) > at then\n    return redis.call("HMGET", key',
        'if KIND == "opaque" and tonumber(row[TXID] or 0) >= at then\n    return redis.call("HMGET", key',
        BATCHES,
    ),
    Mutant(
        "redis/a-reader-is-not-told-that-a-row-moved-on",
        LUA + "committed.lua",
        '  if asked and KIND == "opaque" and tonumber(row[TXID] or 0) > at then\n    return {-1, "", "", ""}\n  end\n',
        "",
        BATCHES,
    ),
    Mutant(
        "redis/a-removed-row-is-expired-not-missing",
        LUA + "committed.lua",
        'if not row[UPDATED_AT] or row[REMOVED] == "true" then',
        "if not row[UPDATED_AT] then",
        BATCHES,
    ),
    Mutant(
        "redis/revert-leaves-readers-at-the-batch",
        LUA + "revert.lua",
        "math.min(committed, txid - 1)",
        "math.min(committed, txid)",
        BATCHES,
    ),
    Mutant(
        "redis/a-reader-is-not-told-that-a-version-was-forgotten",
        LUA + "committed.lua",
        "at < tonumber(said[4] or 0)",
        "false",
        BATCHES,
    ),
    Mutant(
        "redis/a-reader-is-not-told-that-its-batch-came-again",
        LUA + "committed.lua",
        ' or (ARGV[3] ~= "" and by ~= ARGV[3])',
        "",
        BATCHES,
    ),
    Mutant(
        "redis/a-freed-tombstone-is-no-news-to-readers",
        LUA + "trim.lua",
        "  forget_before(newest)\n",
        "",
        BATCHES,
    ),
    Mutant(
        "redis/revert-puts-rows-of-other-batches-back",
        LUA + "revert.lua",
        'if redis.call("HGET", KEYS[i], "txid") == txid then',
        'if redis.call("EXISTS", KEYS[i]) == 1 then',
        BATCHES,
    ),
    Mutant(
        "redis/put-replaces-a-newer-row",
        LUA + "put.lua",
        "if stored and tonumber(stored) > tonumber(txid or 0) then",
        "if stored and tonumber(stored) < 0 then",
        BACKING_MAPS,
    ),
    Mutant(
        "redis/a-store-that-is-ahead-is-taken-back-two-batches",
        COMPARISON,
        "is_last = status.published == ahead and not rows.record(ahead + 1).keys",
        "is_last = True",
        COMPARED,
    ),
    Mutant(
        "redis/another-attempt-at-the-batch-is-taken-for-the-committed-one",
        COMPARISON,
        "    if own.by != ledger.by:\n",
        '    if own.by == "":\n',
        COMPARED,
    ),
    Mutant(
        "redis/a-store-that-lacks-keys-is-served",
        COMPARISON,
        'if own.keys < ledger.keys or (spec.kind == "opaque" and own.keys > ledger.keys):',
        'if spec.kind == "opaque" and own.keys > ledger.keys:',
        COMPARED,
    ),
]
