-- Check: refuse if keys of the batch are missing. It writes, so that a WAIT after it covers every write before it.
-- KEYS: guard. ARGV: attempt, txid, how many keys the batch wrote ("" if that is unknown).
-- Returns how many keys carry the batch's txid.

local refusal = fenced(ARGV[1]) or lacking(ARGV[2], ARGV[3])
if refusal then
  return refusal
end
begin_write()
redis.call("HSET", KEYS[1], "checked", ARGV[2])
return tonumber(redis.call("HGET", KEYS[1], "keys:" .. ARGV[2]) or 0)
