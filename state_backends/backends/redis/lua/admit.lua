-- Admit: from now on only this attempt may write. Refused if a newer one was admitted, or one of an equal fence by
-- another acquisition. Only attempt 0, a driver that starts, may replace an attempt of another epoch, because fences of
-- two epochs cannot be compared.
--
-- KEYS: guard, keys. ARGV: fence, txid, attempt, token, epoch, the attempt's name in the record of its batch.

begin_write()
local was = redis.call("HMGET", KEYS[1], "attempt", "epoch")
local starts, same_epoch = ARGV[3] == "0", not was[2] or was[2] == ARGV[5]

local function is_newer(admitted)
  local parts = {}
  for part in string.gmatch(admitted, "%S+") do
    parts[#parts + 1] = part
  end
  for place = 1, 3 do
    local number, own = tonumber(parts[place]), tonumber(ARGV[place])
    if number ~= own then
      return number > own
    elseif place == 1 and (parts[4] or "") ~= ARGV[4] then
      return true
    end
  end
  return false
end

if (not same_epoch and not starts) or (same_epoch and was[1] and is_newer(was[1])) then
  return {"fenced", was[1] or "", was[2] or ""}
end
local attempt = table.concat({ARGV[1], ARGV[2], ARGV[3], ARGV[4]}, " ")
redis.call("HSET", KEYS[1], "attempt", attempt, "epoch", ARGV[5])
if not starts then
  redis.call("HSET", KEYS[1], "by:" .. ARGV[2], ARGV[6])
  -- In the same script, so that if the store goes back to here, writes of earlier attempts are not taken for its own.
  redis.call("HDEL", KEYS[1], "reverting")
  if ARGV[3] ~= "1" then
    redis.call("HSET", KEYS[1], "reverting", attempt)
  end
  -- Records of older batches are deleted, because only the committed batch may come again.
  redis.call("HDEL", KEYS[1], "by:" .. ARGV[2] - 2, "keys:" .. ARGV[2] - 2)
end
if redis.call("HEXISTS", KEYS[1], "rows") == 0 then
  redis.call("HSET", KEYS[1], "rows", redis.call("ZCARD", KEYS[2]))
end
return 0
