-- Refusals that count, as in reservation/refusals.go. A Reserve or a levels whose plan
-- has any gets a packed list, five values a hold: the key of its ban ('': none), 1 if
-- it counts refusals, and of the ban refusals, within us, for us.
--
-- A table r of one hold: ref, counts, most, within, span, of the key ends (of the ban,
-- 0 for none) and s (the refusals, as a sliding log), and dirty once it is to be
-- written. A Reserve adds asked (of the limit), first (when it could start), fits, and
-- hopeless: no waiting helps.
--
-- One table has it all, as a script may have 200 local names at most. Of a Reserve it
-- has banned, whether a ban refuses, and output, from which the engine chooses; and the
-- list of its holds found: rooms, counters and so on, and its answer.
function Refusals.read(raw)
  local list, of, get = unpack_msg(raw), {}, {'MGET'}
  for i = 1, #list, 5 do
    local r = {ref = list[i], counts = list[i + 1] == 1, most = list[i + 2], within = list[i + 3], span = list[i + 4], ends = 0}
    of[#of + 1] = r
    if r.ref ~= '' then get[#get + 1] = r.ref end
  end
  if #get > 1 then
    local raws, n = call(unpack_all(get)), 0
    for _, r in ipairs(of) do
      if r.ref ~= '' then
        n = n + 1
        if raws[n] then r.ends, r.s = Refusals.read_ban(raws[n]) end
      end
    end
  end
  return of
end

-- bars says that a ban refuses a hold that asks so much of its limit.
function Refusals.bars(r, asked) return asked > 0 and r.ends > now end

-- amount is what a hold asks for n tokens: o is the output, or false.
function Refusals.amount(o, h, asked, n)
  local i = 6 * h - 1
  if not o or o[i] == 0 then return asked end
  return asked - muldiv(o[1] - n, o[i], o[i + 2], o[i + 1]) * o[i + 3]
end

-- judge says whether a hold fits for n tokens, and else whether no waiting helps, as
-- reservation.Output has it. Without an output only the latter is asked for.
function Refusals.judge(o, h, r, n, room, risk, capacity, keep)
  local most = Refusals.amount(o, h, r.asked, n)
  local want = most
  if o then
    r.fits = most == 0 or most <= room
    local tolerance, forecast = o[6 * h + 3], o[3]
    if tolerance > 0 and forecast < n then
      local held = Refusals.amount(o, h, r.asked, forecast)
      local more = most - held
      if more > 0 and room >= held and more <= tolerance - risk then r.fits = true end
      if more > 0 and more <= tolerance and (more <= tolerance - risk or most > capacity - keep) then want = held end
    end
  end
  r.hopeless = not r.fits and want + keep > capacity
end

-- take takes for good, of no reservation, what is left of an amount of the hold at j.
function Refusals.take(of, h, j, plan, amount)
  local x = of.found
  if amount > x.rooms[h] then amount = x.rooms[h] end
  if amount <= 0 then return end
  local kind, c, left, out, at = plan[j], x.counters[h], x.lefts[h], x.out, x.places[h]
  if kind == KIND_BUCKET then
    out[at + 1] = left - amount
    set_bucket(c, left - amount, x.rests[h], plan[j + 5], plan[j + 6], plan[j + 7])
  elseif kind == KIND_GCRA then
    c.arrival, c.dirty = gcra_moved(c.arrival, now, 0, amount, plan[j + 6], plan[j + 7]), true
    out[at + 1] = Start.with(c.arrival, c)
  else
    local from = now
    if left and left.start > now then from = left.start end
    c.s, c.kind, c.dirty = window_corrected(kind, left, amount, from, plan[j + 6], plan[j + 7], now), kind, true
    out[at + 1] = shown_window(c.s, c)
  end
  of.taken = true
  if plan[j + 1] == IN_FIELD then of.in_field = true end
end

-- add counts a refusal by a limit with a ban.
function Refusals.add(r)
  local s = window_advanced(KIND_LOG, r.s, r.within, 0, now)
  s = window_corrected(KIND_LOG, s, 1, now, r.within, 0, now)
  r.ends, r.s, r.dirty = 0, s, true
  if window_taken(KIND_LOG, s, now) >= r.most then
    r.ends, r.s = now + r.span, nil
    if r.ends > MAX then r.ends = MAX end
  end
end

-- keep_of is what a Reserve must leave of a hold's counter.
function Refusals.keep_of(x, h) return x.keeps and x.keeps[h] or 0 end

function Refusals.judge_in(r, h, j, plan, n, x)
  local c = x.counters[h]
  Refusals.judge(Refusals.output, h, r, n, x.rooms[h], c and c.risk or 0, plan[j + 5], Refusals.keep_of(x, h))
end

-- count leaves what a refusal by no ban leaves.
function Refusals.count(of, plan)
  local x = of.found
  local n, hopeless, h = Refusals.output and Refusals.output[2], false, 0
  local watched = function(h) return x.shadows ~= '' and string.byte(x.shadows, h) ~= 48 end
  for j = 1, #plan, STRIDE do
    h = h + 1
    local r = of[h]
    if x.funds[h] then
      if x.rooms[h] < Refusals.amount(Refusals.output, h, plan[j + 3], n) then hopeless = true end
    elseif r.asked and r.asked > 0 then
      if r.first then r.fits = r.first <= x.until_at end
      Refusals.judge_in(r, h, j, plan, n, x)
      if r.hopeless and not watched(h) then hopeless = true end
    end
  end
  if hopeless then return end
  of.counted, h = true, 0
  for j = 1, #plan, STRIDE do
    h = h + 1
    local r = of[h]
    if not x.funds[h] and r.asked and r.asked > 0 and not r.hopeless and not Refusals.bars(r, r.asked) then
      if r.counts then Refusals.take(of, h, j, plan, Refusals.amount(Refusals.output, h, r.asked, n)) end
      if r.ref ~= '' and not r.fits then Refusals.add(r) end
    end
  end
end

-- count_missed does so for the hold of a shadow limit that would have refused what is
-- granted.
function Refusals.count_missed(of, h, j, plan, granted)
  local r = of[h]
  if not r.asked or r.asked == 0 or Refusals.bars(r, r.asked) then return end
  r.fits = false
  Refusals.judge_in(r, h, j, plan, granted, of.found)
  if r.hopeless then return end
  if r.counts then Refusals.take(of, h, j, plan, Refusals.amount(Refusals.output, h, r.asked, granted)) end
  if r.ref ~= '' then Refusals.add(r) end
end

-- flush_taken writes what a refusal left. An account of which nothing else is kept is
-- not made for counters with keys of their own: it would have no end.
function Refusals.flush_taken(of, idle, flushed)
  if flushed then
    -- the counters are written
  elseif of.in_field then
    flush(idle)
  elseif of.taken then
    flush_counters(idle)
  end
  Refusals.flush(of)
end

function Refusals.flush(of)
  for _, r in ipairs(of) do
    if r.dirty then
      local at = r.s and window_empty_at(KIND_LOG, r.s) or r.ends
      call('SET', r.ref, Refusals.write_ban(r.ends, r.s), 'PX', expire_ms(at + 1000000))
    end
  end
end

-- show lists when each hold's ban ends, 0 for none now, and marks those that fit
-- before a refusal was counted.
function Refusals.show(of)
  local ends, marks = {}, {}
  for h, r in ipairs(of) do
    ends[h] = r.ends > now and r.ends or 0
    marks[h] = of.counted and r.fits and '1' or '0'
  end
  return ends, table.concat(marks)
end
