-- refund: close a reservation with what it used.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   ARGV[1] packed: clock us or 0, account, id, minted us, lease us, retention
--     us, body, outcome, token, actual (packed), how many, plan or '', idle us,
--     whether only while it is held, parent or '', for each hold 1 if it was taken
--     from the parent
-- Returns, packed: code, now, reclaimed, then by code (levels: how many values,
-- the values)
--   1 settled  record, plan, levels afterwards
--   2 closed before with the same body  record
--   3 closed before with another body   record
--   4 unknown and young   5 unknown and old
--   6 only while it is held, and its lease has ended: 1, record, or 0 when it
--     is unknown
--   7 actual has another number of holds than the record: how many it has
local clock, name, id, minted, span, retention, body, outcome, token, actual_raw, count, plan_raw, idle, only_held, parent, taken = unpack_msg(ARGV[1])
begin(clock, name)
local raws = call('HMGET', A, 'm', 'r' .. id)
load_meta(raws[1])
local reclaimed, ended = reclaim(64)

local function answer(...)
  if reclaimed > 0 then flush(idle) end
  return pack(...)
end

local r, confirmed = find(id, ended, raws[2])
if not r then
  r, confirmed = find(id, ended, nil, call('HGET', KEYS[4], id))
end
local created = false
if not r then
  if minted + span + retention <= now then return answer(5, now, reclaimed) end
  if plan_raw == '' then return answer(4, now, reclaimed) end
  if only_held ~= 0 and minted + span <= now then return answer(6, now, reclaimed, 0) end
  -- Redis lost it: nothing of it is counted here any more.
  local none = {}
  for i = 1, #{unpack_msg(plan_raw)} / STRIDE do none[i] = 0 end
  r = {1, EXPIRED, 0, minted + span, retention, 0, 1, 0, NO_BODY, '', token, '', plan_raw, pack(none)}
  if parent ~= '' then r[R_KIN] = {parent = parent, root = '', depth = 0, taken = taken, granted = {}, open = ''} end
  created = true
elseif r[R_STATE] == SETTLED then
  return answer(r[R_BODY] == body and 2 or 3, now, reclaimed, show(r))
elseif only_held ~= 0 and r[R_EXPIRES] <= now then
  return answer(6, now, reclaimed, 1, show(r))
end
local plan = {unpack_msg(r[R_PLAN])}
if #plan / STRIDE ~= count then return answer(7, now, reclaimed, #plan / STRIDE) end

prefetch(plan)
tree.depart(id, r)
local actual = unpack_msg(actual_raw)
settle(id, r, plan, actual, actual)
if created or confirmed then members = members + 1 end
if r[R_EXPIRES] <= now then r[R_LATE] = 1 else r[R_LATE] = 0 end
r[R_STATE], r[R_RANK], r[R_CONFIRMED], r[R_CLOSED_AT] = SETTLED, 2, 0, now
r[R_BODY], r[R_OUTCOME], r[R_ACTUAL] = body, outcome, actual_raw
if r[R_TOKEN] == '' then r[R_TOKEN] = token end
put('r' .. id, write_record(r))
schedule(id, now + 2000000, true)
flush(idle)
if confirmed then call('HDEL', KEYS[4], id) end
local out = levels(plan)
return pack(1, now, reclaimed, show(r), r[R_PLAN], #out, unpack_all(out))
