-- Aliases and constants that every script shares. GEN, the incarnation of the
-- server, is a literal that the broker puts in front of this file.
--
-- All instants and spans are integer microseconds unless a name says _ms. A
-- script reads and decides first and writes last, so that an error on the way
-- (a newer layout, a damaged value) leaves everything as it was.
local call, pack, unpack_msg, unpack_all = redis.call, cmsgpack.pack, cmsgpack.unpack, unpack
local floor = math.floor

local MAX = 9007199254740991   -- 2^53-1: the largest amount; as an instant: never
local OVER = 9007199254740992  -- 2^53
local FAR = 18014398509481984  -- 2^54: more than any debt and capacity together

local KIND_BUCKET, KIND_SLOTS, KIND_QUOTA = 1, 2, 3
local KIND_GCRA, KIND_FIXED, KIND_COUNTER, KIND_LOG = 4, 5, 6, 7 -- from KIND_FIXED on: windows
local KIND_QUEUE = 8 -- asked for before the windows
local IN_FIELD, IN_KEY, REMOTE = 0, 1, 2           -- where a counter lives
local HELD, EXPIRED, SETTLED = 1, 2, 3             -- states of a record
local STRIDE = 9                                   -- values of one hold in a plan

local KEEP = 90000000000        -- 25 h: what waits for the ledger outlives its due instant by this
local SLACK = 600000000         -- 10 min: keys are given more than they need, so that few calls touch the expiry
local CLOSING_SLACK_MS = 5000   -- what closings and idempotency keys live beyond their instant
