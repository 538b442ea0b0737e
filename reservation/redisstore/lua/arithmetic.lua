-- muldiv returns floor((a*b+r)/c) and what the division leaves, exactly, for
-- 0 <= a, b <= 2^53-1, 1 <= c <= 2^53-1 and 0 <= r < c. A quotient of 2^53 or more
-- is only known to be that; one of 2^54 or more is FAR. The remainder is then 0.
--
-- Fast path: rounding is monotone, so a sum that shows below 2^53 is exact. Its
-- quotient by c lies at least 1/c below the next integer unless it is one, and
-- an ulp of it is at most 2^53/c * 2^-53 = 1/c, so that p/c never rounds up to an
-- integer that it does not reach.
--
-- Slow path: a's bits from the top, Horner's scheme on quotient and remainder. No
-- sum is formed that passes c (acc >= c-acc instead of 2*acc >= c).
local function muldiv(a, b, r, c)
  local p = a * b + r
  if p < OVER then
    local q = floor(p / c)
    return q, p - q * c
  end
  local whole = floor(b / c)
  local part = b - whole * c
  local q, acc, bit = 0, 0, 4503599627370496 -- 2^52
  while bit > a do bit = bit / 2 end
  while bit >= 1 do
    if q >= OVER then return FAR, 0 end
    q = q + q
    if acc >= c - acc then
      acc = acc - (c - acc)
      q = q + 1
    else
      acc = acc + acc
    end
    if a >= bit then
      a = a - bit
      q = q + whole
      if acc >= c - part then
        acc = acc - (c - part)
        q = q + 1
      else
        acc = acc + part
      end
    end
    bit = bit / 2
  end
  if acc >= c - r then
    acc = acc - (c - r)
    q = q + 1
  else
    acc = acc + r
  end
  if q >= FAR then return FAR, 0 end
  if q >= OVER then return OVER, 0 end
  return q, acc
end

-- advance returns level and remainder of a bucket elapsed us later: a full
-- bucket has remainder 0. A clock that stepped back (elapsed < 0) changes nothing.
local function advance(level, rest, elapsed, capacity, refill, per)
  if level >= capacity then return capacity, 0 end
  if elapsed <= 0 then return level, rest end
  local earned, left = muldiv(elapsed, refill, rest, per)
  if earned == OVER and level < 0 then
    -- The exact quotient matters, and does not fit: go in two steps, which
    -- equals one by the sum. One microsecond never earns as much.
    local half = floor(elapsed / 2)
    level, rest = advance(level, rest, half, capacity, refill, per)
    return advance(level, rest, elapsed - half, capacity, refill, per)
  end
  level = level + earned
  if level >= capacity then return capacity, 0 end
  return level, left
end
