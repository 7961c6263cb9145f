-- Merge: fold a batch's partial aggregates into rows. First everything is read and folded, then everything is written,
-- so a refusal leaves nothing behind.
--
-- Trident's opaque rule per row: written by this txid already (a replay) -> fold into the version before; by an older
-- one -> the current version becomes the previous one, then fold; by a newer one -> refuse. A version that is no longer
-- live at the batch time counts as nothing. Transactional rows that carry this txid are skipped; non-transactional
-- ones always fold. `fold(stored, columns, i)` comes from scripts.py. A key whose count of rows, in column ROW_COUNT,
-- becomes 0 is removed.
--
-- KEYS: guard, keys, batches, written, a row per key.
-- ARGV: attempt, what a row's name begins with, txid, batch time, ttl ("" for none), then two strings per column.
-- Returns how many batches have their written keys on record. If totals left the range of their type, it returns a list
-- of "refused", that number, and the position and reason for each such row, which stays as it was.

local FIRST = 4 -- keys before the rows
local count = #KEYS - FIRST
local prefix, txid, clock, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local number = tonumber(txid)

local refusal = fenced(ARGV[1])
if refusal then
  return refusal
end

local columns = {}
for c = 1, WIDTH do
  columns[c] = unpack_values(ARGV[4 + 2 * c], ARGV[5 + 2 * c])
end

-- The version that the batch builds upon, nil for none; and whether this batch has written the row before.
local function base(key, row)
  if KIND == "non_transactional" then
    return row, false
  end
  local replay = row[TXID] == txid
  if replay and KIND == "opaque" then
    local before = redis.call("HMGET", key, unpack(PREVIOUS))
    return before[TXID] and before or nil, true
  end
  return row, replay
end

-- The arguments of HSET: names at odd places, and at even ones the values, which are replaced for each row.
local NEW = {"updated_at", ARGV[4], "removed", "false"}
local REMOVES = 4
if KIND ~= "non_transactional" then
  NEW[5], NEW[6] = "txid", txid
end
local AT_VALUE = #NEW
for c = 1, WIDTH do
  NEW[AT_VALUE + 2 * c - 1] = VALUES[c]
end
local AT_PREVIOUS = AT_VALUE + 2 * WIDTH
for c = 1, KIND == "opaque" and TXID or 0 do
  NEW[AT_PREVIOUS + 2 * c - 1] = PREVIOUS[c]
end

-- Fills in a version. Returns `gone` with the names of the fields that the version lacks added.
local function fill(at, names, version, last, gone)
  for c = 1, last do
    NEW[at + 2 * c] = version[c] or ""
    if not version[c] then
      gone = gone or {}
      gone[#gone + 1] = names[c]
    end
  end
  return gone
end

-- Returns whether the count of rows became 0. If the batch's count is null, it has counted nothing, so the key stays.
local function is_empty(value, i)
  return ROW_COUNT > 0 and columns[ROW_COUNT][i] and tonumber(value[ROW_COUNT]) == 0
end

local function write(key, value, previous, removes)
  NEW[REMOVES] = removes and "true" or "false"
  local last, gone = AT_PREVIOUS, fill(AT_VALUE, VALUES, value, WIDTH)
  if previous then
    last, gone = AT_PREVIOUS + 2 * TXID, fill(AT_PREVIOUS, PREVIOUS, previous, TXID, gone)
  end
  redis.call("HSET", key, unpack(NEW, 1, last))
  if gone then
    redis.call("HDEL", key, unpack(gone))
  end
end

local function fresh(i)
  local value = {}
  for c = 1, WIDTH do
    value[c] = columns[c][i]
  end
  return value
end

local values, previous, created, refused = {}, {}, {}, {}

for i = 1, count do
  local key = KEYS[FIRST + i]
  local row = redis.call("HMGET", key, unpack(CURRENT))
  local value, replay = nil, false
  if row[UPDATED_AT] then
    if KIND ~= "non_transactional" and row[TXID] ~= txid and tonumber(row[TXID] or 0) > number then
      return {"stale", i - 1, row[TXID]}
    end
    local upon
    upon, replay = base(key, row)
    if upon and live(upon, ttl, clock) then
      value = fold(upon, columns, i)
    end
    previous[i] = KIND == "opaque" and not replay and row
  else
    created[#created + 1] = 0
    created[#created + 1] = member(key, prefix)
  end
  values[i] = not (replay and KIND == "transactional") and (value or fresh(i))
  if overflow then
    refused[#refused + 1] = i - 1
    refused[#refused + 1] = overflow
    values[i], overflow = false, nil
  end
end

local added = call_with_all("ZADD", KEYS[2], created, #created)
if added < #created / 2 then
  return lost(#created / 2 - added)
end
count_rows(added)
local changed = 0
for i = 1, count do
  if values[i] then
    write(KEYS[FIRST + i], values[i], previous[i], is_empty(values[i], i))
    changed = changed + 1
  end
end

local function answer(records)
  return #refused > 0 and {"refused", records, unpack(refused)} or records
end

if KIND ~= "opaque" or count == 0 then
  count_keys(ARGV[1], txid, changed)
  return answer(0)
end
local written = {}
for i = 1, count do
  if values[i] then
    written[#written + 1] = member(KEYS[FIRST + i], prefix)
  end
end
count_keys(ARGV[1], txid, #written > 0 and call_with_all("SADD", KEYS[4], written, #written) or 0)
redis.call("ZADD", KEYS[3], txid, txid)
return answer(redis.call("ZCARD", KEYS[3]))
