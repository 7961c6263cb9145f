-- Timers: set the times of keys, or take out keys without one, and record up to which batch the times are complete.
-- KEYS: guard, timers. ARGV: attempt, "begin" to forget all times first, what to record ("" while more calls follow),
-- then pairs of a time ("" for none) and a key.

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end
begin_write()
if ARGV[2] == "begin" then
  redis.call("HDEL", KEYS[1], "timers")
  redis.call("DEL", KEYS[2])
end
for i = 4, #ARGV, 2 do
  if ARGV[i] == "" then
    redis.call("ZREM", KEYS[2], ARGV[i + 1])
  else
    redis.call("ZADD", KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
if ARGV[3] ~= "" then
  redis.call("HSET", KEYS[1], "timers", ARGV[3])
end
return 0
