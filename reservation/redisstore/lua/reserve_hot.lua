-- The usual case of reserve.lua in one piece: a commit without key, Charge, parent,
-- output to choose, shadow hold, anything kept or refusals that count, nothing to reclaim, every counter known by the same
-- parameters and without risk, and all holds fit. Whatever else it meets, it has written nothing and reserve.lua decides.
-- It is here because every function that a script defines costs 0.1 us and
-- more a call: see the package's documentation for what it gains. Layout 1 only.
local A, D, I = KEYS[1], KEYS[2], KEYS[3]
repeat
  local clock, name, id, minted, span, retention, ask, token, mode, _, _, charge, _, _, plan_raw, output_raw, shadow_raw, parent, _, _, keeps, waiter, _, refusals = unpack_msg(ARGV[1])
  if mode ~= 0 or charge ~= 0 or output_raw ~= '' or shadow_raw ~= '' or parent ~= '' or keeps ~= '' or waiter ~= '' or refusals ~= '' or KEYS[5] ~= A then break end
  local now
  if clock > 0 then
    now = clock
  else
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  if minted - now > 5000000 or now - minted > 5000000 then break end

  local plan = {unpack_msg(plan_raw)}
  local size = #plan
  local record = 'r' .. id
  local get = {'HMGET', A, 'm', record, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  local n = 4
  for j = 1, size, STRIDE do
    if plan[j + 1] == IN_FIELD then
      n = n + 1
      get[n] = plan[j + 2]
    end
  end
  local raws = call(unpack_all(get, 1, n))
  if not raws[1] or raws[2] then break end
  local layout, members, lease, index, expiry = unpack_msg(raws[1])
  if layout ~= 1 or lease <= now then break end
  if call('HEXISTS', KEYS[4], id) == 1 then break end

  local ends = now + span
  local keep = ends + KEEP
  local set = {'HSET', A, 'm', '', record, '', nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  local own, slots = nil, nil
  local o, w, next_raw = 0, 6, 2  -- the answer takes the place of holds already read
  local fits = true
  for j = 1, size, STRIDE do
    local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
    local raw
    if where == IN_FIELD then
      next_raw = next_raw + 1
      raw = raws[next_raw]
    elseif where == REMOTE then
      fits = false
    elseif kind ~= KIND_SLOTS then
      raw = call('GET', ref)
    end
    if not fits then break end
    if kind == KIND_BUCKET then
      local capacity, refill, per = plan[j + 5], plan[j + 6], plan[j + 7]
      local level, rest = capacity, 0
      if raw then
        local layout, old, carried, at, c, r, p, risk = unpack_msg(raw)
        if layout ~= 1 or at > now or c ~= capacity or r ~= refill or p ~= per or risk then
          fits = false
          break
        end
        if old < capacity then
          local earned = (now - at) * refill + carried
          if earned >= OVER then
            fits = false
            break
          end
          local whole = floor(earned / per)
          if old + whole < capacity then
            level, rest = old + whole, earned - whole * per
          end
        end
      end
      if amount > 0 then
        level = level - amount
        if level < 0 then
          fits = false
          break
        end
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
      local taken, earliest = call('ZCOUNT', ref, now + 1, '+inf'), 0
      if taken > 0 then
        earliest = tonumber(call('ZRANGEBYSCORE', ref, now + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
      end
      if amount > 0 then
        -- Those who wait in line come first.
        if taken + 1 > plan[j + 5] or call('EXISTS', ref .. '::l') == 1 then
          fits = false
          break
        end
        slots = slots or {}
        local m = #slots
        slots[m + 1], slots[m + 2] = ref, taken
        taken = taken + 1
        if earliest == 0 or earliest > ends then earliest = ends end
      end
      plan[o + 1], plan[o + 2] = taken, earliest
      o = o + 2
    elseif kind ~= KIND_QUOTA then
      fits = false
      break
    else
      -- One period that is seeded and the hold's own: the usual entry.
      if not raw or now < plan[j + 8] or now >= plan[j + 7] then
        fits = false
        break
      end
      local layout, period, period_ends, used, version, seed, ticket, ticket_gen, held, unposted, more = unpack_msg(raw)
      if layout ~= 1 or period ~= plan[j + 6] or seed ~= GEN or more or used + held + unposted + amount > plan[j + 5] then
        fits = false
        break
      end
      held = held + amount
      if amount > 0 then
        local value = pack(1, period, period_ends, used, version, seed, ticket, ticket_gen, held, unposted)
        if where == IN_FIELD then
          set[w + 1], set[w + 2] = ref, value
          w = w + 2
        else
          own = own or {}
          local m = #own
          own[m + 1], own[m + 2], own[m + 3] = ref, value, floor((KEEP + 86400000000) / 1000) + 1
        end
      end
      plan[o + 1], plan[o + 2], plan[o + 3], plan[o + 4], plan[o + 5] = used, held, unposted, version, 1
      o = o + 5
    end
  end
  if not fits then break end

  -- From here on it writes.
  local new_index = ends < index
  if ends < lease then lease = ends end
  if new_index then index = ends end
  local renew = keep > expiry
  if renew then
    local slack = (keep - now) / 8
    if slack > SLACK then slack = SLACK end
    expiry = keep + floor(slack)
  end
  set[4] = pack(1, members + 1, lease, index, expiry)
  set[6] = pack(1, HELD, 0, ends, retention, 0, 0, 0, '', '', token, '', plan_raw, '')
  if own then
    for i = 1, #own, 3 do call('SET', own[i], own[i + 1], 'PX', own[i + 2]) end
  end
  if slots then
    local ms = floor(span / 1000) + 1001
    for i = 1, #slots, 2 do
      call('ZADD', slots[i], ends, id)
      if slots[i + 1] == 0 then
        call('PEXPIRE', slots[i], ms)
      else
        call('PEXPIRE', slots[i], ms, 'GT')
      end
    end
  end
  call(unpack_all(set, 1, w))
  call('ZADD', D, ends, id)
  local ms = floor((expiry - now) / 1000) + 1
  if renew then call('PEXPIRE', A, ms) end
  if renew or members == 0 then call('PEXPIRE', D, ms) end
  if new_index then
    call('ZADD', I, index, name)
    if call('PEXPIRE', I, ms, 'GT') == 0 then call('PEXPIRE', I, ms, 'NX') end
  end
  return pack(1, now, 0, ends, o, unpack_all(plan, 1, o))
until true
