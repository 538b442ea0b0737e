-- The usual case of refund.lua in one piece: a held record whose lease has not
-- ended, in no tree and no fair share, nothing to reclaim, every counter known by the hold's own parameters and
-- without risk.
-- Whatever else it meets, it has written nothing and refund.lua decides. Why it
-- is here, reserve_hot.lua says. Layout 1 only.
local A, D, I = KEYS[1], KEYS[2], KEYS[3]
repeat
  local clock, name, id, _, _, _, body, outcome, token, actual_raw, count, _, idle = unpack_msg(ARGV[1])
  local now
  if clock > 0 then
    now = clock
  else
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  local record = 'r' .. id
  local raws = call('HMGET', A, 'm', record)
  if not raws[1] or not raws[2] then break end
  local layout, members, lease, index, expiry = unpack_msg(raws[1])
  if layout ~= 1 or lease <= now then break end
  local record_layout, state, _, ends, retention, _, _, _, _, _, kept_token, key, plan_raw, _, kin, _, shares = unpack_msg(raws[2])
  if record_layout ~= 1 or state ~= HELD or ends <= now or kin or shares then break end
  local plan = {unpack_msg(plan_raw)}
  local size = #plan
  if size ~= count * STRIDE or size == 0 then break end
  local actual = unpack_msg(actual_raw)

  local get = {'HMGET', A, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  local n = 2
  for j = 1, size, STRIDE do
    if plan[j + 1] == IN_FIELD then
      n = n + 1
      get[n] = plan[j + 2]
    end
  end
  if n > 2 then raws = call(unpack_all(get, 1, n)) end

  local keep = now + 2000000 + KEEP
  local set = {'HSET', A, 'm', '', record, '', nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  local own, slots = nil, nil
  local o, w, next_raw, h = 0, 6, 0, 0  -- the answer takes the place of holds already read
  local usual = true
  for j = 1, size, STRIDE do
    local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
    h = h + 1
    local raw
    if where == IN_FIELD then
      next_raw = next_raw + 1
      raw = raws[next_raw]
    elseif where == REMOTE then
      usual = false
    elseif kind ~= KIND_SLOTS then
      raw = call('GET', ref)
    end
    if not usual then break end
    if kind == KIND_BUCKET then
      local capacity, refill, per = plan[j + 5], plan[j + 6], plan[j + 7]
      local level, rest = capacity, 0
      if not raw then
        usual = false
        break
      end
      local layout, old, carried, at, c, r, p, risk = unpack_msg(raw)
      if layout ~= 1 or at > now or c ~= capacity or r ~= refill or p ~= per or risk then
        usual = false
        break
      end
      if old < capacity then
        local earned = (now - at) * refill + carried
        if earned >= OVER then
          usual = false
          break
        end
        local whole = floor(earned / per)
        if old + whole < capacity then
          level, rest = old + whole, earned - whole * per
        end
      end
      local difference = actual[h] - amount
      if difference ~= 0 then
        level = level - difference
        if level >= capacity then level, rest = capacity, 0 end
        if level < -MAX then level = -MAX end
        local wait = (capacity - level) * per / refill
        if wait > 3155760000000000 then wait = 3155760000000000 end
        local full = now + wait + 1000000
        local value = pack(1, level, rest, now, capacity, refill, per)
        if where == IN_FIELD then
          set[w + 1], set[w + 2] = ref, value
          w = w + 2
          if full > keep then keep = full end
        else
          own = own or {}
          local m = #own
          own[m + 1], own[m + 2], own[m + 3] = ref, value, floor((full - now) / 1000) + 1
        end
      end
      plan[o + 1], plan[o + 2], plan[o + 3] = level, rest, 0
      o = o + 3
    elseif kind == KIND_SLOTS then
      -- Counted as it will be without this one.
      local taken, earliest = call('ZCOUNT', ref, now + 1, '+inf'), 0
      local mine = amount > 0
      if mine then
        if call('EXISTS', ref .. '::l') == 1 then -- somebody is to be told
          usual = false
          break
        end
        slots = slots or {}
        slots[#slots + 1] = ref
        taken = taken - 1
      end
      if taken > 0 then
        local first = call('ZRANGEBYSCORE', ref, now + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
        earliest = tonumber(first[mine and first[1] == id and 4 or 2])
      elseif taken < 0 then
        usual = false
        break
      end
      plan[o + 1], plan[o + 2] = taken, earliest
      o = o + 2
    elseif kind ~= KIND_QUOTA then
      usual = false
      break
    else
      -- One period, the hold's own and not over: the usual entry.
      if not raw or now >= plan[j + 7] then
        usual = false
        break
      end
      local layout, period, period_ends, used, version, seed, ticket, ticket_gen, held, unposted, more = unpack_msg(raw)
      if layout ~= 1 or period ~= plan[j + 6] or more or held < amount then
        usual = false
        break
      end
      held, unposted = held - amount, unposted + actual[h]
      if amount > 0 or actual[h] > 0 then
        local value = pack(1, period, period_ends, used, version, seed, ticket, ticket_gen, held, unposted)
        if where == IN_FIELD then
          set[w + 1], set[w + 2] = ref, value
          w = w + 2
          if now + idle > keep then keep = now + idle end
        else
          local at = idle
          if held > 0 or unposted > 0 then at = KEEP + 86400000000 end
          own = own or {}
          local m = #own
          own[m + 1], own[m + 2], own[m + 3] = ref, value, floor(at / 1000) + 1
        end
      end
      plan[o + 1], plan[o + 2], plan[o + 3], plan[o + 4], plan[o + 5] = used, held, unposted, version, seed == GEN and 1 or 0
      o = o + 5
    end
  end
  if not usual then break end

  -- From here on it writes.
  local due = now + 2000000
  local new_index = due < index
  if new_index then index = due end
  local renew = keep > expiry
  if renew then
    local slack = (keep - now) / 8
    if slack > SLACK then slack = SLACK end
    expiry = keep + floor(slack)
  end
  if kept_token ~= '' then token = kept_token end
  set[4] = pack(1, members, lease, index, expiry)
  set[6] = pack(1, SETTLED, 2, ends, retention, 0, 0, now, body, outcome, token, key, plan_raw, actual_raw)
  if slots then
    for i = 1, #slots do call('ZREM', slots[i], id) end
  end
  if own then
    for i = 1, #own, 3 do call('SET', own[i], own[i + 1], 'PX', own[i + 2]) end
  end
  call(unpack_all(set, 1, w))
  call('ZADD', D, -due, id)
  local ms = floor((expiry - now) / 1000) + 1
  if renew then
    call('PEXPIRE', A, ms)
    call('PEXPIRE', D, ms)
  end
  if new_index then
    call('ZADD', I, index, name)
    if call('PEXPIRE', I, ms, 'GT') == 0 then call('PEXPIRE', I, ms, 'NX') end
  end
  return pack(1, now, 0, {SETTLED, 2, ends, 0, 0, now, body, outcome, token, actual_raw}, plan_raw, o, unpack_all(plan, 1, o))
until true
