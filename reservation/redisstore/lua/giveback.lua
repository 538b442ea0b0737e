-- giveback: give amounts back to buckets, of which none gets above its capacity.
--   KEYS[1..3] account or pool   KEYS[4..] the counters' own keys
--   ARGV[1] packed: clock us or 0, account, plan (amounts are what comes back),
--     idle us
-- Returns, packed: now, reclaimed, given (packed: one a hold), how many values,
-- levels afterwards
local clock, name, plan_raw, idle = unpack_msg(ARGV[1])
begin(clock, name)
load_meta(call('HGET', A, 'm'))
local reclaimed = reclaim(64)
local plan = {unpack_msg(plan_raw)}
prefetch(plan)
local given, n, changed = {}, 0, reclaimed > 0
for j = 1, #plan, STRIDE do
  local back = 0
  if plan[j + 1] ~= REMOTE then
    local b = bucket_of(plan[j + 2], plan[j + 1])
    if b.level then
      local level, rest, absent = level_of(b, b.capacity, b.refill, b.per)
      if not absent then
        back = b.capacity - Start.rebook(b) - level
        if back < 0 then back = 0 end -- of a capacity that is less than what starts ahead
        if back > plan[j + 3] then back = plan[j + 3] else rest = 0 end
        if back > 0 then
          set_bucket(b, level + back, rest, b.capacity, b.refill, b.per)
          changed = true
        end
      end
    end
  end
  n = n + 1
  given[n] = back
end
if changed then flush(idle) end
local out = levels(plan)
return pack(now, reclaimed, given, #out, unpack_all(out))
