-- Committed: what a reader sees of rows at the committed batch, by a clock.
--
-- A row that a later batch wrote shows its previous version, and none if it has none. Kinds that keep one version show
-- that one. KEYS: guard, a row per key. ARGV: ttl ("" for none), the batch to read at ("" for the mirrored one), the
-- attempt at it that was published ("" if unknown), the clock in microseconds ("" for the server's).
-- Returns the batch, its published attempt, and per row its status, its txid, its time and its value's columns, as two
-- strings. Batch -1: the batch that was asked for is no longer shown, because a row has moved on by two, a version was
-- forgotten, or the batch was reverted, even if another attempt at it was published since. -2: the state is being
-- rebuilt. -3: rows of it are known to be missing.

local said = redis.call("HMGET", KEYS[1], "committed", "rebuilding", "lost", "oldest")
if said[2] or said[3] then
  return {said[2] and -2 or -3, "", "", ""}
end
local committed, asked = tonumber(said[1] or 0), ARGV[2] ~= ""
local at = tonumber(ARGV[2]) or committed
local by = redis.call("HGET", KEYS[1], "shown:" .. at) or ""
local forgotten = asked and KIND == "opaque" and at < tonumber(said[4] or 0)
-- A spread state is read at the attempt that the ledger has. A bucket knows none if no attempt wrote it: it is new, or
-- was copied or rebuilt.
local is_other = ARGV[3] ~= "" and by ~= ARGV[3] and not (SPREAD and by == "" and at == committed)
if at > committed or forgotten or is_other then
  return {-1, "", "", ""}
end
local ttl, clock = tonumber(ARGV[1]), tonumber(ARGV[4]) or now()

local function visible(key)
  local row = redis.call("HMGET", key, unpack(CURRENT))
  if KIND == "opaque" and tonumber(row[TXID] or 0) > at then
    return redis.call("HMGET", key, unpack(PREVIOUS))
  end
  return row
end

local function status(row)
  if not row[UPDATED_AT] or row[REMOVED] == "true" then
    return "missing"
  end
  return live(row, ttl, clock) and "found" or "expired"
end

local values, count = {}, 0
for i = 2, #KEYS do
  local row = visible(KEYS[i])
  if asked and KIND == "opaque" and tonumber(row[TXID] or 0) > at then
    return {-1, "", "", ""}
  end
  local seen = status(row)
  values[count + 1], values[count + 2], values[count + 3] = seen, row[TXID], row[UPDATED_AT]
  for c = 1, WIDTH do
    values[count + 3 + c] = seen == "found" and row[c]
  end
  count = count + 3 + WIDTH
end
return {at, by, pack(values, count)}
