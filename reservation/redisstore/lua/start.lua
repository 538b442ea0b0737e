-- Starts ahead. A counter with a rate (bucket, GCRA, window) may have given a start
-- that is ahead: start, us. Until then it counts as of that instant, and nothing can
-- be taken from it now. A queue's starts follow from when it is empty.
--
-- FAR is no start: more than a counter can ever hold. One table has all that belongs to
-- starts, as a script may have 200 local names at most.
local Start = {}

function Start.at(c)
  if c.start and c.start > now then return c.start end
  return now
end

-- of is the instant from which on a bucket's level, as it is shown, grows: where the
-- clock stepped back, that of the level, which is ahead.
function Start.of(b)
  local at = Start.at(b)
  if b.at and b.at > at then return b.at end
  return at
end

-- ahead is the start to store or to show; nil for none.
function Start.ahead(c)
  if c.start and c.start > now then return c.start end
end

-- give notes a start that so much is booked at: c.booked is what those who were given
-- the last start have of it (bucket: units, GCRA: us).
function Start.give(c, start, booked)
  if start <= now or start < (c.start or 0) then return end
  if start > (c.start or 0) then c.start, c.booked = start, 0 end
  c.booked = (c.booked or 0) + booked
end

-- rebook adds a difference of one that was given the start, nil for none, and returns
-- what is booked at the last one, while it is ahead.
function Start.rebook(c, start, difference)
  if not Start.ahead(c) then return 0 end
  local booked = c.booked or 0
  if start == c.start then
    booked = booked + difference
    if booked < 0 then booked = 0 end
    c.booked = booked
  end
  return booked
end

function Start.later(a, b)
  if a > b then return a end
  return b
end

-- left is what can be taken now of what remains.
function Start.left(c, remaining)
  if remaining > 0 and Start.ahead(c) then return 0 end
  return remaining
end

-- with is an answer's value, with the start if there is one.
function Start.with(value, c)
  local start = Start.ahead(c)
  if start then return {value, start} end
  return value
end

-- with_level is Start.with of a bucket, and where its level is of an instant that is
-- later than it should count as of, that instant too: a start of 0 is none.
function Start.with_level(value, b)
  local of = Start.of(b)
  if of > Start.at(b) then return {value, Start.ahead(b) or 0, of} end
  return Start.with(value, b)
end
