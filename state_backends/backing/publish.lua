-- Publish: readers see this batch from here on, never an older one. KEYS: guard, batches. ARGV: txid.
-- Returns the older batches whose written keys are on record.

if tonumber(redis.call("HGET", KEYS[1], "committed") or 0) < tonumber(ARGV[1]) then
  redis.call("HSET", KEYS[1], "committed", ARGV[1])
end
return redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", "(" .. ARGV[1])
