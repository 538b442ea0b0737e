-- GCRA and queue, as quota.GCRA and quota.Queue. A table g: arrival (theoretical
-- arrival time, or when the queue is empty, us), start (see start.lua; none of a
-- queue), where, and dirty once it is to be written. Absent means whole: arrival 0.
local MOST_AHEAD = 4503599627370496 -- 2^52 us

local function gcra_of(ref, where, raw)
  local g = gcras[ref]
  if g then return g end
  if raw == nil then
    if where == IN_FIELD then raw = call('HGET', A, ref) else raw = call('GET', ref) end
  end
  g = {where = where, arrival = 0}
  if raw then g.arrival, g.start, g.booked = read_gcra(raw) end
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

local function gcra_ahead(arrival, at)
  local wait = arrival - at
  if wait < 0 then return 0 end
  if wait > MOST_AHEAD then return MOST_AHEAD end
  return wait
end

-- gcra_remaining is what a call could take at an instant.
local function gcra_remaining(arrival, at, capacity, refill, per)
  local room = gcra_cost(capacity, refill, per) - gcra_ahead(arrival, at)
  if room < 0 then return -1 end
  local remaining = muldiv(room, refill, 0, per)
  if remaining > capacity then return capacity end
  return remaining
end

-- Start.gcra_wait is in how many us from an instant so much fits.
function Start.gcra_wait(arrival, at, want, capacity, refill, per)
  if want > capacity then return FAR end
  local wait = gcra_ahead(arrival, at) + gcra_cost(want, refill, per) - gcra_cost(capacity, refill, per)
  if wait < 0 then return 0 end
  return wait
end

-- gcra_moved is the arrival after what a call costs went from one amount to another.
local function gcra_moved(arrival, at, from, to, refill, per)
  local wait = gcra_ahead(arrival, at) + gcra_cost(to, refill, per) - gcra_cost(from, refill, per)
  if wait < 0 then return at end
  if wait > MOST_AHEAD then wait = MOST_AHEAD end
  return at + wait
end

-- Start.gcra_beside bounds what a give-back made of an arrival time: see quota.GCRA.Beside.
function Start.gcra_beside(before, after, at, booked)
  local least = gcra_ahead(before, at)
  if least > booked then least = booked end
  if after < at + least then return at + least end
  return after
end

-- start is the hold's, nil for none.
local function move_gcra(ref, where, from, to, refill, per, start)
  if from == to then return end
  local g = gcra_of(ref, where)
  local at, before = Start.at(g), g.arrival
  local booked = Start.ahead(g) and Start.rebook(g, start, gcra_cost(to, refill, per) - gcra_cost(from, refill, per)) or 0
  g.arrival, g.dirty = gcra_moved(before, at, from, to, refill, per), true
  if booked > 0 and to < from then g.arrival = Start.gcra_beside(before, g.arrival, at, booked) end
end

-- Start.take_queue is when a queue is empty after a call that starts at an instant.
function Start.take_queue(empty, start, amount, refill, per)
  if empty > start then start = empty end
  return gcra_moved(empty, start, 0, amount, refill, per)
end

-- Start.correct_queue: more delays who comes next; less is given back by the last alone,
-- who was given the start at.
function Start.correct_queue(ref, where, at, from, to, refill, per)
  if from == to then return end
  local g = gcra_of(ref, where)
  if to > from then
    g.arrival, g.dirty = gcra_moved(g.arrival, now, from, to, refill, per), true
  elseif g.arrival > now and g.arrival == at + gcra_cost(from, refill, per) then
    g.arrival, g.dirty = at + gcra_cost(to, refill, per), true
    if g.arrival < now then g.arrival = now end
  end
end

-- shift_gcra takes so many units more, or gives them back: see quota.GCRA.Shift.
local function shift_gcra(ref, where, difference, refill, per, start)
  if difference == 0 then return end
  local g = gcra_of(ref, where)
  local at, before = Start.at(g), g.arrival
  local booked = Start.ahead(g) and Start.rebook(g, start, gcra_cost(difference, refill, per) - gcra_cost(-difference, refill, per)) or 0
  g.dirty = true
  if difference > 0 then
    g.arrival = gcra_moved(g.arrival, at, 0, difference, refill, per)
    return
  end
  local back = muldiv(-difference, per, 0, refill)
  if back > MOST_AHEAD then back = MOST_AHEAD end
  local left = gcra_ahead(g.arrival, at) - back
  if left < 0 then left = 0 end
  g.arrival = Start.gcra_beside(before, at + left, at, booked)
end

-- Start.shift_queue takes so many units more of holds in parts: see quota.Queue.Shift.
function Start.shift_queue(ref, where, difference, refill, per)
  if difference <= 0 then return end
  local g = gcra_of(ref, where)
  g.arrival, g.dirty = gcra_moved(g.arrival, now, 0, difference, refill, per), true
end

local function flush_gcras()
  for ref, g in pairs(gcras) do
    if g.dirty then
      local start = Start.ahead(g)
      local at = g.arrival
      if start and start > at then at = start end
      store_counter(ref, g.where, at > now and write_gcra(g.arrival, start, start and g.booked), at + 1000000)
    end
  end
end
