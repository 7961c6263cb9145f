-- Admit: from here on only this attempt may write. Refused where a newer one was admitted.
-- The ledger opens the batch after the committed one, so a publish that was lost to a crash is made good here.
-- KEYS: guard. ARGV: fence, txid, attempt.

local admitted = redis.call("HGET", KEYS[1], "attempt")
if admitted then
  local place = 0
  for number in string.gmatch(admitted, "%d+") do
    place = place + 1
    if tonumber(number) > tonumber(ARGV[place]) then
      return {"fenced", admitted}
    elseif tonumber(number) < tonumber(ARGV[place]) then
      break
    end
  end
end
redis.call("HSET", KEYS[1], "attempt", table.concat(ARGV, " "))
if tonumber(redis.call("HGET", KEYS[1], "committed") or 0) < ARGV[2] - 1 then
  redis.call("HSET", KEYS[1], "committed", ARGV[2] - 1)
end
return 0
