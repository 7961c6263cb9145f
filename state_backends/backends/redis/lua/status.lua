-- Status: what the guard says, and how many rows there are. KEYS: guard, keys.
-- Returns the published batch, the admitted attempt, whether the state is being rebuilt, the rows counted as they were
-- written, those found to be missing, the rows in the order of keys, and how many of the two keys exist.

local said = redis.call("HMGET", KEYS[1], "committed", "attempt", "rebuilding", "rows", "lost")
said[6] = redis.call("ZCARD", KEYS[2])
said[7] = redis.call("EXISTS", KEYS[1], KEYS[2])
return said
