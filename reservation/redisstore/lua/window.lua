-- Windows, as quota.Window. A table w: where, start (see start.lua), dirty once it is
-- to be written, and the state s, nil for nothing counted:
--   length us, calendar (1 or 0) of the Reserve that counted last
--   start us, count, before   fixed window, sliding counter
--   log                       sliding log: instant us, amount, instant, amount, ...
-- A state is never changed: each step makes another.
local MAX_LOG = 1000

local function window_of(ref, where, raw)
  local w = windows[ref]
  if w then return w end
  if raw == nil then
    if where == IN_FIELD then raw = call('HGET', A, ref) else raw = call('GET', ref) end
  end
  w = {where = where}
  if raw then w.s, w.start = read_window(raw) end
  windows[ref] = w
  return w
end

local function within(amount)
  if amount < 0 then return 0 end
  if amount > MAX then return MAX end
  return amount
end

-- floor_to is exact below 2^53: see muldiv.
local function floor_to(at, length)
  if at < 0 then return 0 end
  return floor(at / length) * length
end

local function window_end(start, length, calendar)
  if calendar == 1 then return floor_to(start, length) + length end
  return start + length
end

-- slid is a sliding counter's state in the span of an instant, by its own length.
local function slid(s, now)
  local length = s.length
  local start = floor_to(now, length)
  if start <= s.start then return s end
  if start == s.start + length then
    return {length = length, calendar = 0, start = start, count = 0, before = s.count}
  end
  return {length = length, calendar = 0, start = start, count = 0, before = 0}
end

-- window_taken is what counts of a state that was advanced to now.
local function window_taken(kind, s, now)
  if not s then return 0 end
  if kind == KIND_LOG then
    local sum, log = 0, s.log
    for i = 2, #log, 2 do
      sum = sum + log[i]
      if sum > MAX then sum = MAX end
    end
    return sum
  end
  if kind == KIND_FIXED then return s.count end
  local left = now - s.start
  if left < 0 then left = 0 end
  left = s.length - left
  if left < 0 then left = 0 end
  local weighted = muldiv(left, s.before, s.length - 1, s.length)
  return weighted + s.count
end

-- first_counted is the state of one amount and nothing else.
local function first_counted(kind, amount, at, length, calendar)
  if amount <= 0 then return nil end
  if kind == KIND_LOG then return {length = length, calendar = 0, start = 0, log = {at, amount}} end
  local start = at
  if kind == KIND_COUNTER or calendar == 1 then start = floor_to(at, length) end
  return {length = length, calendar = calendar, start = start, count = within(amount), before = 0}
end

-- window_advanced is the state now, as a window of this length sees it.
local function window_advanced(kind, s, length, calendar, now)
  if not s then return nil end
  if kind ~= KIND_COUNTER and (s.length ~= length or s.calendar ~= calendar) then
    -- What has left the span by the old length is gone all the same.
    s = window_advanced(kind, s, s.length, s.calendar, now)
    if not s then return nil end
  end
  if kind == KIND_FIXED then
    if s.count == 0 or now >= window_end(s.start, length, calendar) then return nil end
    if s.length == length and s.calendar == calendar then return s end
    return {length = length, calendar = calendar, start = s.start, count = s.count, before = 0}
  end
  if kind == KIND_COUNTER then
    local here = slid(s, now)
    if s.length ~= length then return first_counted(kind, window_taken(kind, here, now), now, length, 0) end
    if here.count == 0 and here.before == 0 then return nil end
    return here
  end
  local log, from = s.log, 1
  while log[from] and log[from] + length <= now do from = from + 2 end
  if not log[from] then return nil end
  if from == 1 and s.length == length then return s end
  local rest = {}
  for i = from, #log do rest[i - from + 1] = log[i] end
  return {length = length, calendar = 0, start = 0, log = rest}
end

