-- Buckets. A table b: level, rest, at, capacity, refill, per, where, risk (the
-- open sum of what holds by forecast take less than their maximum), start (see
-- start.lua), and dirty once it is to be written. Absent means full, without risk.
local function bucket_of(ref, where, raw)
  local b = buckets[ref]
  if b then return b end
  b = {where = where, risk = 0}
  if raw == nil then
    if where == IN_FIELD then raw = call('HGET', A, ref) else raw = call('GET', ref) end
  end
  if raw then
    b.level, b.rest, b.at, b.capacity, b.refill, b.per, b.risk, b.start, b.booked = read_bucket(raw)
  end
  buckets[ref] = b
  return b
end

-- level_of returns level and remainder as parameters see them now, and whether
-- the bucket counts as absent: it has no state, or is full by its own
-- parameters.
local function level_of(b, capacity, refill, per)
  if not b.level then return capacity, 0, true end
  local elapsed = Start.at(b) - b.at
  local level, rest = advance(b.level, b.rest, elapsed, b.capacity, b.refill, b.per)
  if level >= b.capacity and elapsed >= 0 then return capacity, 0, true end
  if per == b.per and refill == b.refill and capacity == b.capacity then return level, rest, false end
  rest = b.rest
  if per ~= b.per then rest = 0 end
  level, rest = advance(b.level, rest, elapsed, capacity, refill, per)
  return level, rest, false
end

-- set_bucket stores a level as of the instant at which the bucket counts.
local function set_bucket(b, level, rest, capacity, refill, per)
  if level >= capacity then level, rest = capacity, 0 end
  if level < -MAX then level = -MAX end
  local at = Start.at(b)
  if not b.at or b.at < at then b.at = at end
  b.level, b.rest, b.capacity, b.refill, b.per, b.dirty = level, rest, capacity, refill, per, true
end

-- Start.bucket_wait is in how many us the level is want, which it is not yet.
function Start.bucket_wait(level, rest, want, capacity, refill, per)
  if want > capacity or want - level > MAX then return FAR end
  -- (want - level) * per - rest us of refill, rounded up: of all units but one, and
  -- then of that one less the rest. Each step stays exact.
  local whole, part = muldiv(want - level - 1, per, 0, refill)
  local left, room = per - rest, refill - part
  if left <= room then return whole + 1 end
  left = left - room
  local more = floor(left / refill)
  if more * refill < left then more = more + 1 end
  return whole + 1 + more
end

-- correct takes a difference (gives it back when negative) by the parameters
-- of the last Reserve; by the hold's own where the bucket has no state. start is the
-- hold's, nil for none. What those have who start at the level's instant, and what is
-- left, come to the capacity at most: see quota.Bucket.GiveBeside.
local function correct(ref, where, difference, capacity, refill, per, start)
  if difference == 0 then return end
  local b = bucket_of(ref, where)
  local level, rest, absent = level_of(b, b.capacity or capacity, b.refill or refill, b.per or per)
  if absent then
    level, rest = capacity, 0
  else
    capacity, refill, per = b.capacity, b.refill, b.per
  end
  local booked, most = Start.rebook(b, start, difference), capacity
  if difference < 0 and booked > 0 then
    most = capacity - booked
    if level >= most then
      difference = 0
    elseif level - difference >= most then
      difference, rest = level - most, 0
    end
  end
  set_bucket(b, level - difference, rest, capacity, refill, per)
end

-- add_risk changes the open sum, which does not get negative. The parameters
-- are the hold's, for a bucket without state.
local function add_risk(ref, where, by, capacity, refill, per)
  if by == 0 then return end
  local b = bucket_of(ref, where)
  if not b.level then
    if by < 0 then return end
    set_bucket(b, capacity, 0, capacity, refill, per)
  end
  b.risk, b.dirty = b.risk + by, true
  if b.risk < 0 then b.risk = 0 end
end

-- full_at is about when the bucket is full by itself: at most 100 years of debt
-- count, which bounds its key's life.
local function full_at(b)
  local wait = (b.capacity - b.level) * b.per / b.refill
  if wait > 3155760000000000 then wait = 3155760000000000 end
  return b.at + wait + 1000000
end

local function flush_buckets()
  for ref, b in pairs(buckets) do
    if b.dirty then
      local value, at = write_bucket(b.level, b.rest, b.at, b.capacity, b.refill, b.per, b.risk, Start.ahead(b), Start.ahead(b) and b.booked), full_at(b)
      if b.where == IN_FIELD then
        put(ref, value)
        if at > keep then keep = at end
      else
        -- Open risks outlive the longest lease there is; renew moves it on.
        if b.risk > 0 and at < now + KEEP + 86400000000 then at = now + KEEP + 86400000000 end
        call('SET', ref, value, 'PX', expire_ms(at))
      end
    end
  end
end
