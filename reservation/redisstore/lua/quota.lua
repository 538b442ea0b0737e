-- Quotas. A table q: t (see layout.lua), where, and dirty once it is to be
-- written. An entry is an index into t:
--   +0 period key  +1 end  +2 used  +3 version  +4 incarnation of the seed
--   +5 ticket  +6 incarnation of the ticket  +7 held  +8 unposted
local function quota_of(ref, where, raw)
  local q = quotas[ref]
  if q then return q end
  if raw == nil then
    if where == IN_FIELD then raw = call('HGET', A, ref) else raw = call('GET', ref) end
  end
  q = {where = where, t = raw and read_quota(raw) or {1}}
  quotas[ref] = q
  return q
end

local function find_entry(q, period)
  local t = q.t
  for e = 2, #t, 9 do
    if t[e] == period then return e end
  end
end

-- entry_of returns the period's entry, new and not seeded if there was none.
local function entry_of(q, period, ends)
  local e = find_entry(q, period)
  if e then return e end
  local t = q.t
  e = #t + 1
  t[e], t[e + 1], t[e + 2], t[e + 3], t[e + 4] = period, ends, 0, 0, 0
  t[e + 5], t[e + 6], t[e + 7], t[e + 8] = 0, 0, 0, 0
  return e
end

-- share changes what a record adds to held and unposted; neither gets negative.
local function share(ref, where, period, ends, held, unposted)
  if held == 0 and unposted == 0 then return end
  local q = quota_of(ref, where)
  local e = entry_of(q, period, ends)
  local t = q.t
  held, unposted = t[e + 7] + held, t[e + 8] + unposted
  if held < 0 then held = 0 end
  if unposted < 0 then unposted = 0 end
  t[e + 7], t[e + 8], q.dirty = held, unposted, true
end

-- flush_quotas writes what changed, without past periods that nothing belongs
-- to. A counter without open or unposted amounts lives for idle us: the ledger
-- seeds it again.
local function flush_quotas(idle)
  for ref, q in pairs(quotas) do
    if q.dirty then
      local t, kept, n, waits = q.t, {1}, 1, false
      for e = 2, #t, 9 do
        local open = t[e + 7] > 0 or t[e + 8] > 0
        waits = waits or open
        if open or now < t[e + 1] then
          for i = e, e + 8 do
            n = n + 1
            kept[n] = t[i]
          end
        end
      end
      local at = now + (waits and KEEP + 86400000000 or idle)
      if n == 1 then
        if q.where == IN_FIELD then drop(ref) else call('DEL', ref) end
      elseif q.where == IN_FIELD then
        put(ref, write_quota(kept))
        if at > keep then keep = at end
      else
        call('SET', ref, write_quota(kept), 'PX', expire_ms(at))
      end
    end
  end
end
