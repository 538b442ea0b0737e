-- reserve: check every hold, take all or none.
--   KEYS[1..3] account   KEYS[4] closings of the id's minute
--   KEYS[5] idempotency key, KEYS[1] again for none
--   KEYS[6..] counters with their own key
--   ARGV[1] packed: clock us or 0, account, id, minted us, lease us, retention
--     us, hash of the ask, token, mode (0 commit; 1 dry run; 2 the same, but
--     tickets are stored), first of 64 tickets to give out, idle us of quotas, 1
--     for a Charge, its body, its outcome, plan, output or '', shadows or '',
--     parent or '', for each hold 1 if it spills: the limit is asked where the
--     parent has too little, how long it may wait us: 0 not at all, -1 for the plan's
--     queues, what must be left of each hold's counter: a packed list, with fair holds
--     also, for each hold, 1 if it is one, and then the account; or '', waiter in
--     line or '', how long its place stands us: 0 where it neither gets one nor loses it,
--     refusals (see refusals.lua) or ''
--   output: packed list: tokens asked, least, forecast, most that may be granted;
--     then for each hold, as in reservation.Slope, tokens' worth in 1/per, per,
--     rest, weight, tolerance, and 1 if a pool elsewhere took its forecast
--   shadows: a byte a hold, 1 for that of a shadow limit, 2 for one that a pool
--     elsewhere has missed, 0 else
-- Returns, packed: code, now, reclaimed, then by code (levels: how many values,
-- the values)
--   1 granted   lease end us, or a list of it and the start us of one that waits;
--               levels afterwards; with an output or shadows also the tokens granted
--               and a text with 1 for each hold by forecast, 2 for each that was
--               missed, 0 else
--   2 replayed  record
--   3 key reused   4 closed   5 stale
--   6 unseeded  hold (from 0), ticket, ...
--   7 refused   place in line or 0; hold (from 0), callers ahead in its line, first
--               end of a place, ... for the holds with a line; levels; with a parent also, for each hold, what it has left of
--               it, -1 where the limit is asked
-- with refusals, after all that of 1 and 7, when each hold's ban ends and which fitted
--   1 and 7, with fair holds: a list as levels.lua's, last
--   8 the parent is not open   9 its tree takes no child more
local clock, name, id, minted, span, retention, ask, token, mode, ticket, idle, charge, body, outcome, plan_raw, output_raw, shadow_raw, parent, spill, max_wait, keeps, waiter, stands, refusals = unpack_msg(ARGV[1])
begin(clock, name)
local plan = {unpack_msg(plan_raw)}
keeps = keeps ~= '' and unpack_msg(keeps)
refusals = refusals ~= '' and Refusals.read(refusals)
Fair.held = keeps and #keeps * STRIDE > #plan and {} or nil

