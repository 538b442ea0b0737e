-- seed: store a quota's ledger value, read after the ticket was given.
--   KEYS[1..3] account   KEYS[4] the counter's own key, if it has one
--   ARGV[1] packed: clock us or 0, account, ref, where, period key, ticket,
--     used, version, idle us
-- Returns, packed: 1 stored, 0 the ticket does not stand or the version is
-- older; now; reclaimed
local clock, name, ref, where, period, ticket, used, version, idle = unpack_msg(ARGV[1])
begin(clock, name)
load_meta(call('HGET', A, 'm'))
local reclaimed = reclaim(64)
local q = quota_of(ref, where)
local e, t, stored = find_entry(q, period), q.t, 0
if e and t[e + 5] ~= 0 and t[e + 5] == ticket and t[e + 6] == GEN and version >= t[e + 3]
  and (now < t[e + 1] or t[e + 7] > 0 or t[e + 8] > 0) then
  t[e + 2], t[e + 3], t[e + 4], t[e + 5], t[e + 6] = used, version, GEN, 0, 0
  q.dirty, stored = true, 1
end
if stored == 1 or reclaimed > 0 then flush(idle) end
return pack(stored, now, reclaimed)
