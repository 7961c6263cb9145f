-- What the scripts share. Before this comes the state's header, written by scripts.py:
-- KIND, VALUES (the columns of its value), VERSION (those, removed, updated_at), FIELDS (everything in a row).

local WIDTH = #VALUES
local REMOVED, UPDATED_AT, TXID = WIDTH + 1, WIDTH + 2, WIDTH + 3 -- places in a version that is followed by its txid

local CURRENT, PREVIOUS = {}, {}
for c = 1, TXID do
  CURRENT[c] = c == TXID and "txid" or VERSION[c]
  PREVIOUS[c] = "prev_" .. CURRENT[c]
end

-- The refusal of a write by another attempt than the admitted one; nil where it may go on, or asks for no check.
local function fenced(attempt)
  if attempt == "" then
    return nil
  end
  local admitted = redis.call("HGET", KEYS[1], "attempt")
  if admitted ~= attempt then
    return {"fenced", admitted or ""}
  end
end

local function member(key, row_prefix)
  return string.sub(key, #row_prefix + 1)
end

-- One command over many arguments, in runs that fit on Lua's stack.
local function call_with_all(command, key, arguments, count)
  for first = 1, count, 1000 do
    redis.call(command, key, unpack(arguments, first, math.min(first + 999, count)))
  end
end

local function live(version, ttl, clock)
  return version[REMOVED] ~= "true" and (not ttl or clock - tonumber(version[UPDATED_AT]) < ttl)
end

-- The server's clock in microseconds. Doubles hold such times exactly until the year 2255.
local function now()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
