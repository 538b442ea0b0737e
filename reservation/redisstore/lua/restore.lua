-- restore: bring back a reservation that was granted and is not known any more.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   KEYS[5] idempotency key, KEYS[1] again for none
--   KEYS[6..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, id, lease end us, retention us, hash
--     of the ask, token, idle us of quotas, latest lease end us from now, plan, parent
--     or '', for each hold 1 if it was taken from the parent, start us, 0 for none
-- Returns, packed: code, now, reclaimed, then by code
--   1 restored   2 known  state, lease end us   3 the lease has ended
--   4 the lease ends too late   5 a counter can't hold as much  hold (from 0)
local clock, name, id, ends, retention, ask, token, idle, furthest, plan_raw, parent, taken, start = unpack_msg(ARGV[1])
begin(clock, name)
local plan = {unpack_msg(plan_raw)}
local raws = call('HMGET', A, 'm', 'r' .. id)
load_meta(raws[1])
local reclaimed, ended = reclaim(64)

local function answer(...)
  if reclaimed > 0 then flush(idle) end
  return pack(...)
end

local r = find(id, ended, raws[2])
if not r then
  r = find(id, ended, nil, call('HGET', KEYS[4], id))
end
if r then
  local state = r[R_STATE]
  if state == HELD and r[R_EXPIRES] <= now then state = EXPIRED end
  return answer(2, now, reclaimed, state, r[R_EXPIRES])
end
if ends <= now then return answer(3, now, reclaimed) end
if ends > now + furthest then return answer(4, now, reclaimed) end

prefetch(plan)
for j = 1, #plan, STRIDE do
  if plan[j] == KIND_BUCKET and plan[j + 1] ~= REMOTE then
    if bucket_of(plan[j + 2], plan[j + 1]).risk + plan[j + 8] > MAX then return answer(5, now, reclaimed, (j - 1) / STRIDE) end
  elseif plan[j] == KIND_QUOTA then
    local q = quota_of(plan[j + 2], plan[j + 1])
    local e = find_entry(q, plan[j + 6])
    if e and q.t[e + 7] + plan[j + 3] > MAX then return answer(5, now, reclaimed, (j - 1) / STRIDE) end
  end
end

-- The envelope, where it is open, pays what it paid before.
local envelope, envelope_plan, paid = nil, nil, {}
if parent ~= '' then
  envelope = tree.kin_of(parent)
  if not tree.is_open(envelope) then envelope = nil end
end
if envelope then
  if envelope[R_EXPIRES] < ends then
    retention = retention + ends - envelope[R_EXPIRES]
    ends = envelope[R_EXPIRES]
  end
  envelope_plan = {unpack_msg(envelope[R_PLAN])}
  local granted, n = tree.adoptable(envelope).granted, 0
  for j = 1, #plan, STRIDE do
    n = n + 1
    local i
    if string.byte(taken, n) == 49 then i = tree.fund_at(granted, envelope_plan, plan[j], plan[j + 1], plan[j + 2], plan[j + 6]) end
    paid[n] = '0'
    if i and (plan[j] == KIND_SLOTS or envelope_plan[i + 3] >= plan[j + 3]) then
      paid[n] = '1'
      if plan[j] ~= KIND_SLOTS then envelope_plan[i + 3] = envelope_plan[i + 3] - plan[j + 3] end
      if plan[j] == KIND_BUCKET then
        plan[j + 8] = 0
      elseif plan[j] >= KIND_FIXED then
        plan[j + 8] = envelope_plan[i + 8]
      end
    end
  end
  if #plan > 0 then plan_raw = pack(unpack_all(plan)) end
  if #envelope_plan > 0 then envelope[R_PLAN] = pack(unpack_all(envelope_plan)) end
end

-- Who asked with the key meanwhile has it.
local key = KEYS[5]
if key == A then
  key = ''
else
  local raw = call('GET', key)
  if raw then
    local _, known, _, _, until_at = read_key(raw)
    if known ~= id and now < until_at then key = '' end
  end
end

local h, waits = 0, start > now
for j = 1, #plan, STRIDE do
  local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
  h = h + 1
  if waits and where ~= REMOTE and amount > 0 and paid[h] ~= '1' then
    -- What has a rate is taken at the start.
    if kind == KIND_BUCKET then
      Start.give(bucket_of(ref, where), start, amount)
    elseif kind == KIND_GCRA then
      Start.give(gcra_of(ref, where), start, gcra_cost(amount, plan[j + 6], plan[j + 7]))
    elseif kind == KIND_QUEUE then
      plan[j + 8] = start
    elseif kind >= KIND_FIXED then
      Start.give(window_of(ref, where), start, 0)
      plan[j + 8] = start
    end
  end
  if paid[h] == '1' then
    -- the counter stays as it is
  elseif where == REMOTE or amount == 0 and kind ~= KIND_BUCKET then
    -- nothing to take here
  elseif kind == KIND_BUCKET then
    correct(ref, where, amount, plan[j + 5], plan[j + 6], plan[j + 7])
    add_risk(ref, where, plan[j + 8], plan[j + 5], plan[j + 6], plan[j + 7])
  elseif kind == KIND_SLOTS then
    hold_slot(ref, id, ends)
  elseif kind == KIND_GCRA then
    move_gcra(ref, where, 0, amount, plan[j + 6], plan[j + 7])
  elseif kind == KIND_QUEUE then
    local g = gcra_of(ref, where)
    g.arrival, g.dirty = Start.take_queue(g.arrival, waits and start or now, amount, plan[j + 6], plan[j + 7]), true
  elseif kind >= KIND_FIXED then
    correct_window(ref, where, kind, amount, plan[j + 8], plan[j + 6], plan[j + 7])
  else
    share(ref, where, plan[j + 6], plan[j + 7], amount, 0)
  end
end
members = members + 1
schedule(id, ends, false)
local held = {1, HELD, 0, ends, retention, 0, 0, 0, '', '', token, key, plan_raw, ''}
if waits then
  tree.set(held, R_START, start)
  if #plan > 0 then held[R_PLAN] = pack(unpack_all(plan)) end
end
if envelope then tree.join(id, held, parent, envelope, table.concat(paid)) end
put('r' .. id, write_record(held))
if key ~= '' then
  local until_at = ends + retention
  call('SET', key, write_key(ask, id, token, retention, until_at, KEYS[4]), 'PX', expire_ms(until_at) + CLOSING_SLACK_MS)
end
flush(idle)
return pack(1, now, reclaimed)
