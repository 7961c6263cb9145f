-- Put: replace rows, all or none. Refused if a stored row has a newer txid.
--
-- KEYS: guard, keys, batches, a `written` set per txid, a row per key.
-- ARGV: attempt, what a row's name begins with, two strings of FIELDS row by row, then the txids of the sets.
-- Returns how many batches have their written keys on record.

local prefix, sets = ARGV[2], #ARGV - 4
local FIRST = 3 + sets
local PREV_UPDATED_AT = 2 * TXID - 1

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end

local values = unpack_values(ARGV[3], ARGV[4])
local written = {}
for s = 1, sets do
  written[ARGV[4 + s]] = KEYS[3 + s]
end

local function value(i, place)
  return values[(i - 1) * #FIELDS + place]
end

local counts = {} -- txid to the keys that carry it and did not before
if KIND ~= "non_transactional" then
  for i = 1, #KEYS - FIRST do
    local stored, txid = redis.call("HGET", KEYS[FIRST + i], "txid"), value(i, TXID)
    if stored and tonumber(stored) > tonumber(txid or 0) then
      return {"stale", i - 1, stored}
    end
    if KIND == "transactional" and txid and stored ~= txid then
      counts[txid] = (counts[txid] or 0) + 1
    end
  end
end

local time = string.format("%.0f", now())

local function timed(i, place)
  local missing = place == UPDATED_AT or (place == PREV_UPDATED_AT and value(i, #FIELDS))
  return value(i, place) or (missing and time)
end

local created, gone = 0, 0
for i = 1, #KEYS - FIRST do
  local key, set = KEYS[FIRST + i], {}
  for place = 1, #FIELDS do
    local text = timed(i, place)
    if text then
      set[#set + 1] = FIELDS[place]
      set[#set + 1] = text
    end
  end
  if replace(key, set) then
    local added = redis.call("ZADD", KEYS[2], 0, member(key, prefix))
    created, gone = created + added, gone + 1 - added
  end
  local txid = value(i, TXID)
  if written[txid] then
    counts[txid] = (counts[txid] or 0) + redis.call("SADD", written[txid], member(key, prefix))
  end
end

count_rows(created)
for txid, count in pairs(counts) do
  count_keys(ARGV[1], txid, count)
end
if gone > 0 then
  return lost(gone)
end

for s = 1, sets do
  redis.call("ZADD", KEYS[3], ARGV[4 + s], ARGV[4 + s])
end
return sets == 0 and 0 or redis.call("ZCARD", KEYS[3])
