-- Records: field 'r' .. id of the account's hash while open or not confirmed,
-- then, in the hash of their minute of minting, field id. Indexes:
local R_STATE, R_RANK, R_EXPIRES, R_RETENTION = 2, 3, 4, 5
local R_LATE, R_CONFIRMED, R_CLOSED_AT = 6, 7, 8     -- flags: 0 or 1
local R_BODY, R_OUTCOME, R_TOKEN, R_KEY = 9, 10, 11, 12
local R_PLAN, R_ACTUAL = 13, 14  -- packed: the holds; what each charged ('' while held, or nothing known)
local R_KIN = 15                 -- of a record in a tree, else nil or false: see tree.lua
local R_START = 16               -- the start that it was given, if that was later than its Reserve; else nil or false
                                 -- 17: see fair.lua, SHARES; else nil
                                 -- 18, tree.USED: what a Renew told of each hold, packed, else
                                 -- nil; then 15 to 17 are not nil
local tree = {records = {}, USED = 18} -- see tree.lua

-- tree.set sets one of the last values of a record: what is nil before it gets false.
function tree.set(r, index, value)
  for i = R_KIN, index - 1 do
    if r[i] == nil then r[i] = false end
  end
  r[index] = value
end

-- A plan is packed as STRIDE values a hold, in a row:
--   +0 kind  +1 where  +2 ref (field, key, or a pool elsewhere)  +3 amount
--   +4 1: the hold is charged when the lease ends
--   +5 +6 +7 +8  bucket: capacity, refill, per us, risk (how much less than the
--                maximum a hold by forecast takes)
--                slots: max, 0, 0, 0
--                quota: max, period key, period end, period start
--                GCRA: capacity, refill, per us, 0
--                windows: max, length us, calendar (1 or 0), the instant under
--                which it was counted
--                queue: as GCRA, the start that it was given

local function charged_of(r, plan)
  if r[R_STATE] ~= HELD then return unpack_msg(r[R_ACTUAL]) end
  local charged, n = {}, 0
  for j = 1, #plan, STRIDE do
    n = n + 1
    if plan[j] == KIND_SLOTS then charged[n] = 0 else charged[n] = plan[j + 3] end
  end
  return charged
end

-- shares_of returns what a record adds to held and to unposted of a quota: its
-- hold is amount, and what its closing charges there is charged.
local function shares_of(r, amount, charged)
  local state = r[R_STATE]
  if state == HELD then return amount, 0 end
  if r[R_CONFIRMED] == 1 then return 0, 0 end
  -- An expiry waits in full: a Refund that went around Redis may have posted it.
  if state == EXPIRED then return 0, amount end
  return 0, charged
end

-- settle moves a record's counters from what it was to a closing that charges
-- actual; unposted is nil for a confirmed closing, else what each quota waits
-- with: a table as actual.
local function settle(id, r, plan, actual, unposted)
  local charged = charged_of(r, plan)
  local pay, paid_all
  if r[R_KIN] then pay, paid_all = tree.payer(r, plan) end
  local n = 0
  for j = 1, #plan, STRIDE do
    n = n + 1
    local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
    local difference = 0 -- of what has a rate, without what the parent pays
    if where ~= REMOTE and kind ~= KIND_SLOTS and kind ~= KIND_QUOTA then
      difference = actual[n] - charged[n] - (pay and pay(j, n, charged[n], actual[n]) or 0)
      local sharing = r[Fair.SHARES] and r[Fair.SHARES][n + 1] or 0
      if sharing > 0 and difference ~= 0 then Fair.correct(ref, r[Fair.SHARES][1], difference, sharing, plan[j + 6], plan[j + 7]) end
    end
    if where == REMOTE then
      -- a pool on another node: the broker settles its leg
    elseif kind == KIND_BUCKET then
      correct(ref, where, difference, plan[j + 5], plan[j + 6], plan[j + 7], r[R_START] or nil)
      if r[R_STATE] == HELD then add_risk(ref, where, -plan[j + 8]) end
    elseif kind == KIND_SLOTS then
      if r[R_STATE] == HELD then free_slot(ref, id) end
    elseif kind == KIND_GCRA and r[R_KIN] then
      shift_gcra(ref, where, difference, plan[j + 6], plan[j + 7], r[R_START] or nil)
    elseif kind == KIND_GCRA then
      move_gcra(ref, where, charged[n], actual[n], plan[j + 6], plan[j + 7], r[R_START] or nil)
    elseif kind == KIND_QUEUE and r[R_KIN] then
      Start.shift_queue(ref, where, difference, plan[j + 6], plan[j + 7])
    elseif kind == KIND_QUEUE then
      Start.correct_queue(ref, where, plan[j + 8], charged[n], actual[n], plan[j + 6], plan[j + 7])
    elseif kind >= KIND_FIXED then
      correct_window(ref, where, kind, difference, plan[j + 8], plan[j + 6], plan[j + 7])
    else
      local held, waits = shares_of(r, amount, charged[n])
      if pay then
        -- What it has, posted or not, before and after: the parent has the rest.
        local had = charged[n]
        if r[R_STATE] == HELD or (r[R_STATE] == EXPIRED and r[R_CONFIRMED] == 0) then had = amount end
        held = held + pay(j, n, had, unposted and unposted[n] or actual[n])
      end
      share(ref, where, plan[j + 6], plan[j + 7], -held, (unposted and unposted[n] or 0) - waits)
    end
  end
  if paid_all then paid_all() end
  r[tree.USED] = nil
end

