-- reclaim ends up to most records whose lease has ended, in order of expiry,
-- and returns how many, and the records by id. Their slot is free, a bucket
-- has its hold back or keeps the maximum of it, a quota's hold waits for the
-- ledger in full.
local NO_BODY = string.rep('\0', 16)

local function reclaim(most)
  if lease > now then return 0, {} end
  local first = call('ZRANGEBYSCORE', D, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then
    lease = MAX
    return 0, {}
  end
  lease = tonumber(first[2])
  if lease > now then return 0, {} end

  local found = call('ZRANGEBYSCORE', D, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
  local ids, get = {}, {'HMGET', A}
  lease = MAX
  for i = 1, #found, 2 do
    local at = tonumber(found[i + 1])
    if at > now or #ids == most then
      lease = at
      break
    end
    ids[#ids + 1] = found[i]
    get[#get + 1] = 'r' .. found[i]
  end
  local raws, ended, count = call(unpack_all(get)), {}, 0
  for i, id in ipairs(ids) do
    if not raws[i] then
      unschedule(id)
      members = members - 1
    else
      local r = tree.records[id] or tree.known(id, read_record(raws[i]))
      tree.depart(id, r)
      local plan = {unpack_msg(r[R_PLAN])}
      local actual, waits, n, used = {}, {}, 0, r[tree.USED] and {unpack_msg(r[tree.USED])}
      for j = 1, #plan, STRIDE do
        n = n + 1
        waits[n] = plan[j + 3]
        if plan[j] == KIND_SLOTS or plan[j + 4] == 0 then
          actual[n] = 0
        elseif plan[j] == KIND_BUCKET then
          actual[n] = plan[j + 3] + plan[j + 8]
        else
          actual[n] = plan[j + 3]
        end
        if used and used[n] > actual[n] and plan[j] ~= KIND_SLOTS then actual[n] = used[n] end
      end
      settle(id, r, plan, actual, waits)
      r[R_STATE], r[R_RANK], r[R_CLOSED_AT], r[R_BODY] = EXPIRED, 1, r[R_EXPIRES], NO_BODY
      r[R_ACTUAL] = pack(actual)
      put('r' .. id, write_record(r))
      schedule(id, now, true)
      ended[id] = r
      count = count + 1
    end
  end
  return count, ended
end

-- find returns an account's record and whether it comes from its minute's
-- closings; nil if there is none. raw and closing are the two places' values.
local function find(id, ended, raw, closing)
  local r = ended[id] or tree.records[id]
  if r then return r, false end
  if raw then return tree.known(id, read_record(raw)), false end
  if closing then return read_record(closing), true end
end
