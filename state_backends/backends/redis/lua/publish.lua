-- Publish: from now on readers see this batch, never an older one. Refused if keys of the batch are missing.
-- KEYS: guard, batches. ARGV: attempt, txid, how many keys the batch wrote ("" if that is unknown).
-- Returns the older batches whose written keys are on record.

local SHOWN_BATCHES = 1000 -- a scan is refused if more are published during it; their attempts' names take 100 kB

local refusal = fenced(ARGV[1]) or lacking(ARGV[2], ARGV[3])
if refusal then
  return refusal
end
begin_write()
if tonumber(redis.call("HGET", KEYS[1], "committed") or 0) < tonumber(ARGV[2]) then
  redis.call("HSET", KEYS[1], "committed", ARGV[2])
  redis.call("HDEL", KEYS[1], "shown:" .. ARGV[2], "shown:" .. ARGV[2] - SHOWN_BATCHES)
  local by = redis.call("HGET", KEYS[1], "by:" .. ARGV[2])
  if by then
    redis.call("HSET", KEYS[1], "shown:" .. ARGV[2], by)
  end
end
if redis.call("HDEL", KEYS[1], "rebuilding") == 1 then
  forget_before(tonumber(ARGV[2])) -- because rows that were written again may lack their previous versions
end
return redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", "(" .. ARGV[2])
