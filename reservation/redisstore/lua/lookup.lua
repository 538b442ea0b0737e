-- lookup: show a record. Nothing is written.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   ARGV[1] packed: clock us or 0, account, id
-- Returns, packed: 1 and the record, or 0
local clock, name, id = unpack_msg(ARGV[1])
begin(clock, name)
local r = find(id, {}, call('HGET', A, 'r' .. id))
if not r then
  r = find(id, {}, nil, call('HGET', KEYS[4], id))
end
if not r then return pack(0) end
return pack(1, show(r))