local get, mget = {'HMGET', A, 'm', 'r' .. id}, nil
for j = 1, #plan, STRIDE do
  if plan[j] ~= KIND_SLOTS then
    if plan[j + 1] == IN_FIELD then
      get[#get + 1] = plan[j + 2]
    elseif plan[j + 1] == IN_KEY then
      mget = mget or {'MGET'}
      mget[#mget + 1] = plan[j + 2]
    end
  end
end
local raws = call(unpack_all(get))
local own = mget and call(unpack_all(mget))
load_meta(raws[1])
local reclaimed, ended = reclaim(64)

local function answer(...)
  if reclaimed > 0 then flush(idle) end
  if refusals and refusals.counted then Refusals.flush_taken(refusals, idle, reclaimed > 0) end
  return pack(...)
end

-- 1. the key
local key = KEYS[5]
if key == A then key = '' end
if key ~= '' then
  local raw = call('GET', key)
  if raw then
    local known, known_id, known_token, _, until_at, closings = read_key(raw)
    if now < until_at then
      if known ~= ask then return answer(3, now, reclaimed) end
      local r = find(known_id, ended, call('HGET', A, 'r' .. known_id))
      if not r then
        local closing = call('HGET', closings, known_id)
        r = closing and read_record(closing)
      end
      local shown = r and show(r) or {0, 0, 0, 0, 0, 0, NO_BODY, '', '', ''}
      shown[9] = known_token
      return answer(2, now, reclaimed, shown)
    end
  end
end

-- 2. the id
if raws[2] or ended[id] or call('HEXISTS', KEYS[4], id) == 1 then
  return answer(4, now, reclaimed)
end

-- 3. the instant
local stale = minted - now > 5000000 or now - minted > 5000000
for j = 1, #plan, STRIDE do
  if plan[j] == KIND_QUOTA and (now < plan[j + 8] or now >= plan[j + 7]) then stale = true end
end
if stale then return answer(5, now, reclaimed) end

local envelope, envelope_plan, funds = nil, nil, {} -- hold: index of the parent's
if parent ~= '' then
  envelope = tree.kin_of(parent)
  if not tree.is_open(envelope) or (envelope[R_START] or 0) > now then return answer(8, now, reclaimed) end
  if tree.is_full(envelope) then return answer(9, now, reclaimed) end
  envelope_plan = {unpack_msg(envelope[R_PLAN])}
  local k, n = envelope[R_KIN], 0
  local granted = k and #k.granted > 0 and k.granted
  for j = 1, #plan, STRIDE do
    n = n + 1
    local i
    if shadow_raw == '' or string.byte(shadow_raw, n) == 48 then
      i = tree.fund_at(granted, envelope_plan, plan[j], plan[j + 1], plan[j + 2], plan[j + 6])
    end
    if i and (plan[j] == KIND_SLOTS or string.byte(spill, n) ~= 49 or envelope_plan[i + 3] >= plan[j + 3]) then funds[n] = i end
  end
end

-- 4 and 5. the counters
local out, n, h = {}, 0, 0
local windowed = false -- whether the plan has a window here
local next_field, next_own = 2, 0
local refused, tickets = false, nil
local counters, lefts, rests, places = {}, {}, {}, {}
local rooms = {}   -- with an output: what each counter could still take
local chooses = output_raw ~= ''
local byte, missed = string.byte, {} -- shadow holds that do not fit
local latest, queued = now, now -- when all that has a rate can start; when the queues can
local watched = {} -- when each shadow hold with a rate could
for j = 1, #plan, STRIDE do
  local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
  local raw, short, first
  h = h + 1
  local asked = amount -- of the limit
  if funds[h] then asked = 0 end
  local watches = shadow_raw ~= '' and byte(shadow_raw, h) ~= 48
  local keep = keeps and asked > 0 and keeps[h] or 0
  Fair.ahead = false
  if Fair.held and where ~= REMOTE and keeps[#plan / STRIDE + h] == 1 then
    keep = keep + Fair.look(h, ref, keeps[#keeps], asked, plan[j + 5], plan[j + 6], plan[j + 7])
  end
  if where == REMOTE then
    n = list_remote(out, n, kind)
  else
    if kind ~= KIND_SLOTS then
      if where == IN_FIELD then
        next_field = next_field + 1
        raw = raws[next_field]
      else
        next_own = next_own + 1
        raw = own[next_own]
      end
    end
    places[h] = n
    if kind == KIND_BUCKET then
      local b = bucket_of(ref, where, raw)
      local level, rest = level_of(b, plan[j + 5], plan[j + 6], plan[j + 7])
      if asked > 0 then
        first = Start.at(b)
        if level - keep < asked then
          first = max_wait ~= 0 and Start.of(b) + Start.bucket_wait(level, rest, asked + keep, plan[j + 5], plan[j + 6], plan[j + 7]) or FAR
        end
      end
      counters[h], lefts[h], rests[h], rooms[h] = b, level, rest, Start.left(b, level) - keep
      out[n + 1], out[n + 2], out[n + 3] = level, rest, Start.with_level(b.risk, b)
      n = n + 3
    elseif kind == KIND_SLOTS then
      local taken, earliest = slots_taken(ref)
      rooms[h] = plan[j + 5] - taken
      if charge == 0 and not watches and not funds[h] then rooms[h] = Line.room(h, ref, rooms[h], waiter, keep) end
      rooms[h] = rooms[h] - keep
      if asked > 0 and charge == 0 and rooms[h] < 1 then
        short = true
        if not watches and plan[j + 5] - keep >= 1 then Line.refusing[h] = true end
      end
      out[n + 1], out[n + 2] = taken, earliest
      n = n + 2
    elseif kind == KIND_GCRA then
      local g = gcra_of(ref, where, raw)
      local at = Start.at(g)
      rooms[h] = gcra_remaining(g.arrival, at, plan[j + 5], plan[j + 6], plan[j + 7])
      if asked > 0 then
        first = at
        if rooms[h] - keep < asked then
          first = max_wait ~= 0 and at + Start.gcra_wait(g.arrival, at, asked + keep, plan[j + 5], plan[j + 6], plan[j + 7]) or FAR
        end
      end
      rooms[h] = Start.left(g, rooms[h]) - keep
      counters[h] = g
      n = n + 1
      out[n] = Start.with(g.arrival, g)
    elseif kind == KIND_QUEUE then
      local g = gcra_of(ref, where, raw)
      rooms[h] = gcra_remaining(g.arrival, now, plan[j + 5], plan[j + 6], plan[j + 7]) - keep
      if asked > 0 then
        first = rooms[h] < asked and FAR or Start.later(g.arrival, now)
        if first < FAR and watches then
          -- It delays nobody: whom it would take takes its own place in it.
          local most = (charge == 1 or parent ~= '') and now or max_wait > 0 and now + max_wait or first
          first = first <= most and now or FAR
        elseif first < FAR and first > queued then
          queued = first
        end
      end
      if chooses and not watches and not funds[h] and g.arrival > now and rooms[h] > 0 then rooms[h] = 0 end
      counters[h] = g
      n = n + 1
      out[n] = g.arrival
    elseif kind >= KIND_FIXED then
      local w = window_of(ref, where, raw)
      local at = Start.at(w)
      local s = window_advanced(kind, w.s, plan[j + 6], plan[j + 7], at)
      rooms[h] = plan[j + 5] - window_taken(kind, s, at)
      if asked > 0 then
        first = at
        if rooms[h] - keep < asked then
          first = max_wait ~= 0 and at + Start.window_wait(kind, s, at, asked + keep, plan[j + 5]) or FAR
        end
      end
      rooms[h] = Start.left(w, rooms[h]) - keep
      counters[h], lefts[h] = w, s
      n = n + 1
      out[n] = shown_window(s, w)
    else
      local q = quota_of(ref, where, raw)
      local e, t = find_entry(q, plan[j + 6]), q.t
      local seeded = e and t[e + 4] == GEN
      if amount > 0 then
        if not seeded then
          tickets = tickets or {}
          local given = ticket + h - 1
          if e and t[e + 5] ~= 0 and t[e + 6] == GEN then
            given = t[e + 5]
          elseif mode ~= 1 then
            e = entry_of(q, plan[j + 6], plan[j + 7])
            t[e + 5], t[e + 6], q.dirty = given, GEN, true
          end
          local m = #tickets
          tickets[m + 1], tickets[m + 2] = h - 1, given
        elseif asked > 0 and t[e + 2] + t[e + 7] + t[e + 8] + asked > plan[j + 5] - keep then
          short = true
        end
      end
      counters[h], lefts[h] = q, e
      if seeded then rooms[h] = plan[j + 5] - keep - t[e + 2] - t[e + 7] - t[e + 8] else rooms[h] = 0 end
      if e then
        out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = t[e + 2], t[e + 7], t[e + 8], t[e + 3], seeded and 1 or 0
      else
        out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = 0, 0, 0, 0, 0
      end
      n = n + 5
    end
    if first then
      if Fair.ahead and first > now then first = FAR end
      if watches then watched[h] = first elseif first > latest then latest = first end
    end
    if refusals then
      local r = refusals[h]
      r.asked, r.first, r.fits = asked, first, not short
      if kind == KIND_SLOTS and charge == 1 then r.asked = 0 end
      if Refusals.bars(r, r.asked) then
        if watches then missed[h] = true else Refusals.banned = true end
      end
    end
    if short then
      if watches then
        missed[h] = true
      else
        refused = true
        if not Line.refusing[h] then Line.others = true end
      end
    end
    if funds[h] then
      rooms[h] = kind == KIND_SLOTS and 1 or envelope_plan[funds[h] + 3]
      if rooms[h] < amount then refused = true end
    end
  end
end
if tickets then
  if reclaimed > 0 or mode ~= 1 then flush(idle) end
  return pack(6, now, reclaimed, tickets)
end
local start = latest > queued and latest or queued
local until_at = now
if max_wait > 0 then until_at = now + max_wait elseif max_wait < 0 then until_at = queued end
if start > until_at or Refusals.banned then refused, Line.others = true, true end
if chooses then start = now end -- what is chosen does not wait
for i, first in pairs(watched) do
  if first > start then missed[i] = true end
end
local granted, chosen
if chooses then
  -- The largest number of tokens at which every hold fits, and which of them take
  -- their forecast: see reservation.Output.
  local o = unpack_msg(output_raw)
  Refusals.output = o
  local asked, least, forecast = o[1], o[2], o[3]
  for n in pairs(funds) do o[5 + 6 * (n - 1) + 4] = 0 end -- no forecasts there

  -- less is what so many tokens fewer take less, with the hold's values at i.
  local function less(i, fewer)
    if o[i] == 0 then return 0 end
    return muldiv(fewer, o[i], o[i + 2], o[i + 1]) * o[i + 3]
  end

  -- fewer is the smallest number of tokens that take at least want less.
  local function fewer(i, want)
    if want <= 0 then return 0 end
    local each, per = o[i], o[i + 1]
    if each == 0 then return OVER end
    local whole = floor(want / o[i + 3])
    if whole * o[i + 3] < want then whole = whole + 1 end
    -- (whole * per - rest) / each, rounded up, in two steps: each stays exact.
    local k, left = muldiv(whole - 1, per, 0, each)
    left = left + per - o[i + 2]
    local more = floor(left / each)
    if more * each < left then more = more + 1 end
    return k + more
  end

  granted, h = o[4], 0
  for j = 1, #plan, STRIDE do
    local i, amount = 5 + 6 * h, plan[j + 3]
    h = h + 1
    local room = rooms[h]
    if room and (shadow_raw == '' or byte(shadow_raw, h) == 48) then
      local most = asked - fewer(i, amount - (room > 0 and room or 0))
      if forecast < asked and o[i + 4] > 0 and o[i + 4] > counters[h].risk then
        local held = amount - less(i, asked - forecast)
        if room >= held then
          local with = asked - fewer(i, amount - held - (o[i + 4] - counters[h].risk))
          if with > most then most = with end
        end
      end
      if most < granted then granted = most end
    end
  end
  refused = granted < least or Refusals.banned
  if not refused then
    chosen, h = {}, 0
    for j = 1, #plan, STRIDE do
      local i, amount = 5 + 6 * h, plan[j + 3]
      h = h + 1
      local most = amount - less(i, asked - granted)
      plan[j + 3], chosen[h] = most, '0'
      if forecast < granted and (o[i + 4] > 0 or o[i + 5] == 1) then
        local held = amount - less(i, asked - forecast)
        local risk = most - held
        if o[i + 5] == 1 or rooms[h] and risk > 0 and rooms[h] >= held and risk <= o[i + 4] - counters[h].risk then
          plan[j + 3], plan[j + 8], chosen[h] = held, risk, '1'
        end
      end
      if shadow_raw ~= '' and byte(shadow_raw, h) ~= 48 then
        missed[h] = refusals and Refusals.bars(refusals[h], refusals[h].asked) or rooms[h] and chosen[h] == '0' and most > 0 and most > rooms[h]
      end
    end
  end
end
if refusals then
  refusals.found = {
    rooms = rooms, keeps = keeps, counters = counters, lefts = lefts, rests = rests, out = out, places = places,
    funds = funds, shadows = shadow_raw, until_at = until_at,
  }
end
local decides = chooses or shadow_raw ~= ''
if decides and not refused then
  granted, chosen, h = granted or 0, chosen or {}, 0
  for j = 1, #plan, STRIDE do
    h = h + 1
    if missed[h] and refusals and mode == 0 then
      Refusals.count_missed(refusals, h, j, plan, granted)
    end
    if missed[h] or shadow_raw ~= '' and byte(shadow_raw, h) == 50 then
      plan[j + 3], chosen[h] = 0, '2'
      if plan[j] == KIND_BUCKET then plan[j + 8] = 0 end
    end
    chosen[h] = chosen[h] or '0'
  end
  chosen = table.concat(chosen)
  token = token .. string.format('%016.0f', granted) .. chosen .. string.char(16 + #chosen)
  if #plan > 0 then plan_raw = pack(unpack_all(plan)) end
end
if refused then
  if envelope then
    for i = 1, h do out[n + i] = funds[i] and rooms[i] or -1 end
  end
  local place = stands > 0 and Line.wait(plan, waiter, stands, keeps) or 0
  if refusals then
    if place == 0 and mode == 0 and not Refusals.banned then
      Refusals.count(refusals, plan)
    end
    local m = envelope and n + h or n
    out[m + 1], out[m + 2] = Refusals.show(refusals)
  end
  if Fair.held then out[#out + 1] = Fair.shown(#plan / STRIDE) end
  return answer(7, now, reclaimed, place, Line.seen, n, unpack_all(out))
end

-- 6. take all, what has a rate at the start
local ends = start + span
if charge == 1 then ends = now end
local commit = mode == 0
if not commit and reclaimed > 0 then flush(idle) end
if envelope and envelope[R_EXPIRES] < ends then
  retention = retention + ends - envelope[R_EXPIRES]
  ends = envelope[R_EXPIRES]
end
if stands > 0 then Line.quit(plan, waiter, commit) end
h = 0
for j = 1, #plan, STRIDE do
  local kind, where, ref, amount = plan[j], plan[j + 1], plan[j + 2], plan[j + 3]
  h = h + 1
  if kind == KIND_BUCKET and plan[j + 8] > 0 and where ~= REMOTE then
    out[places[h] + 3] = Start.with_level(counters[h].risk + plan[j + 8], counters[h])
    if commit then add_risk(ref, where, plan[j + 8], plan[j + 5], plan[j + 6], plan[j + 7]) end
  end
  if kind >= KIND_FIXED and where ~= REMOTE then
    local s = lefts[h]
    if kind ~= KIND_QUEUE and amount > 0 and not funds[h] then
      s = window_advanced(kind, s, plan[j + 6], plan[j + 7], start)
      lefts[h] = s
    end
    plan[j + 8] = s and s.start > start and s.start or start
    if kind == KIND_QUEUE and amount > 0 then plan[j + 8] = Start.later(counters[h].arrival, start) end
    windowed = true
  end
  if Fair.held and Fair.held[h] then
    Fair.hold(h, #plan / STRIDE, keeps[#keeps], funds[h] and (envelope[Fair.SHARES] and envelope[Fair.SHARES][(funds[h] - 1) / STRIDE + 2] or 0),
      amount, start, plan[j + 6], plan[j + 7])
  end
  if funds[h] then
    local i = funds[h]
    if kind >= KIND_FIXED then plan[j + 8] = envelope_plan[i + 8] end
    if kind ~= KIND_SLOTS then envelope_plan[i + 3] = envelope_plan[i + 3] - amount end
  elseif amount > 0 and where ~= REMOTE then
    local at = places[h]
    if kind == KIND_BUCKET then
      local b, level, rest = counters[h], lefts[h], rests[h]
      if start > now then
        level, rest = advance(level, rest, start - Start.of(b), plan[j + 5], plan[j + 6], plan[j + 7])
        Start.give(b, start, amount)
        out[at + 2], out[at + 3] = rest, Start.with_level(b.risk, b)
      end
      out[at + 1] = level - amount
      if commit then set_bucket(b, level - amount, rest, plan[j + 5], plan[j + 6], plan[j + 7]) end
    elseif kind == KIND_SLOTS then
      if charge == 0 then
        out[at + 1] = out[at + 1] + 1
        if out[at + 2] == 0 or out[at + 2] > ends then out[at + 2] = ends end
        if commit then hold_slot(ref, id, ends) end
      end
    elseif kind == KIND_GCRA then
      local g = counters[h]
      Start.give(g, start, gcra_cost(amount, plan[j + 6], plan[j + 7]))
      local arrival = gcra_moved(g.arrival, start, 0, amount, plan[j + 6], plan[j + 7])
      out[at + 1] = Start.with(arrival, g)
      if commit then g.arrival, g.dirty = arrival, true end
    elseif kind == KIND_QUEUE then
      local g = counters[h]
      out[at + 1] = Start.take_queue(g.arrival, start, amount, plan[j + 6], plan[j + 7])
      if commit then g.arrival, g.dirty = out[at + 1], true end
    elseif kind >= KIND_FIXED then
      local s, w = window_corrected(kind, lefts[h], amount, plan[j + 8], plan[j + 6], plan[j + 7], start), counters[h]
      Start.give(w, start, 0)
      out[at + 1] = shown_window(s, w)
      if commit then
        w.s, w.kind, w.dirty = s, kind, true
      end
    else
      local q, e, add = counters[h], lefts[h], 7 + charge
      out[at + 2 + charge] = out[at + 2 + charge] + amount
      if commit then q.t[e + add], q.dirty = q.t[e + add] + amount, true end
    end
  end
end
if commit then
  if windowed then plan_raw = pack(unpack_all(plan)) end
  local r = {1, HELD, 0, ends, retention, 0, 0, 0, '', '', token, key, plan_raw, ''}
  if start > now then tree.set(r, R_START, start) end
  if Fair.sharers then tree.set(r, Fair.SHARES, Fair.sharers) end
  members = members + 1
  if envelope then
    local taken = {}
    for n = 1, h do taken[n] = funds[n] and '1' or '0' end
    tree.join(id, r, parent, envelope, table.concat(taken))
    if #envelope_plan > 0 then envelope[R_PLAN] = pack(unpack_all(envelope_plan)) end
  end
  if charge == 1 then
    r[R_ACTUAL] = pack(charged_of(r, plan))
    r[R_STATE], r[R_RANK], r[R_CLOSED_AT], r[R_BODY], r[R_OUTCOME] = SETTLED, 2, now, body, outcome
    schedule(id, now + 2000000, true)
  else
    schedule(id, ends, false)
  end
  put('r' .. id, write_record(r))
  if key ~= '' then
    local until_at = ends + retention
    call('SET', key, write_key(ask, id, token, retention, until_at, KEYS[4]), 'PX', expire_ms(until_at) + CLOSING_SLACK_MS)
  end
  flush(idle)
end
if decides then out[n + 1], out[n + 2] = granted, chosen end
if refusals then
  if commit then Refusals.flush(refusals) end
  local m = decides and n + 2 or n
  out[m + 1], out[m + 2] = Refusals.show(refusals)
end
if Fair.held then out[#out + 1] = Fair.shown(#plan / STRIDE) end
return pack(1, now, reclaimed, start > now and {ends, start} or ends, n, unpack_all(out))
