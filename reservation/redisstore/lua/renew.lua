-- renew: move a lease's end to now + lease if that is later.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   ARGV[1] packed: clock us or 0, account, id, lease us, idle us, 1 if pools
--     elsewhere must be renewed before
-- Returns, packed: state (0 unknown, 1 held, 2 expired, 3 settled), now,
-- reclaimed, lease end us, '' or, when nothing was done because pools come
-- first, the plan
local clock, name, id, span, idle, pools_first = unpack_msg(ARGV[1])
begin(clock, name)
local raws = call('HMGET', A, 'm', 'r' .. id)
load_meta(raws[1])
local reclaimed, ended = reclaim(64)

local r = find(id, ended, raws[2])
if not r then
  r = find(id, ended, nil, call('HGET', KEYS[4], id))
end
local to = now + span
local kin_table = r and r[R_KIN]
if kin_table and kin_table.parent ~= '' then
  -- To the parent's end at the latest; a parent that was lost bounds nothing.
  local p = tree.kin_of(kin_table.parent)
  if p and p[R_STATE] ~= HELD then
    to = now
  elseif p and p[R_EXPIRES] < to then
    to = p[R_EXPIRES]
  end
end
local state, ends, moved = 0, 0, false
if r then
  state, ends = r[R_STATE], r[R_EXPIRES]
  if state == HELD and ends <= now then
    state = EXPIRED
  elseif state == HELD and to > ends then
    if pools_first == 1 then
      local plan = {unpack_msg(r[R_PLAN])}
      for j = 1, #plan, STRIDE do
        if plan[j + 1] == REMOTE then
          if reclaimed > 0 then flush(idle) end
          return pack(state, now, reclaimed, ends, r[R_PLAN])
        end
      end
    end
    ends = to
    r[R_EXPIRES], moved = ends, true
    put('r' .. id, write_record(r))
    schedule(id, ends, false)
  end
end
if moved then
  local key = r[R_KEY]
  local raw = key ~= '' and call('GET', key)
  local again
  if raw then
    local ask, known, token, retention, _, closings = read_key(raw)
    if known == id then again = write_key(ask, known, token, retention, ends + retention, closings) end
  end
  local plan, n = {unpack_msg(r[R_PLAN])}, 0
  for j = 1, #plan, STRIDE do
    local kind, where, ref = plan[j], plan[j + 1], plan[j + 2]
    n = n + 1
    if kind == KIND_BUCKET then
      if where == IN_KEY and plan[j + 8] > 0 then call('PEXPIRE', ref, expire_ms(ends + KEEP), 'GT') end
    elseif where == REMOTE or plan[j + 3] == 0 then
      -- nothing held here
    elseif kind == KIND_SLOTS and tree.is_taken(kin_table, n) then
      -- the parent's slot covers it
    elseif kind == KIND_SLOTS then
      hold_slot(ref, id, ends)
    elseif kind == KIND_QUOTA and where == IN_KEY then
      call('PEXPIRE', ref, expire_ms(ends + KEEP), 'GT')
    end
  end
  if again then call('SET', key, again, 'PX', expire_ms(ends + r[R_RETENTION]) + CLOSING_SLACK_MS) end
end
if moved or reclaimed > 0 then flush(idle) end
return pack(state, now, reclaimed, ends, '')
