-- open: show held reservations in the order of lease end and id. Nothing is
-- written.
--   KEYS[1..3] account
--   ARGV[1] packed: clock us or 0, account, lease end us and id of the last that
--     was shown (0 and '' for none), how many at most
-- Returns, packed: now, lease end us and id of the last that was looked at ('' if
-- there is no more), then for each: id, lease end us, token
local clock, name, ends, last, most = unpack_msg(ARGV[1])
begin(clock, name)

-- after compares as the due set orders its members: byte by byte. (Lua's own
-- comparison follows the server's locale.)
local function after(id, other)
  for i = 1, #id do
    local a, b = string.byte(id, i), string.byte(other, i) or -1
    if a ~= b then return a > b end
  end
  return false
end

-- The rank to begin at: behind what has ended, and behind the last one. Among
-- those that end at the same instant it is found by halves.
local rank
if ends <= now then
  rank = call('ZCOUNT', D, '-inf', now)
else
  rank = call('ZCOUNT', D, '-inf', ends - 1)
  local behind = call('ZCOUNT', D, '-inf', ends)
  while rank < behind do
    local middle = floor((rank + behind) / 2)
    if after(call('ZRANGE', D, middle, middle)[1], last) then
      behind = middle
    else
      rank = middle + 1
    end
  end
end

local found = call('ZRANGE', D, rank, rank + most, 'WITHSCORES')
local out, n, get = {}, 0, {'HMGET', A}
local more_end, more_id = 0, ''
if #found > 2 * most then
  more_id, more_end = found[2 * most - 1], tonumber(found[2 * most])
end
for i = 1, math.min(#found, 2 * most), 2 do get[#get + 1] = 'r' .. found[i] end
if #get > 2 then
  for i, raw in ipairs(call(unpack_all(get))) do
    local r = raw and read_record(raw)
    if r and r[R_STATE] == HELD and r[R_EXPIRES] > now then
      out[n + 1], out[n + 2], out[n + 3] = string.sub(get[i + 2], 2), r[R_EXPIRES], r[R_TOKEN]
      n = n + 3
    end
  end
end
return pack(now, more_end, more_id, out)
