-- Many values in two strings: their lengths, four bytes each and -1 for a null, and the values end to end.
-- scripts.py does the same in Python.

local RUN = 1000 -- values per call of struct and unpack, which put them all on Lua's stack of 8,000
local LENGTHS = "<" .. string.rep("i4", RUN)

local function packed_lengths(lengths, count)
  local runs = {}
  for first = 1, count, RUN do
    local size = math.min(RUN, count - first + 1)
    runs[#runs + 1] = struct.pack("<" .. string.rep("i4", size), unpack(lengths, first, first + size - 1))
  end
  return table.concat(runs)
end

-- values[1] to values[count]; null is nil or false.
local function pack(values, count)
  local lengths, texts = {}, {}
  for i = 1, count do
    local value = values[i]
    lengths[i] = value and #value or -1
    texts[i] = value or ""
  end
  return packed_lengths(lengths, count), table.concat(texts, "", 1, count)
end

local function unpacked_lengths(packed)
  local lengths, count = {}, #packed / 4
  for first = 1, count, RUN do
    local size = math.min(RUN, count - first + 1)
    local format = size == RUN and LENGTHS or "<" .. string.rep("i4", size)
    local run = {struct.unpack(format, packed, (first - 1) * 4 + 1)}
    for i = 1, size do
      lengths[first + i - 1] = run[i]
    end
  end
  return lengths, count
end

local function unpack_values(packed, text)
  local values, start = {}, 1
  local lengths, count = unpacked_lengths(packed)
  for i = 1, count do
    if lengths[i] >= 0 then
      values[i] = string.sub(text, start, start + lengths[i] - 1)
      start = start + lengths[i]
    end
  end
  return values, count
end
