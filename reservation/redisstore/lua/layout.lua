-- Layout 1 of every stored value: MessagePack values in a row, the layout
-- first. This file alone knows how values are written. A value of another
-- layout stops the script with the error LAYOUT <number>.
local function foreign(layout)
  error({err = 'LAYOUT ' .. tostring(layout)})
end

-- Meta of an account (field m): members of the due set, earliest lease end,
-- score in the shard's index, instant at which the account's keys expire.
local function read_meta(raw)
  if not raw then return 0, MAX, MAX, 0 end
  local layout, members, lease, index, expiry = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  return members, lease, index, expiry
end

local function write_meta(members, lease, index, expiry)
  return pack(1, members, lease, index, expiry)
end

-- Bucket: level (units), remainder (units/per), instant of both, the parameters
-- of the last Reserve: capacity, refill units every per us; and, unless it is 0,
-- the open sum of risks; and of one that gave a start which is ahead, that start and
-- what is booked at it.
local function read_bucket(raw)
  local layout, level, rest, at, capacity, refill, per, risk, start, booked = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  return level, rest, at, capacity, refill, per, risk or 0, start, booked
end

local function write_bucket(level, rest, at, capacity, refill, per, risk, start, booked)
  if start then return pack(1, level, rest, at, capacity, refill, per, risk, start, booked or 0) end
  if risk > 0 then return pack(1, level, rest, at, capacity, refill, per, risk) end
  return pack(1, level, rest, at, capacity, refill, per)
end

-- GCRA: theoretical arrival time, and a start that is ahead with what is booked at it.
-- Queue: when it is empty.
local function read_gcra(raw)
  local layout, arrival, start, booked = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  return arrival, start, booked
end

local function write_gcra(arrival, start, booked)
  if start then return pack(1, arrival, start, booked or 0) end
  return pack(1, arrival)
end

-- Window: see window.lua. A log is one list in the place of the counts. A start that
-- is ahead is last; of nothing counted the length is then 0.
local function read_window(raw)
  local layout, length, calendar, start, count, before, given = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  if length == 0 then return nil, given end
  if type(count) == 'table' then return {length = length, calendar = calendar, start = start, log = count}, given end
  return {length = length, calendar = calendar, start = start, count = count, before = before}, given
end

local function write_window(s, given)
  if not s then return pack(1, 0, 0, 0, 0, 0, given) end
  if s.log then
    if given then return pack(1, s.length, s.calendar, s.start, s.log, 0, given) end
    return pack(1, s.length, s.calendar, s.start, s.log)
  end
  if given then return pack(1, s.length, s.calendar, s.start, s.count, s.before, given) end
  return pack(1, s.length, s.calendar, s.start, s.count, s.before)
end

-- Ban: when it ends, 0 while refusals are counted; then the length and the log of
-- those: see refusals.lua.
local Refusals = {}

function Refusals.read_ban(raw)
  local layout, ends, length, log = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  return ends, log and {length = length, calendar = 0, start = 0, log = log}
end

function Refusals.write_ban(ends, s)
  if s then return pack(1, ends, s.length, s.log) end
  return pack(1, ends)
end

-- Quota: one table; from index 2 on, nine values a period: key, end, used,
-- version, incarnation of the seed, ticket, incarnation of the ticket, held,
-- unposted.
local function read_quota(raw)
  local t = {unpack_msg(raw)}
  if t[1] ~= 1 then foreign(t[1]) end
  return t
end

local function write_quota(t)
  t[1] = 1
  return pack(unpack_all(t))
end

-- Record: one table; see record.lua for its indexes.
local function read_record(raw)
  local t = {unpack_msg(raw)}
  if t[1] ~= 1 then foreign(t[1]) end
  return t
end

local function write_record(t)
  t[1] = 1
  return pack(unpack_all(t))
end

-- Idempotency key: hash of the ask, id, token, retention, instant until which
-- it replays, key of the closings of the id's minute.
local function read_key(raw)
  local layout, body, id, token, retention, until_at, closings = unpack_msg(raw)
  if layout ~= 1 then foreign(layout) end
  return body, id, token, retention, until_at, closings
end

local function write_key(body, id, token, retention, until_at, closings)
  return pack(1, body, id, token, retention, until_at, closings)
end
