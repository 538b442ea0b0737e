-- audit: quota counters beside what the account's records add up to.
--   KEYS[1..3] account   KEYS[4..] the named counters' own keys
--   ARGV[1] packed: clock us or 0, account, records to add up at most, 1 to
--     repair, idle us, counters
--   counters: packed, four values each: ref, where, period key, period end
-- Returns, packed: now, records, how many of them wait for the ledger, 1 if
-- there are too many records, then eleven values for each counter, those named
-- first: ref, where, period key, 1 if seeded, used, version, held, unposted, sums
-- of held and unposted of the records, 1 if repaired
-- It ends no lease. What it does grows with the records: see MaxAuditRecords.
local clock, name, most, repair, idle, counters_raw = unpack_msg(ARGV[1])
begin(clock, name)
load_meta(call('HGET', A, 'm'))

-- Rows: ref, where, period, end, held, unposted.
local rows, by_name = {}, {}
local function row_of(ref, where, period, ends)
  local key = period .. '\0' .. ref
  local row = by_name[key]
  if not row then
    row = {ref, where, period, ends, 0, 0}
    by_name[key], rows[#rows + 1] = row, row
  end
  return row
end
local counters, shown = unpack_msg(counters_raw), {}
for i = 1, #counters, 4 do
  shown[#shown + 1] = row_of(counters[i], counters[i + 1], counters[i + 2], counters[i + 3])
end
local named = #rows

local ids, waiting, too_many = {}, 0, 0
-- Besides records an account has a field for each limit: far fewer than 1024.
if call('HLEN', A) <= most + 1024 then
  for _, field in ipairs(call('HKEYS', A)) do
    if string.byte(field) == 114 then ids[#ids + 1] = field end -- r
  end
else
  too_many = 1
end
if #ids > most then too_many = 1 end
local records = too_many == 1 and call('ZCARD', D) or #ids

if too_many == 0 then
  for first = 1, #ids, 256 do
    local raws = call('HMGET', A, unpack_all(ids, first, math.min(first + 255, #ids)))
    for _, raw in ipairs(raws) do
      local r = read_record(raw)
      local state, charged = r[R_STATE], nil
      if state ~= HELD then
        waiting = waiting + 1
        charged = unpack_msg(r[R_ACTUAL])
      end
      local plan, n = {unpack_msg(r[R_PLAN])}, 0
      for j = 1, #plan, STRIDE do
        n = n + 1
        if plan[j] == KIND_QUOTA then
          local held, unposted = shares_of(r, plan[j + 3], charged and charged[n])
          if held ~= 0 or unposted ~= 0 then
            local row = row_of(plan[j + 2], plan[j + 1], plan[j + 6], plan[j + 7])
            row[5], row[6] = row[5] + held, row[6] + unposted
          end
        end
      end
    end
  end
end

for i = named + 1, #rows do shown[#shown + 1] = rows[i] end
local out, n, changed = {}, 0, false
for _, row in ipairs(shown) do
  local ref, where, period = row[1], row[2], row[3]
  local q = quota_of(ref, where)
  local e, t = find_entry(q, period), q.t
  local repaired = 0
  out[n + 1], out[n + 2], out[n + 3] = ref, where, period
  if e then
    out[n + 4], out[n + 5], out[n + 6], out[n + 7], out[n + 8] = t[e + 4] == GEN and 1 or 0, t[e + 2], t[e + 3], t[e + 7], t[e + 8]
  else
    out[n + 4], out[n + 5], out[n + 6], out[n + 7], out[n + 8] = 0, 0, 0, 0, 0
  end
  if repair == 1 and too_many == 0 and (out[n + 7] ~= row[5] or out[n + 8] ~= row[6]) then
    e = entry_of(q, period, row[4])
    t[e + 7], t[e + 8], q.dirty = row[5], row[6], true
    repaired, changed = 1, true
  end
  out[n + 9], out[n + 10], out[n + 11] = row[5], row[6], repaired
  n = n + 11
end
if changed then flush(idle) end
return pack(now, records, waiting, too_many, out)
