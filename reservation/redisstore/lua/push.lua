-- push: take over ledger values of quotas that are seeded, unless they are older.
--   KEYS[1..3] account   KEYS[4..] the counters' own keys
--   ARGV[1] packed: clock us or 0, account, usage, idle us
--   usage: as in confirm.lua
-- Returns, packed: reclaimed
local clock, name, usage_raw, idle = unpack_msg(ARGV[1])
begin(clock, name)
load_meta(call('HGET', A, 'm'))
local reclaimed = reclaim(64)
local changed = reclaimed > 0
local usage = unpack_msg(usage_raw)
for i = 1, #usage, 6 do
  local q = quota_of(usage[i], usage[i + 1])
  local e, t = find_entry(q, usage[i + 2]), q.t
  local used, version = usage[i + 4], usage[i + 5]
  if e and t[e + 4] == GEN and (t[e + 3] < version or t[e + 3] == version and t[e + 2] ~= used) then
    t[e + 2], t[e + 3] = used, version
    q.dirty, changed = true, true
  end
end
if changed then flush(idle) end
return pack(reclaimed)
