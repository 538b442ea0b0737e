-- levels: show the counters of a plan. Nothing is written.
--   KEYS[1..3] account   KEYS[4..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, plan, refusals (see refusals.lua) or '', ''
--     or as in reserve.lua what is kept and which holds are fair
-- Returns, packed: now, how many values, levels; with refusals a list of when each
-- hold's ban ends, and a text; of fair holds also a list with, for each, until when
-- the account has had its share (us, 0 for past), and how many use the counter
local clock, name, plan_raw, refusals_raw, fair = unpack_msg(ARGV[1])
begin(clock, name)
local plan = {unpack_msg(plan_raw)}
prefetch(plan)
local out = levels(plan)
local n = #out
if refusals_raw ~= '' then out[n + 1], out[n + 2] = Refusals.show(Refusals.read(refusals_raw)) end
if fair ~= '' then
  local marks, shown = unpack_msg(fair), {}
  for h = 1, #plan / STRIDE do
    local ref = plan[STRIDE * (h - 1) + 3]
    if marks[#plan / STRIDE + h] == 1 and plan[STRIDE * (h - 1) + 2] ~= REMOTE then
      local e = Fair.entry(ref, marks[#marks])
      shown[#shown + 1] = e.at
      shown[#shown + 1] = Fair.count(ref)
    end
  end
  out[#out + 1] = shown
end
return pack(now, n, unpack_all(out))
