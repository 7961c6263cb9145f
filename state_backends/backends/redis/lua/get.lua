-- Get: the fields of rows, row by row, as two strings; an absent row is all nulls. KEYS: a row per key.

local values, width = {}, #FIELDS
for i = 1, #KEYS do
  local row = redis.call("HMGET", KEYS[i], unpack(FIELDS))
  for place = 1, width do
    values[(i - 1) * width + place] = row[place]
  end
end
return {pack(values, #KEYS * width)}
