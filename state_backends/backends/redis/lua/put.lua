-- Put: rows in place of what is there, all or none; refused where a stored row has a newer txid.
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

if KIND ~= "non_transactional" then
  for i = 1, #KEYS - FIRST do
    local stored = redis.call("HGET", KEYS[FIRST + i], "txid")
    if stored and tonumber(stored) > tonumber(value(i, TXID) or 0) then
      return {"stale", i - 1, stored}
    end
  end
end

local time = string.format("%.0f", now())

local function timed(i, place)
  local missing = place == UPDATED_AT or (place == PREV_UPDATED_AT and value(i, #FIELDS))
  return value(i, place) or (missing and time)
end

for i = 1, #KEYS - FIRST do
  local key, set = KEYS[FIRST + i], {}
  for place = 1, #FIELDS do
    local text = timed(i, place)
    if text then
      set[#set + 1] = FIELDS[place]
      set[#set + 1] = text
    end
  end
  if redis.call("DEL", key) == 0 then
    redis.call("ZADD", KEYS[2], 0, member(key, prefix))
  end
  redis.call("HSET", key, unpack(set))
  if written[value(i, TXID)] then
    redis.call("SADD", written[value(i, TXID)], member(key, prefix))
  end
end

for s = 1, sets do
  redis.call("ZADD", KEYS[3], ARGV[4 + s], ARGV[4 + s])
end
return sets == 0 and 0 or redis.call("ZCARD", KEYS[3])
