-- GCRA, as quota.GCRA. A table g: arrival (theoretical arrival time, us), where,
-- and dirty once it is to be written. Absent means whole: arrival 0.
local MOST_AHEAD = 4503599627370496 -- 2^52 us

local function gcra_of(ref, where, raw)
  local g = gcras[ref]
  if g then return g end
  if raw == nil then
    if where == IN_FIELD then raw = call('HGET', A, ref) else raw = call('GET', ref) end
  end
  g = {where = where, arrival = raw and read_gcra(raw) or 0}
  gcras[ref] = g
  return g
end

-- gcra_cost is how long so many units take to refill, rounded up.
local function gcra_cost(amount, refill, per)
  if amount <= 0 then return 0 end
  local cost = muldiv(amount, per, refill - 1, refill)
  if cost > MOST_AHEAD then return MOST_AHEAD end
  return cost
end

local function gcra_wait(arrival)
  local wait = arrival - now
  if wait < 0 then return 0 end
  if wait > MOST_AHEAD then return MOST_AHEAD end
  return wait
end

-- gcra_remaining is what a call could take now.
local function gcra_remaining(arrival, capacity, refill, per)
  local room = gcra_cost(capacity, refill, per) - gcra_wait(arrival)
  if room < 0 then return -1 end
  local remaining = muldiv(room, refill, 0, per)
  if remaining > capacity then return capacity end
  return remaining
end

-- gcra_moved is the arrival after what a call costs went from one amount to another.
local function gcra_moved(arrival, from, to, refill, per)
  local ahead = gcra_wait(arrival) + gcra_cost(to, refill, per) - gcra_cost(from, refill, per)
  if ahead < 0 then return now end
  if ahead > MOST_AHEAD then ahead = MOST_AHEAD end
  return now + ahead
end

local function move_gcra(ref, where, from, to, refill, per)
  if from == to then return end
  local g = gcra_of(ref, where)
  g.arrival, g.dirty = gcra_moved(g.arrival, from, to, refill, per), true
end

-- shift_gcra takes so many units more, or gives them back: see quota.GCRA.Shift.
local function shift_gcra(ref, where, difference, refill, per)
  if difference == 0 then return end
  local g = gcra_of(ref, where)
  g.dirty = true
  if difference > 0 then
    g.arrival = gcra_moved(g.arrival, 0, difference, refill, per)
    return
  end
  local back = muldiv(-difference, per, 0, refill)
  if back > MOST_AHEAD then back = MOST_AHEAD end
  local ahead = gcra_wait(g.arrival) - back
  if ahead < 0 then ahead = 0 end
  g.arrival = now + ahead
end

local function flush_gcras()
  for ref, g in pairs(gcras) do
    if g.dirty then store_counter(ref, g.where, g.arrival > now and write_gcra(g.arrival), g.arrival + 1000000) end
  end
end
