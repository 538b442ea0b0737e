-- Lines of callers that wait for a slot: beside the counter's key, one sorted set
-- of waiters in their order (::l) and one by the instant at which their place ends
-- (::k). No counter's name ends as these keys do.
--
-- The order is by class, what a waiter must leave of the slots to others, then by
-- arrival: class * 2^32 + a number that counts up in the class. See reservation.Line.
local Line = {
  CLASS = 4294967296, -- 2^32
  seen = {},          -- of a Reserve: hold (from 0), callers ahead, first end of a place, ...
  refusing = {},      -- of a Reserve: counters of which all slots are taken, or for others
  others = false,     -- of a Reserve: more than slots refuses
}

function Line.keys(key) return key .. '::l', key .. '::k' end

function Line.class(keep) return (keep < 1048576 and keep or 1048576) * Line.CLASS end

-- wake tells every broker of the prefix that a slot may be free. Who may not publish
-- goes without.
function Line.wake(key)
  if call('EXISTS', (Line.keys(key))) == 1 then
    redis.pcall('PUBLISH', string.match(key, '^[^{]*') .. 'freed', key)
  end
end

-- ahead counts those who stand before a waiter, for one without a place ('' for none)
-- all who leave no more than it does, and tells when the first of all places ends.
-- Places whose time has passed go.
function Line.ahead(key, waiter, keep)
  local line, keeps = Line.keys(key)
  if call('EXISTS', line) == 0 then return 0, 0 end
  local gone = call('ZRANGEBYSCORE', keeps, '-inf', now)
  if gone[1] then
    call('ZREM', line, unpack_all(gone))
    call('ZREM', keeps, unpack_all(gone))
  end
  local first = call('ZRANGE', keeps, 0, 0, 'WITHSCORES')
  local before = call('ZRANK', line, waiter) or call('ZCOUNT', line, '-inf', string.format('(%.0f', Line.class(keep) + Line.CLASS))
  return before, tonumber(first[2] or 0)
end

-- room is what the slots that are free leave to a call, and notes who is before it.
function Line.room(h, key, free, waiter, keep)
  local ahead, ends = Line.ahead(key, waiter, keep)
  if ends > 0 then
    local n = #Line.seen
    Line.seen[n + 1], Line.seen[n + 2], Line.seen[n + 3] = h - 1, ahead, ends
  end
  if free <= 0 then return free end
  return free > ahead and free - ahead or 0
end

-- join keeps a waiter's place, behind its class unless it has one, and returns how
-- many stand before it; nil when the line is full.
function Line.join(key, waiter, span, keep)
  local line, keeps = Line.keys(key)
  if not call('ZSCORE', line, waiter) then
    if call('ZCARD', line) >= 1000 then return nil end
    local order = Line.class(keep)
    local last = call('ZREVRANGEBYSCORE', line, string.format('(%.0f', order + Line.CLASS), string.format('%.0f', order), 'WITHSCORES', 'LIMIT', 0, 1)
    if last[2] then order = tonumber(last[2]) + 1 end
    call('ZADD', line, order, waiter)
  end
  call('ZADD', keeps, now + span, waiter)
  live(line, expire_ms(now + span + 1000000))
  live(keeps, expire_ms(now + span + 1000000))
  return call('ZRANK', line, waiter)
end

function Line.leave(key, waiter)
  local line, keeps = Line.keys(key)
  call('ZREM', keeps, waiter)
  return call('ZREM', line, waiter) == 1
end

-- quit gives up the places of a plan's waiter, but where a table says otherwise by
-- hold. Those behind it are told, unless it has its slots now.
function Line.quit(plan, waiter, granted, but)
  local h = 0
  for j = 1, #plan, STRIDE do
    h = h + 1
    if plan[j] == KIND_SLOTS and plan[j + 1] ~= REMOTE and not (but and but[h]) then
      if Line.leave(plan[j + 2], waiter) and not granted then Line.wake(plan[j + 2]) end
    end
  end
end

-- wait keeps a refused waiter's place at each counter whose slots refuse it, gives its
-- other places up, and returns the last that it keeps. Where more than slots refuses
-- it, or a line is full, it keeps none: 0.
function Line.wait(plan, waiter, span, keeps)
  local place, h = 0, 0
  if Line.others then
    Line.quit(plan, waiter)
    return 0
  end
  Line.quit(plan, waiter, false, Line.refusing)
  for j = 1, #plan, STRIDE do
    h = h + 1
    if Line.refusing[h] then
      local before = Line.join(plan[j + 2], waiter, span, keeps and keeps[h] or 0)
      if not before then
        Line.quit(plan, waiter)
        return 0
      end
      if before + 1 > place then place = before + 1 end
    end
  end
  return place
end
