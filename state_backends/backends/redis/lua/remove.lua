-- Remove: rows and their places in the order of keys. KEYS: guard, keys, a row per key. ARGV: attempt, row prefix.

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end
for i = 3, #KEYS do
  redis.call("DEL", KEYS[i])
  redis.call("ZREM", KEYS[2], member(KEYS[i], ARGV[2]))
end
return 0
