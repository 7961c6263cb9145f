-- Remove: rows and their places in the order of keys. KEYS: guard, keys, a row per key. ARGV: attempt, row prefix.

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end
local removed = 0
for i = 3, #KEYS do
  redis.call("DEL", KEYS[i])
  removed = removed + redis.call("ZREM", KEYS[2], member(KEYS[i], ARGV[2]))
end
count_rows(-removed)
return 0
