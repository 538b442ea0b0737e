-- epoch: name the data that this server has.
--   KEYS[1] the server's marker
--   ARGV[1] packed: clock us or 0, a name that was never used
-- Returns, packed: now, the marker
-- Whoever finds no marker, or one of another incarnation, writes a new one: the
-- data of before is gone or was replaced. A marker lives for 50 h after the last
-- sweep, at least 25 h: longer than any hold that a broker could bring back.
local clock, fresh = unpack_msg(ARGV[1])
begin(clock, '')
local mine = string.format('%.0f:', GEN)
local marker = call('GET', KEYS[1])
if not marker or string.sub(marker, 1, #mine) ~= mine then
  marker = mine .. fresh
  call('SET', KEYS[1], marker)
end
if call('PTTL', KEYS[1]) < KEEP / 1000 then call('PEXPIRE', KEYS[1], 2 * KEEP / 1000) end
return pack(now, marker)
