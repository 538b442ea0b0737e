-- confirm: take over what the ledger holds.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   ARGV[1] packed: clock us or 0, account, id, minted us, lease us, retention
--     us, rank, 1 if no rank is above it, body, outcome, actual (packed), how
--     many, late, closed at us, token, plan or '', usage, idle us, parent or '', for
--     each hold 1 if it was taken from the parent
--   usage: packed, six values a counter: ref, where, period key, period end,
--     used, version
-- Returns, packed: code, now, reclaimed, then by code
--   1 adopted  plan   2 stopped   3 unknown and young   4 unknown and old
--   5 actual has another number of holds than the record: how many it has
local clock, name, id, minted, span, retention, rank, last, body, outcome, actual_raw, count, late, closed_at, token, plan_raw, usage_raw, idle, parent, taken = unpack_msg(ARGV[1])
begin(clock, name)
local raws = call('HMGET', A, 'm', 'r' .. id)
load_meta(raws[1])
local reclaimed, ended = reclaim(64)
local changed = reclaimed > 0

local usage = unpack_msg(usage_raw)
for i = 1, #usage, 6 do
  local q = quota_of(usage[i], usage[i + 1])
  local e, t = find_entry(q, usage[i + 2]), q.t
  if (e and t[e + 3] or 0) < usage[i + 5] and (e or now < usage[i + 3]) then
    e = e or entry_of(q, usage[i + 2], usage[i + 3])
    t[e + 2], t[e + 3] = usage[i + 4], usage[i + 5]
    q.dirty, changed = true, true
  end
end

local function answer(...)
  if changed then flush(idle) end
  return pack(...)
end

local r, confirmed = find(id, ended, raws[2])
if not r then
  r, confirmed = find(id, ended, nil, call('HGET', KEYS[4], id))
end
local created = false
if not r then
  if minted + span + retention <= now then return answer(4, now, reclaimed) end
  if plan_raw == '' then return answer(3, now, reclaimed) end
  local none = {}
  for i = 1, #{unpack_msg(plan_raw)} / STRIDE do none[i] = 0 end
  r = {1, EXPIRED, 0, minted + span, retention, 0, 1, 0, NO_BODY, '', token, '', plan_raw, pack(none)}
  if parent ~= '' then r[R_KIN] = {parent = parent, root = '', depth = 0, taken = taken, granted = {}, open = ''} end
  created = true
elseif r[R_RANK] > rank or (r[R_RANK] == rank and r[R_CONFIRMED] == 1) then
  return answer(2, now, reclaimed)
end
local plan = {unpack_msg(r[R_PLAN])}
if #plan / STRIDE ~= count then return answer(5, now, reclaimed, #plan / STRIDE) end
plan_raw = r[R_PLAN]

prefetch(plan)
tree.depart(id, r)
settle(id, r, plan, unpack_msg(actual_raw), nil)
r[R_STATE] = rank == 1 and EXPIRED or SETTLED
r[R_RANK], r[R_LATE], r[R_CONFIRMED], r[R_CLOSED_AT] = rank, late, 1, closed_at
r[R_BODY], r[R_OUTCOME], r[R_ACTUAL] = body, outcome, actual_raw
-- A closing that nothing can outrank needs neither holds nor token.
if last == 1 then r[R_PLAN], r[R_TOKEN] = '', '' end
if not created and not confirmed then
  members = members - 1
  drop('r' .. id)
  unschedule(id)
end
flush(idle)
local until_at = r[R_EXPIRES] + r[R_RETENTION]
-- Not before the id is too old to be reserved again.
if until_at <= minted + 5000000 then until_at = minted + 5000001 end
if until_at > now then
  call('HSET', KEYS[4], id, write_record(r))
  live(KEYS[4], expire_ms(until_at) + CLOSING_SLACK_MS)
elseif confirmed then
  call('HDEL', KEYS[4], id)
end
return pack(1, now, reclaimed, plan_raw)
