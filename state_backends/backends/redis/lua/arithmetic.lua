-- The functions that `Aggregator.fold_lua` may call. Arguments are text, doubles also Lua's own numbers, and nil if
-- missing. Results are text or Lua's own numbers.
-- Lua's own numbers are doubles, so bigints beyond 15 digits are added and compared in two halves.

local HALF = 10000000000 -- a bigint is high * HALF + low, both with its sign
local HIGHEST, LOWEST = 922337203, 6854775807

local overflow -- what did not fit into a bigint or a double; the script refuses the row then

local function halves(text)
  local sign, digits = 1, text
  if string.byte(text) == 45 then -- a minus
    sign, digits = -1, string.sub(text, 2)
  end
  local high, low = string.sub(digits, 1, -11), string.sub(digits, -10)
  return sign * (tonumber(high) or 0), sign * tonumber(low)
end

local function carried(high, low)
  if low >= HALF or (high < 0 and low > 0) then
    return carried(high + 1, low - HALF)
  elseif low <= -HALF or (high > 0 and low < 0) then
    return carried(high - 1, low + HALF)
  end
  return high, low
end

local function fits(high, low)
  local size = math.abs(high)
  return size < HIGHEST or (size == HIGHEST and math.abs(low) <= LOWEST + (high < 0 and 1 or 0))
end

local function add_halves(a, b)
  local high_a, low_a = halves(a)
  local high_b, low_b = halves(b)
  local high, low = carried(high_a + high_b, low_a + low_b)
  if not fits(high, low) then
    overflow = a .. " + " .. b .. " is out of the range of bigint"
  end
  if high == 0 then
    return string.format("%.0f", low)
  end
  return string.format("%.0f%010.0f", high, math.abs(low))
end

local function add_integer(a, b)
  if not (a and b) then
    return a or b or "0"
  elseif #a > 15 or #b > 15 then
    return add_halves(a, b)
  end
  return a + b -- at most 16 digits, which Redis writes as they are
end

local function less_integer(a, b)
  if #a <= 15 and #b <= 15 then
    return tonumber(a) < tonumber(b)
  end
  local high_a, low_a = halves(a)
  local high_b, low_b = halves(b)
  return high_a < high_b or (high_a == high_b and low_a < low_b)
end

-- PostgreSQL's order: a NaN equals itself and is larger than every number.
local function less_double(a, b)
  local x, y = tonumber(a), tonumber(b)
  return x < y or (x == x and y ~= y)
end

local function add_double(a, b)
  if not (a and b) then
    return a or b or "0"
  end
  local x, y = tonumber(a), tonumber(b)
  local sum = x + y
  if sum ~= sum then
    return "nan"
  elseif math.abs(sum) == math.huge and math.abs(x) < math.huge and math.abs(y) < math.huge then
    overflow = a .. " + " .. b .. " is out of the range of double precision"
  elseif sum == 0 then
    return 1 / sum < 0 and "-0" or "0" -- Redis writes 0 for both
  end
  return sum -- Redis writes it with 17 digits, which is exact
end

local function more_integer(a, b) return less_integer(b, a) end
local function more_double(a, b) return less_double(b, a) end

local function one_of(a, b, replaces)
  if a and b then
    return replaces(a, b) and b or a
  end
  return a or b
end

local function min_integer(a, b) return one_of(a, b, more_integer) end
local function max_integer(a, b) return one_of(a, b, less_integer) end
local function min_double(a, b) return one_of(a, b, more_double) end
local function max_double(a, b) return one_of(a, b, less_double) end
