-- levels: show the counters of a plan. Nothing is written.
--   KEYS[1..3] account   KEYS[4..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, plan
-- Returns, packed: now, how many values, levels
local clock, name, plan_raw = unpack_msg(ARGV[1])
begin(clock, name)
local plan = {unpack_msg(plan_raw)}
prefetch(plan)
local out = levels(plan)
return pack(now, #out, unpack_all(out))
