-- sweep: end an account's leases, hand out its closings that wait for the
-- ledger, set its place in the index right, and drop what is idle.
--   KEYS[1..3] account
--   ARGV[1] packed: clock us or 0, account, closings to hand out at most,
--     leases to end at most, us until a closing is handed out again, idle us
-- Returns, packed: leases ended, 1 if more is due, then for each closing
-- handed out: id, record
local clock, name, most, most_ended, retry, idle = unpack_msg(ARGV[1])
begin(clock, name)
load_meta(call('HGET', A, 'm'))
local reclaimed, ended = reclaim(most_ended)

local out, n = {}, 0
local function hand_out(id, r)
  out[n + 1], out[n + 2] = id, show(r)
  n = n + 2
  schedule(id, now + retry, true)
  -- The counters that it waits in outlive it.
  local plan = {unpack_msg(r[R_PLAN])}
  for j = 1, #plan, STRIDE do
    if plan[j] == KIND_QUOTA and plan[j + 1] == IN_KEY then
      quota_of(plan[j + 2], IN_KEY).dirty = true
    end
  end
end

local more = 0
local waiting = call('ZREVRANGEBYSCORE', D, -1, -now, 'LIMIT', 0, most + 1)
if #waiting > 0 then
  local get = {'HMGET', A}
  for i, id in ipairs(waiting) do get[i + 2] = 'r' .. id end
  local raws = call(unpack_all(get))
  for i, id in ipairs(waiting) do
    if not raws[i] then
      unschedule(id)
      members = members - 1
    elseif n == 2 * most then
      more = 1
    else
      hand_out(id, read_record(raws[i]))
    end
  end
end
for id, r in pairs(ended) do
  if n == 2 * most then
    more = 1
    break
  end
  hand_out(id, r)
end
if lease <= now then more = 1 end

if members > 0 then
  local latest = call('ZREVRANGE', D, 0, 0, 'WITHSCORES')[2]
  latest = latest and tonumber(latest) or now
  if latest < now then latest = now end
  if latest + KEEP > keep then keep = latest + KEEP end
  due = MAX -- the index is set below
  flush(idle)
  local first = call('ZRANGEBYSCORE', D, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  lease = first and tonumber(first) or MAX
  index = lease
  first = call('ZREVRANGEBYSCORE', D, -1, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first and -tonumber(first) < index then index = -tonumber(first) end
  call('HSET', A, 'm', write_meta(members, lease, index, expiry))
  call('ZADD', I, index, account)
  live(I, expire_ms(expiry))
  return pack(reclaimed, more, out)
end

-- Nobody is left. Full buckets go, windows that have passed, and quotas of past
-- periods; the rest lives just as long as it says something. (More fields than any plan has limits are
-- left to the expiry that they have.)
local WINDOW_LETTERS = {f = KIND_FIXED, c = KIND_COUNTER, l = KIND_LOG}
local tidy = call('HLEN', A) <= 512
if tidy then
  local all = call('HGETALL', A)
  for i = 1, #all, 2 do
    local field = all[i]
    local kind = string.sub(field, 1, 1)
    if kind == 'b' then
      local b = bucket_of(field, IN_FIELD, all[i + 1])
      b.risk = 0
      local _, _, absent = level_of(b, b.capacity, b.refill, b.per)
      if absent and not Start.ahead(b) then
        b.dirty = nil
        drop(field)
      else
        b.dirty = true
      end
    elseif kind == 'q' then
      quota_of(field, IN_FIELD, all[i + 1]).dirty = true
    elseif kind == 'g' or kind == 'u' then
      gcra_of(field, IN_FIELD, all[i + 1]).dirty = true
    elseif WINDOW_LETTERS[kind] then
      local w = window_of(field, IN_FIELD, all[i + 1])
      w.kind, w.dirty = WINDOW_LETTERS[kind], true
      w.s = w.s and window_advanced(w.kind, w.s, w.s.length, w.s.calendar, Start.at(w))
    end
  end
end
flush_slots()
flush_counters(idle)
call('ZREM', I, account)
if not tidy then
  call('HSET', A, 'm', write_meta(0, MAX, MAX, expiry))
elseif #fields == 2 then
  call('DEL', A, D)
else
  put('m', write_meta(0, MAX, MAX, keep))
  call(unpack_all(fields))
  if #drops > 2 then call(unpack_all(drops)) end
  call('DEL', D)
  call('PEXPIRE', A, expire_ms(keep))
end
return pack(reclaimed, more, out)
