-- What the scripts share. Before this comes the state's header, written by scripts.py:
-- KIND, ROW_COUNT (the place of the column at whose 0 a key is removed, 0 for none), VALUES (the columns of its value),
-- VERSION (those, removed, updated_at), FIELDS (everything in a row).

local WIDTH = #VALUES
local REMOVED, UPDATED_AT, TXID = WIDTH + 1, WIDTH + 2, WIDTH + 3 -- places in a version that is followed by its txid

local CURRENT, PREVIOUS = {}, {}
for c = 1, TXID do
  CURRENT[c] = c == TXID and "txid" or VERSION[c]
  PREVIOUS[c] = "prev_" .. CURRENT[c]
end

-- The refusal of a write by another attempt than the admitted one, or by that one before it has reverted the attempts
-- before it; nil where it may go on, or asks for no check.
local function fenced(attempt, reverts)
  if attempt == "" then
    return nil
  end
  local was = redis.call("HMGET", KEYS[1], "attempt", "epoch", "reverting")
  if was[1] ~= attempt or (was[3] == attempt and not reverts) then
    return {"fenced", was[1] or "", was[2] or ""}
  end
end

local function member(key, row_prefix)
  return string.sub(key, #row_prefix + 1)
end

-- One command over many arguments, in runs that fit on Lua's stack. Returns the sum of its replies.
local function call_with_all(command, key, arguments, count)
  local sum = 0
  for first = 1, count, 1000 do
    sum = sum + redis.call(command, key, unpack(arguments, first, math.min(first + 999, count)))
  end
  return sum
end

-- A full server refuses a script's first write if it may take memory, and never a later one. HDEL takes none: after this
-- a script runs to its end, so what undoes a batch works on a full server too.
local function begin_write()
  redis.call("HDEL", KEYS[1], "")
end

-- The guard counts the rows, from the first admission on, to be compared with those that are there.
local function count_rows(change)
  if change ~= 0 and redis.call("HEXISTS", KEYS[1], "rows") == 1 then
    redis.call("HINCRBY", KEYS[1], "rows", change)
  end
end

-- It counts the keys that carry a batch's txid, too, and notes which batch was the last to write any: a revert takes the
-- keys back, and the versions before theirs stay used up. attempt: "" for writes outside any batch, which are not counted.
local function count_keys(attempt, txid, change)
  if change ~= 0 and attempt ~= "" and KIND ~= "non_transactional" then
    redis.call("HINCRBY", KEYS[1], "keys:" .. txid, change)
    redis.call("HSET", KEYS[1], "written", txid)
  end
end

-- The refusal of a batch that has other keys than were written; nil where it has all, or that is unknown.
local function lacking(txid, expected)
  if expected == "" or KIND == "non_transactional" then
    return nil
  end
  local have = tonumber(redis.call("HGET", KEYS[1], "keys:" .. txid) or 0)
  -- A replay of a transactional state may leave keys behind that only the attempt before brought.
  if have < tonumber(expected) or (KIND == "opaque" and have > tonumber(expected)) then
    return {"lacking", have}
  end
end

-- The refusal once rows that the order of keys names are not there: the server has dropped them.
local function lost(rows)
  redis.call("HINCRBY", KEYS[1], "lost", rows)
  return {"lost", rows}
end

-- Rows no longer show batches before `txid`: a version that readers of those would see is gone, and nothing in the row
-- says that there was one.
local function forget_before(txid)
  if tonumber(redis.call("HGET", KEYS[1], "oldest") or 0) < txid then
    redis.call("HSET", KEYS[1], "oldest", txid)
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
