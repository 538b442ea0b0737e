-- Slots: one sorted set a counter, member id, score the lease's end. Who has
-- a lease that ended holds nothing, reclaimed or not.
local function slots_taken(key)
  local taken = call('ZCOUNT', key, now + 1, '+inf')
  if taken == 0 then return 0, 0 end
  return taken, tonumber(call('ZRANGEBYSCORE', key, now + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

local function hold_slot(key, id, until_at)
  call('ZADD', key, until_at, id)
  live(key, expire_ms(until_at + 1000000))
end

local function free_slot(key, id)
  local n = #frees
  frees[n + 1], frees[n + 2] = key, id
end

local function flush_slots()
  for i = 1, #frees, 2 do
    call('ZREM', frees[i], frees[i + 1])
    Line.wake(frees[i])
  end
end
