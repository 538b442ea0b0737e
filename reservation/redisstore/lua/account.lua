-- One account: its meta, and what a script is going to write, collected until
-- flush.
--   KEYS[1] hash of the account      KEYS[2] set of its due instants
--   KEYS[3] index of the shard's accounts by their earliest due instant
--
-- Scores of the due set: a held record has its lease's end (above 0); one that
-- waits for the ledger has minus its due instant (below 0). So one set keeps
-- two orders, and a record moves from one to the other in one command.
local A, D, I = KEYS[1], KEYS[2], KEYS[3]
local now, account          -- set by begin
local members, lease, index, expiry
local members_before = 0
local keep = 0              -- the account's keys must live at least until this instant
local due = MAX             -- earliest due instant that this script adds

local fields, drops = {'HSET', A}, {'HDEL', A}   -- of the hash
local adds, removes = {'ZADD', D}, {'ZREM', D}   -- of the due set
local buckets, quotas = {}, {}                   -- counters read, by ref
local gcras, windows = {}, {}                    -- likewise
local frees = {}                                 -- slots to free: key, id, key, id, ...

-- begin takes the instant from the argument (tests) or, when that is 0, from
-- the server's clock.
local function begin(clock, name)
  account = name
  if clock > 0 then
    now = clock
  else
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
end

local function load_meta(raw)
  members, lease, index, expiry = read_meta(raw)
  members_before = members
end

local function put(field, value)
  local n = #fields
  fields[n + 1], fields[n + 2] = field, value
end

local function drop(field) drops[#drops + 1] = field end

-- schedule gives a record its place in the due set: a lease's end or, with
-- waits, the instant at which Sweep hands it out.
local function schedule(id, at, waits)
  local n = #adds
  adds[n + 1], adds[n + 2] = waits and -at or at, id
  if at < due then due = at end
  if not waits and at < lease then lease = at end
  if at + KEEP > keep then keep = at + KEEP end
end

local function unschedule(id) removes[#removes + 1] = id end

local function expire_ms(at)
  local ms = floor((at - now) / 1000) + 1
  if ms < 1 then return 1 end
  return ms
end

-- store_counter writes a counter that says nothing from an instant on, or takes
-- it away where there is no value.
local function store_counter(ref, where, value, at)
  if where == IN_FIELD then
    if value then
      put(ref, value)
      if at > keep then keep = at end
    else
      drop(ref)
    end
  elseif value then
    call('SET', ref, value, 'PX', expire_ms(at))
  else
    call('DEL', ref)
  end
end

-- live gives a key at least ms to live, whether it had an expiry or not.
local function live(key, ms)
  if call('PEXPIRE', key, ms, 'GT') == 0 then call('PEXPIRE', key, ms, 'NX') end
end

-- with_slack is an expiry that needs no renewal at once.
local function with_slack(at)
  local slack = (at - now) / 8
  if slack > SLACK then slack = SLACK end
  return at + floor(slack)
end

-- finish_meta collects the account's meta and sets its index entry; it reports
-- whether the account's keys need a later expiry.
local function finish_meta()
  if due < index then
    index = due
    call('ZADD', I, index, account)
    live(I, expire_ms(keep + SLACK))
  end
  local renew = keep > expiry
  if renew then expiry = with_slack(keep) end
  put('m', write_meta(members, lease, index, expiry))
  return renew
end
