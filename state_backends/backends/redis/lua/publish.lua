-- Publish: readers see this batch from here on, never an older one. KEYS: guard, batches. ARGV: attempt, txid.
-- Returns the older batches whose written keys are on record.

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end
if tonumber(redis.call("HGET", KEYS[1], "committed") or 0) < tonumber(ARGV[2]) then
  redis.call("HSET", KEYS[1], "committed", ARGV[2])
end
return redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", "(" .. ARGV[2])
