-- Gone: how many of these keys are in the order of keys without a row. KEYS: guard, keys, a row per key.
-- ARGV: row prefix.

local gone = 0
for i = 3, #KEYS do
  if redis.call("EXISTS", KEYS[i]) == 0 and redis.call("ZSCORE", KEYS[2], member(KEYS[i], ARGV[1])) then
    gone = gone + 1
  end
end
return gone
