-- Shared by the scripts. It is preceded by the state's header, which scripts.py writes:
-- KIND, SPREAD (whether the state has several buckets), ROW_COUNT (the place of the column whose 0 removes a key, 0 for
-- none), VALUES (the columns of its value), VERSION (those, removed, updated_at), FIELDS (everything in a row).

local WIDTH = #VALUES
local REMOVED, UPDATED_AT, TXID = WIDTH + 1, WIDTH + 2, WIDTH + 3 -- places in a version that is followed by its txid

local CURRENT, PREVIOUS = {}, {}
for c = 1, TXID do
  CURRENT[c] = c == TXID and "txid" or VERSION[c]
  PREVIOUS[c] = "prev_" .. CURRENT[c]
end

-- Returns the refusal of a write by an attempt that is not admitted, or has not reverted the attempts before it; nil if
-- it may go on, or asks for no check.
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

-- Calls one command with many arguments, in runs, because all at once do not fit on Lua's stack. Returns the sum of the
-- replies.
local function call_with_all(command, key, arguments, count)
  local sum = 0
  for first = 1, count, 1000 do
    sum = sum + redis.call(command, key, unpack(arguments, first, math.min(first + 999, count)))
  end
  return sum
end

-- A full server refuses a script's first write if it may take memory, and never a later one. HDEL takes none. It comes
-- first, so that a script then runs to its end, and a batch can be undone on a full server too.
local function begin_write()
  redis.call("HDEL", KEYS[1], "")
end

-- Replaces everything in a hash. fields: names and values in turn. Returns whether there was no such hash.
--
-- Nothing is deleted first, because while Redis Cluster moves a slot to another node, a key that a script has deleted
-- cannot be made again: the script would end there, and what it has done would stay.
local function replace(key, fields)
  local added, size = redis.call("HSET", key, unpack(fields)), redis.call("HLEN", key)
  if size == #fields / 2 then
    return added == size
  end
  local kept, gone = {}, {}
  for i = 1, #fields, 2 do
    kept[fields[i]] = true
  end
  for _, field in ipairs(redis.call("HKEYS", key)) do
    if not kept[field] then
      gone[#gone + 1] = field
    end
  end
  redis.call("HDEL", key, unpack(gone))
  return false
end

-- The guard counts the rows, from the first admission on, so that the count can be compared with the rows that exist.
local function count_rows(change)
  if change ~= 0 and redis.call("HEXISTS", KEYS[1], "rows") == 1 then
    redis.call("HINCRBY", KEYS[1], "rows", change)
  end
end

-- It also counts the keys that carry a batch's txid, and records the last batch that wrote any, because after a revert
-- the keys are gone but the versions that they replaced are used up. attempt: "" outside any batch; not counted then.
local function count_keys(attempt, txid, change)
  if change ~= 0 and attempt ~= "" and KIND ~= "non_transactional" then
    redis.call("HINCRBY", KEYS[1], "keys:" .. txid, change)
    redis.call("HSET", KEYS[1], "written", txid)
  end
end

-- Returns the refusal of a batch that has another number of keys than were written; nil if it has all, or if unknown.
local function lacking(txid, expected)
  if expected == "" or KIND == "non_transactional" then
    return nil
  end
  local have = tonumber(redis.call("HGET", KEYS[1], "keys:" .. txid) or 0)
  -- More are accepted in a transactional state, because a replay may leave keys that only an earlier attempt wrote.
  if have < tonumber(expected) or (KIND == "opaque" and have > tonumber(expected)) then
    return {"lacking", have}
  end
end

-- Returns the refusal for rows that are missing although the order of keys has them, because the server dropped them.
local function lost(rows)
  redis.call("HINCRBY", KEYS[1], "lost", rows)
  return {"lost", rows}
end

-- Records that rows no longer show batches before `txid`, because a version that readers of those would see is gone and
-- nothing in the row says that there was one.
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
