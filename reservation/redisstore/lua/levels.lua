-- levels: show the counters of a plan. Nothing is written.
--   KEYS[1..3] account   KEYS[4..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, plan
-- Returns, packed: now, levels
local clock, name, plan_raw = unpack_msg(ARGV[1])
begin(clock, name)
local plan = unpack_msg(plan_raw)
prefetch(plan)
return pack(now, levels(plan))