-- corrected_log is a log in which the entry at an instant changed by a difference.
local function corrected_log(log, difference, at)
  local i, n = 1, #log
  while i <= n and log[i] < at do i = i + 2 end
  if difference == 0 then return log end
  -- What has no entry is the first one's, where the log is so long that entries were
  -- merged; else a shorter span has let it go, and nothing comes back.
  if difference < 0 and log[i] ~= at and (i > 1 or n < 2 * MAX_LOG) then return log end
  local out, m = {}, 0
  for k = 1, i - 1 do out[k] = log[k] end
  m = i - 1
  if difference < 0 or log[i] == at then
    local amount = within(log[i + 1] + difference)
    if amount > 0 then
      out[m + 1], out[m + 2] = log[i], amount
      m = m + 2
    end
    i = i + 2
  else
    out[m + 1], out[m + 2] = at, difference
    m = m + 2
  end
  for k = i, n do
    m = m + 1
    out[m] = log[k]
  end
  if m > 2 * MAX_LOG then
    out[4] = within(out[2] + out[4])
    table.remove(out, 1)
    table.remove(out, 1)
  end
  return out
end

-- window_corrected is the state after what was counted at an instant changed by a
-- difference, by the length that the state was counted with last, or by this one
-- where it counts nothing any more.
local function window_corrected(kind, s, difference, at, length, calendar, now)
  if s then s = window_advanced(kind, s, s.length, s.calendar, now) end
  if s then length, calendar = s.length, s.calendar end
  if not s then
    s = first_counted(kind, difference, at, length, calendar)
  elseif kind == KIND_LOG then
    if at + length > now then
      s = {length = length, calendar = 0, start = 0, log = corrected_log(s.log, difference, at)}
    end
  elseif at >= s.start then
    s = {length = length, calendar = calendar, start = s.start, count = within(s.count + difference), before = s.before}
  elseif kind == KIND_COUNTER and at >= s.start - length then
    s = {length = length, calendar = 0, start = s.start, count = s.count, before = within(s.before + difference)}
  end
  return window_advanced(kind, s, length, calendar, now)
end

local function correct_window(ref, where, kind, difference, at, length, calendar)
  if difference == 0 then return end
  local w = window_of(ref, where)
  w.s, w.dirty = window_corrected(kind, w.s, difference, at, length, calendar, Start.at(w)), true
  w.kind = kind
end

-- window_empty_at is when a state says nothing any more.
local function window_empty_at(kind, s)
  if kind == KIND_FIXED then return window_end(s.start, s.length, s.calendar) end
  if kind == KIND_LOG then return s.log[#s.log - 1] + s.length end
  if s.count > 0 then return s.start + 2 * s.length end
  return s.start + s.length
end

-- Start.window_wait is in how many us from an instant, to which the state was advanced, want
-- fits, which does not yet.
function Start.window_wait(kind, s, now, want, max)
  if want > max then return FAR end
  if kind == KIND_FIXED then return window_end(s.start, s.length, s.calendar) - now end
  if kind == KIND_LOG then
    local missing, log = window_taken(kind, s, now) + want - max, s.log
    for i = 1, #log, 2 do
      missing = missing - log[i + 1]
      if missing <= 0 then return log[i] + s.length - now end
    end
    return FAR
  end
  local count, share, ends = s.before, max - want - s.count, s.start + s.length
  if share < 0 then count, share, ends = s.count, max - want, ends + s.length end
  local left = muldiv(share, s.length, 0, count)
  return ends - left - now
end

-- shown_window lists what a state shows: start, count, before, or 0 and the log's
-- instants and amounts; 0 alone where nothing is counted. That is an odd number of
-- values, to which a start that is ahead is added.
local function shown_window(s, w)
  local shown
  if not s then
    shown = {0}
  elseif not s.log then
    shown = {s.start, s.count, s.before}
  else
    shown = {0, unpack_all(s.log)}
  end
  shown[#shown + 1] = Start.ahead(w)
  return shown
end

local function flush_windows()
  for ref, w in pairs(windows) do
    if w.dirty then
      local s, start = w.s, Start.ahead(w)
      local at = s and window_empty_at(w.kind, s) or 0
      if start and start > at then at = start end
      store_counter(ref, w.where, (s or start) and write_window(s, start), at + 1000000)
    end
  end
end
