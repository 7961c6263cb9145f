-- Revert: put rows of batch `txid` back to their previous version, or delete them if they have none, and take their
-- keys off its record, so that a revert that was killed can continue. Readers are taken back first; a call without rows
-- does only that.
--
-- KEYS: guard, keys, written, a row per key. ARGV: attempt, row prefix, txid, "end" once all rows are put back.
-- Returns the number of rows put back.

local txid = ARGV[3]
local refusal = fenced(ARGV[1], true)
if refusal then
  return refusal
end

begin_write()
local committed = tonumber(redis.call("HGET", KEYS[1], "committed"))
if committed then
  -- Sets `oldest`, because the rows keep one version and do not say whether there was another.
  redis.call("HSET", KEYS[1], "committed", math.min(committed, txid - 1), "oldest", txid - 1)
  redis.call("HDEL", KEYS[1], "shown:" .. txid)
end
-- The timers are made again if their times include the batch that is reverted, because these are wrong now.
local timers = redis.call("HGET", KEYS[1], "timers")
if timers and tonumber(string.match(timers, "^%d+")) >= tonumber(txid) then
  redis.call("HDEL", KEYS[1], "timers")
end

local function put_back(key)
  local row = redis.call("HMGET", key, unpack(PREVIOUS))
  if not row[TXID] then
    redis.call("DEL", key)
    count_rows(-redis.call("ZREM", KEYS[2], member(key, ARGV[2])))
    return
  end
  local set = {}
  for c = 1, TXID do
    if row[c] then
      set[#set + 1] = CURRENT[c]
      set[#set + 1] = row[c]
    end
  end
  replace(key, set)
end

local rows, members = 0, {}
for i = 4, #KEYS do
  if redis.call("HGET", KEYS[i], "txid") == txid then
    put_back(KEYS[i])
    rows = rows + 1
  end
  members[#members + 1] = member(KEYS[i], ARGV[2])
end
-- All at once, because a call about a set that is empty by then would end the script while a slot moves.
local forgotten = call_with_all("SREM", KEYS[3], members, #members)
if forgotten > 0 and redis.call("HEXISTS", KEYS[1], "keys:" .. txid) == 1 then
  redis.call("HINCRBY", KEYS[1], "keys:" .. txid, -forgotten)
end
if ARGV[4] == "end" and redis.call("HGET", KEYS[1], "reverting") == ARGV[1] then
  redis.call("HDEL", KEYS[1], "reverting")
end
return rows
