-- renew: move a lease's end to now + lease if that is later.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   KEYS[5..] counters of the plan to show that have their own key
--   ARGV[1] packed: clock us or 0, account, id, lease us, idle us, 1 if pools
--     elsewhere must be renewed before, what each hold used so far (packed) or '', the
--     plan to show or ''
-- Returns, packed: state (0 unknown, 1 held, 2 expired, 3 settled, 4 not done: the
-- reservation has another number of holds, which follows), now, reclaimed, lease end
-- us, '' or, when nothing was done because pools come first, the plan; and, held and
-- with a plan to show, 1 if others were made in it, 1 if others of its tree are held, for each hold four values
-- (granted, left, used so far, what the parent has left or -1), how many values,
-- levels
local standing = {}

-- tell remembers what each hold used so far, which never falls. It says whether the
-- record changed.
function standing.tell(r, raw)
  if raw == '' then return false end
  local used, before, n, changed = {unpack_msg(raw)}, r[tree.USED] and {unpack_msg(r[tree.USED])}, 0, false
  local plan = {unpack_msg(r[R_PLAN])}
  for j = 1, #plan, STRIDE do
    n = n + 1
    local known = before and before[n] or 0
    if plan[j] == KIND_SLOTS or used[n] < known then used[n] = known end
    changed = changed or used[n] > known
  end
  if changed then
    tree.set(r, tree.USED, pack(unpack_all(used)))
  end
  return changed
end

-- show lists where the holds stand.
function standing.show(r, peek_raw)
  local plan, peek = {unpack_msg(r[R_PLAN])}, {unpack_msg(peek_raw)}
  local used, k = r[tree.USED] and {unpack_msg(r[tree.USED])}, r[R_KIN]
  local granted = k and #k.granted > 0 and k.granted
  local p = k and k.parent ~= '' and tree.kin_of(k.parent)
  if not tree.is_open(p) then p = nil end
  local p_granted, p_plan, p_used
  if p then
    p_granted, p_plan = tree.adoptable(p).granted, {unpack_msg(p[R_PLAN])}
    p_used = p[tree.USED] and {unpack_msg(p[tree.USED])}
  end
  local root = k and (k.root == '' and r or tree.kin_of(k.root))
  local open = root and root[R_KIN] and #root[R_KIN].open or 0
  local company = open > (k and k.root ~= '' and 16 or 0)
  local out, o, n = {granted and 1 or 0, company and 1 or 0}, 2, 0
  for j = 1, #plan, STRIDE do
    n = n + 1
    local has, left, room = 0, 0, -1
    if plan[j] ~= KIND_SLOTS then
      left = plan[j + 3]
      has = granted and granted[n] or left
      if p and tree.is_taken(k, n) then
        local i, m = tree.fund_at(p_granted, p_plan, plan[j], plan[j + 1], plan[j + 2], plan[j + 6])
        if i then
          room = p_plan[i + 3] - (p_used and p_used[m] or 0)
          if room < 0 then room = 0 end
        end
      end
    end
    out[o + 1], out[o + 2], out[o + 3], out[o + 4] = has, left, used and used[n] or 0, room
    o = o + 4
  end
  prefetch(peek)
  local shown = levels(peek)
  out[o + 1] = #shown
  for i = 1, #shown do out[o + 1 + i] = shown[i] end
  return out
end

local clock, name, id, span, idle, pools_first, used_raw, peek_raw = unpack_msg(ARGV[1])
begin(clock, name)
local raws = call('HMGET', A, 'm', 'r' .. id)
load_meta(raws[1])
local reclaimed, ended = reclaim(64)

-- matches says whether what is told and asked is of a record's holds.
local function matches(r)
  local count = #{unpack_msg(r[R_PLAN])}
  return (used_raw == '' or #{unpack_msg(used_raw)} == count / STRIDE) and (peek_raw == '' or #{unpack_msg(peek_raw)} == count)
end

local told = false
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
  elseif state == HELD and not matches(r) then
    if reclaimed > 0 then flush(idle) end
    return pack(4, #{unpack_msg(r[R_PLAN])} / STRIDE)
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
    schedule(id, ends, false)
  end
  if state == HELD then
    told = standing.tell(r, used_raw)
    if moved or told then put('r' .. id, write_record(r)) end
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
if moved or told or reclaimed > 0 then flush(idle) end
if state == HELD and peek_raw ~= '' then
  return pack(state, now, reclaimed, ends, '', unpack_all(standing.show(r, peek_raw)))
end
return pack(state, now, reclaimed, ends, '')
