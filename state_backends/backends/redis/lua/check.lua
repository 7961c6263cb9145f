-- Check: refuse if keys of the batch are missing. It writes, so that a WAIT after it covers every write before it.
-- KEYS: guard. ARGV: attempt, txid, how many keys the batch wrote ("" if that is unknown).

local refusal = fenced(ARGV[1]) or lacking(ARGV[2], ARGV[3])
if refusal then
  return refusal
end
begin_write()
redis.call("HSET", KEYS[1], "checked", ARGV[2])
return 0
