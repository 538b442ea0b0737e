-- leave: give up a waiter's places in the lines of slots.
--   KEYS[1] hash of the account or pool, for its node alone   KEYS[2..] counters
--   ARGV[1] packed: waiter
-- Returns, packed: places given up
local waiter = unpack_msg(ARGV[1])
local left = 0
for i = 2, #KEYS do
  if Line.leave(KEYS[i], waiter) then
    left = left + 1
    Line.wake(KEYS[i])
  end
end
return pack(left)