-- show lists what an answer tells of a record: state, rank, expires, late,
-- confirmed, closed at, body, outcome, token, actual; and, while it is held, the start
-- that it was given, if that was later than its Reserve.
local function show(r)
  local state = r[R_STATE]
  if state == HELD and r[R_EXPIRES] <= now then state = EXPIRED end
  local token = r[R_TOKEN]
  if token == '' and r[R_KEY] ~= '' then
    -- A confirmed closing keeps no token of its own.
    local raw = call('GET', r[R_KEY])
    if raw then
      local _, _, kept, _, until_at = read_key(raw) -- another id's only after until_at
      if now < until_at then token = kept end
    end
  end
  local shown = {state, r[R_RANK], r[R_EXPIRES], r[R_LATE], r[R_CONFIRMED], r[R_CLOSED_AT], r[R_BODY], r[R_OUTCOME], token, r[R_ACTUAL]}
  if state == HELD then shown[11] = r[R_START] or nil end
  return shown
end

-- prefetch reads the counters of a plan in at most two commands.
local function prefetch(plan)
  local get, mget = {'HMGET', A}, {'MGET'}
  for j = 1, #plan, STRIDE do
    local kind, where, ref = plan[j], plan[j + 1], plan[j + 2]
    if kind ~= KIND_SLOTS and where ~= REMOTE and not buckets[ref] and not quotas[ref] and not gcras[ref] and not windows[ref] then
      local list = where == IN_FIELD and get or mget
      list[#list + 1] = ref
    end
  end
  local raws = {}
  if #get > 2 then
    local got = call(unpack_all(get))
    for i = 3, #get do raws[get[i]] = got[i - 2] end
  end
  if #mget > 1 then
    local got = call(unpack_all(mget))
    for i = 2, #mget do raws[mget[i]] = got[i - 1] end
  end
  for j = 1, #plan, STRIDE do
    local kind, where, ref = plan[j], plan[j + 1], plan[j + 2]
    if where == REMOTE then
      -- not here
    elseif kind == KIND_BUCKET then
      bucket_of(ref, where, raws[ref])
    elseif kind == KIND_QUOTA then
      quota_of(ref, where, raws[ref])
    elseif kind == KIND_GCRA or kind == KIND_QUEUE then
      gcra_of(ref, where, raws[ref])
    elseif kind >= KIND_FIXED then
      window_of(ref, where, raws[ref])
    end
  end
end

-- list_remote adds zeros for a pool elsewhere to an answer.
local function list_remote(out, n, kind)
  out[n + 1] = kind >= KIND_FIXED and kind ~= KIND_QUEUE and {0} or 0
  if kind >= KIND_GCRA then return n + 1 end
  out[n + 2] = 0
  if kind == KIND_SLOTS then return n + 2 end
  out[n + 3] = 0
  return n + 3
end

-- levels lists what the counters of a plan show, for each hold
--   bucket: level, remainder, open sum of risks
--   slots:  taken, earliest lease end (0: none)
--   quota:  used, held, unposted, version, 1 if seeded in this incarnation else 0
--   GCRA:   theoretical arrival time
--   queue:  when it is empty
--   window: a list, see shown_window
-- and with a start that is ahead, in the place of the risks or the arrival time, a
-- list of it and the start, see also Start.with_level; and zeros for a pool elsewhere.
local function levels(plan)
  local out, n = {}, 0
  for j = 1, #plan, STRIDE do
    local kind, where, ref = plan[j], plan[j + 1], plan[j + 2]
    if where == REMOTE then
      n = list_remote(out, n, kind)
    elseif kind == KIND_BUCKET then
      local b = bucket_of(ref, where)
      out[n + 1], out[n + 2] = level_of(b, plan[j + 5], plan[j + 6], plan[j + 7])
      out[n + 3] = Start.with_level(b.risk, b)
      n = n + 3
    elseif kind == KIND_SLOTS then
      out[n + 1], out[n + 2] = slots_taken(ref)
      n = n + 2
    elseif kind == KIND_GCRA or kind == KIND_QUEUE then
      n = n + 1
      local g = gcra_of(ref, where)
      out[n] = Start.with(g.arrival, g)
    elseif kind >= KIND_FIXED then
      n = n + 1
      local w = window_of(ref, where)
      out[n] = shown_window(window_advanced(kind, w.s, plan[j + 6], plan[j + 7], Start.at(w)), w)
    else
      local q = quota_of(ref, where)
      local e = find_entry(q, plan[j + 6])
      if e then
        local t = q.t
        out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = t[e + 2], t[e + 7], t[e + 8], t[e + 3], t[e + 4] == GEN and 1 or 0
      else
        out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = 0, 0, 0, 0, 0
      end
      n = n + 5
    end
  end
  return out
end

local function flush_counters(idle)
  flush_buckets()
  flush_gcras()
  flush_windows()
  Fair.flush()
  flush_quotas(idle)
end

-- flush writes everything collected. What may be written first by its own
-- command (slots and counters with keys of their own) comes first.
local function flush(idle)
  flush_slots()
  flush_counters(idle)
  tree.flush_kin()
  local renew = finish_meta()
  call(unpack_all(fields))
  if #drops > 2 then call(unpack_all(drops)) end
  if #adds > 2 then call(unpack_all(adds)) end
  if #removes > 2 then call(unpack_all(removes)) end
  if renew then call('PEXPIRE', A, expire_ms(expiry)) end
  if members > 0 and (renew or members_before == 0) then call('PEXPIRE', D, expire_ms(expiry)) end
end
