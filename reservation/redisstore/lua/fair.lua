-- Fair shares of a pool's counter, as quota.FairShare: a sorted set beside the
-- counter, its key ref .. '~', with the accounts that use it and until when, us,
-- each has had its share. One whose instant has passed does not count. A counter's
-- table s in Fair.of has, by account, e: stored, at (us, 0 for past), dirty.
--
-- Of a Reserve, held has for each fair hold its e and how many use the counter; nil
-- without any. sharers is what the record keeps at index SHARES: the account, and for
-- each hold how many used the counter when it took, 0 where it is in no share. (All is
-- in one table, as a script may have 200 locals.)
local Fair = {of = {}, SHARES = 17}

function Fair.entry(ref, member)
  local s = Fair.of[ref]
  if not s then
    s = {}
    Fair.of[ref] = s
  end
  local e = s[member]
  if not e then
    local at = tonumber(call('ZSCORE', ref .. '~', member) or 0)
    if at <= now then at = 0 end
    e = {stored = at, at = at}
    s[member] = e
  end
  return e
end

-- count is how many accounts use a counter.
function Fair.count(ref)
  local n = call('ZCOUNT', ref .. '~', now + 1, '+inf')
  for _, e in pairs(Fair.of[ref]) do
    if e.at > now and e.stored == 0 then n = n + 1 end
    if e.at <= now and e.stored > 0 then n = n - 1 end
  end
  return n
end

function Fair.is_ahead(at, capacity, refill, per)
  return at - now > gcra_cost(floor(floor(capacity / 4) / 2), refill, per)
end

-- times is cost for each of n.
function Fair.times(cost, n)
  if cost <= floor(MOST_AHEAD / n) then return cost * n end
  return MOST_AHEAD
end

-- take charges a share at an instant, while n accounts use the counter.
function Fair.take(e, at, amount, n, refill, per)
  local ahead = gcra_ahead(e.at, at) + Fair.times(gcra_cost(amount, refill, per), n)
  if ahead > MOST_AHEAD then ahead = MOST_AHEAD end
  e.at, e.dirty = at + ahead, true
end

-- correct follows a difference in what a hold costs that was taken while n used it.
function Fair.correct(ref, member, difference, n, refill, per)
  local e = Fair.entry(ref, member)
  if difference >= 0 then return Fair.take(e, now, difference, n, refill, per) end
  local back = muldiv(-difference, per, 0, refill)
  if back > MOST_AHEAD then back = MOST_AHEAD end
  local ahead = gcra_ahead(e.at, now) - Fair.times(back, n)
  e.at, e.dirty = ahead > 0 and now + ahead or 0, true
end

-- sweep forgets some of those who are past: more than one call adds.
function Fair.sweep(ref)
  local past = call('ZCOUNT', ref .. '~', '-inf', now)
  if past > 0 then call('ZREMRANGEBYRANK', ref .. '~', 0, (past > 64 and 64 or past) - 1) end
end

function Fair.flush()
  for ref, s in pairs(Fair.of) do
    local key, swept = ref .. '~', false
    for member, e in pairs(s) do
      if e.dirty and e.at > now then
        if not swept then Fair.sweep(ref) end
        swept = true
        call('ZADD', key, e.at, member)
        live(key, expire_ms(e.at + 1000000))
      elseif e.dirty and e.stored > 0 then
        call('ZREM', key, member)
      end
    end
  end
end

-- look finds the share of hold h, and returns what must be left for others.
function Fair.look(h, ref, member, asked, capacity, refill, per)
  local e = Fair.entry(ref, member)
  Fair.held[h] = {e, Fair.count(ref)}
  Fair.ahead = asked > 0 and Fair.is_ahead(e.at, capacity, refill, per)
  return Fair.ahead and floor(capacity / 4) or 0
end

-- hold charges the share of hold h of so many, or follows its parent's, which paid is
-- of a hold that the parent pays.
function Fair.hold(h, holds, member, paid, amount, start, refill, per)
  local e, n = Fair.held[h][1], Fair.held[h][2]
  if not Fair.sharers then
    Fair.sharers = {member}
    for i = 1, holds do Fair.sharers[i + 1] = 0 end
  end
  if e.at == 0 then n = n + 1 end
  Fair.sharers[h + 1] = paid or n
  if amount > 0 and not paid then
    Fair.take(e, start, amount, n, refill, per)
    Fair.held[h][2] = n
  end
end

-- shown lists what the fair holds of so many show.
function Fair.shown(holds)
  local shown = {}
  for i = 1, holds do
    if Fair.held[i] then
      shown[#shown + 1] = Fair.held[i][1].at
      shown[#shown + 1] = Fair.held[i][2]
    end
  end
  return shown
end
