-- levels: show the counters of a plan. Nothing is written.
--   KEYS[1..3] account   KEYS[4..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, plan, refusals (see refusals.lua) or ''
-- Returns, packed: now, how many values, levels; with refusals a list of when each
-- hold's ban ends, and a text
local clock, name, plan_raw, refusals_raw = unpack_msg(ARGV[1])
begin(clock, name)
local plan = {unpack_msg(plan_raw)}
prefetch(plan)
local out = levels(plan)
local n = #out
if refusals_raw ~= '' then out[n + 1], out[n + 2] = Refusals.show(Refusals.read(refusals_raw)) end
return pack(now, n, unpack_all(out))
