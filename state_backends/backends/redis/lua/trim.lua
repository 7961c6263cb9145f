-- Trim: free rows that no reader and no later batch needs. They are checked again here, because they may have changed.
--
-- Without a clock: tombstones. With one: rows whose time to live has run out by then.
-- KEYS: guard, keys, a row per key. ARGV: row prefix, the newest txid to free ("" for any), clock, ttl in microseconds.
-- Returns the number of rows freed.

local settled, clock, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function is_useless(row)
  if not row[UPDATED_AT] or (settled and tonumber(row[TXID] or 0) > settled) then
    return false
  elseif not clock then
    return row[REMOVED] == "true"
  end
  return row[REMOVED] ~= "true" and not live(row, ttl, clock)
end

local freed, newest = 0, 0
for i = 3, #KEYS do
  local row = redis.call("HMGET", KEYS[i], unpack(CURRENT))
  if is_useless(row) then
    redis.call("DEL", KEYS[i])
    freed = freed + redis.call("ZREM", KEYS[2], member(KEYS[i], ARGV[1]))
    newest = math.max(newest, tonumber(row[TXID] or 0))
  end
end
count_rows(-freed)
-- Only for tombstones, because readers of a batch before the removal see the key. Expired rows are dead there too.
if not clock then
  forget_before(newest)
end
return freed
