package redisstore

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
	"github.com/budgetd/budgetd/test/servers"
)

// layoutTwo is a later layout as a next version might bring: every value turned
// around, behind the number 2. It reads layout 1 and writes 2.
const layoutTwo = `-- Layout 2, of tests.
local function turned(t)
  local n, out = #t, {}
  for i = 1, n do out[i] = t[n + 1 - i] end
  return out
end

local function open_value(raw)
  local t = {unpack_msg(raw)}
  local layout = table.remove(t, 1)
  if layout == 1 then return t end
  if layout ~= 2 then error({err = 'LAYOUT ' .. tostring(layout)}) end
  return turned(t)
end

local function close_value(t) return pack(2, unpack_all(turned(t))) end

local function read_meta(raw)
  if not raw then return 0, MAX, MAX, 0 end
  return unpack_all(open_value(raw))
end
local function write_meta(...) return close_value({...}) end
local function read_bucket(raw)
  local t = open_value(raw)
  t[7] = t[7] or 0 -- layout 1 leaves it out where it is 0
  return unpack_all(t)
end
local function write_bucket(...) return close_value({...}) end
local function read_gcra(raw) return unpack_all(open_value(raw)) end
local function write_gcra(...) return close_value({...}) end
local function read_window(raw)
  local t = open_value(raw)
  if t[1] == 0 then return nil, t[6] end
  local s = {length = t[1], calendar = t[2], start = t[3], count = t[4], before = t[5]}
  if type(t[4]) == 'table' then s.log, s.count = t[4], nil end
  return s, t[6]
end
local function write_window(s, given)
  if not s then return close_value({0, 0, 0, 0, 0, given}) end
  return close_value({s.length, s.calendar, s.start, s.log or s.count, s.before or 0, given})
end
local Refusals = {}
function Refusals.read_ban(raw)
  local ends, length, log = unpack_all(open_value(raw))
  return ends, log and {length = length, calendar = 0, start = 0, log = log}
end
function Refusals.write_ban(ends, s)
  if s then return close_value({ends, s.length, s.log}) end
  return close_value({ends})
end
local function read_key(raw) return unpack_all(open_value(raw)) end
local function write_key(...) return close_value({...}) end
local function read_quota(raw)
  local t = open_value(raw)
  table.insert(t, 1, 2)
  return t
end
local function write_quota(t)
  local values = {unpack_all(t, 2)}
  return close_value(values)
end
local read_record, write_record = read_quota, write_quota
`

// modulesOfLayoutTwo are the scripts of a node of the next version.
var modulesOfLayoutTwo = map[string]string{"layout": layoutTwo}

// TestLayoutTwoConforms makes sure that the tests' second layout is a real one.
func TestLayoutTwoConforms(t *testing.T) {
	storetest.RunScenarios(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
		server := servers.NewRedis(tb)
		s := open(tb, patient(tb, server.URL()), Config{Clock: clock.Now})
		s.modules = modulesOfLayoutTwo
		return storetest.Engine{Store: s, LoseData: server.FlushAll}
	})
}

// TestTwoLayouts runs two versions over the same keys: the new one reads what
// the old one wrote exactly, and the old one refuses what the new one wrote.
func TestTwoLayouts(t *testing.T) {
	server := servers.NewRedis(t)
	clock := storetest.NewClock()
	config := Config{Clock: clock.Now, Prefix: "two:"}
	older := open(t, patient(t, server.URL()), config)
	newer := open(t, patient(t, server.URL()), config)
	newer.modules = modulesOfLayoutTwo
	ctx := within(t, time.Minute)

	holds := []reservation.Hold{tokens(400, quota.Bucket{Capacity: 1000, Refill: 7, PerMicros: 900_001}), slot(5), spend(40, 100)}
	holds[0].Scope = "user=7"
	holds = append(holds, tokens(2, quota.Bucket{Capacity: 10, Refill: 1, PerMicros: 3_333_333}))
	ask := func() reservation.ReserveRequest {
		r := asking("acme", holds...)
		r.ID = reservation.NewID(clock.Now())
		return r
	}
	plain := asking("acme", spend(1, 100))
	plain.ID = reservation.NewID(clock.Now())
	unseeded := mustReserve(t, older, plain, reservation.Unseeded)
	if ok, err := older.Seed(ctx, reservation.SeedRequest{Account: "acme", Counter: holds[2].Counter, Period: holds[2].Period, Ticket: unseeded.Tickets[0].Ticket, Used: 7, Version: 3}); err != nil || !ok {
		t.Fatalf("seed: %v, %v", ok, err)
	}
	held, done, waiting := ask(), ask(), ask()
	held.Key, done.Key = "held", "done"
	mustReserve(t, older, held, reservation.Granted)
	clock.Add(1_234_567 * time.Microsecond)
	holds[0].Amount, holds[2].Amount = 100, 20
	mustReserve(t, older, done, reservation.Granted)
	mustConfirm(t, older, confirming(mustClose(t, older, done)), reservation.ConfirmAdopted)
	holds[0].Amount, holds[2].Amount = 50, 5
	mustReserve(t, older, waiting, reservation.Granted)
	mustClose(t, older, waiting)

	look := func(s *Store) (state []any) {
		levels, _, err := s.Levels(ctx, "acme", holds)
		if err != nil {
			t.Fatal(err)
		}
		state = append(state, levels)
		for _, id := range []reservation.ID{held.ID, done.ID, waiting.ID} {
			record, err := s.Lookup(ctx, "acme", id)
			if err != nil {
				t.Fatal(err)
			}
			state = append(state, record)
		}
		return state
	}
	if diff := cmp.Diff(look(older), look(newer)); diff != "" {
		t.Fatalf("the new layout reads the old state otherwise (- old, + new):\n%s", diff)
	}
	again := held
	again.ID = reservation.NewID(clock.Now())
	mustReserve(t, newer, again, reservation.Replayed)

	// The new version writes every kind of value.
	if answer, err := newer.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: held.ID, Lease: 2 * time.Minute}); err != nil || answer.State != reservation.StateHeld {
		t.Fatalf("renew: state %d, error %v", answer.State, err)
	}
	more := ask()
	mustReserve(t, newer, more, reservation.Granted)

	frozen := snapshot(t, server.Client(t))
	for name, call := range calls(ctx, older, held, holds) {
		if err := call(); !errors.Is(err, reservation.ErrNewerLayout) {
			t.Errorf("%s of the old version: error %v, want ErrNewerLayout", name, err)
		}
	}
	if diff := cmp.Diff(frozen, snapshot(t, server.Client(t))); diff != "" {
		t.Errorf("the old version changed what it can't read:\n%s", diff)
	}
	// The old version's sweeper passes the account over, the new one's not.
	clock.Add(time.Hour)
	if answer, err := older.Sweep(ctx, 10); err != nil || len(answer.Pending) != 0 {
		t.Errorf("the old version's sweep: %d pending, error %v", len(answer.Pending), err)
	}
	if answer, err := newer.Sweep(ctx, 10); err != nil || len(answer.Pending) != 3 {
		t.Errorf("the new version's sweep: %d pending, error %v", len(answer.Pending), err)
	}
}

func mustClose(t *testing.T, s *Store, r reservation.ReserveRequest) reservation.RefundRequest {
	t.Helper()
	closed := closing(r, 1, 10, 0, 2, 3)
	mustRefund(t, s, closed, reservation.RefundSettled)
	return closed
}

// calls is every call that touches an account, on a held reservation.
func calls(ctx context.Context, s *Store, held reservation.ReserveRequest, holds []reservation.Hold) map[string]func() error {
	return map[string]func() error{
		"Reserve": func() error {
			r := held
			r.ID = reservation.NewID(s.clock())
			_, err := s.Reserve(ctx, r)
			return err
		},
		"Refund": func() error {
			_, err := s.Refund(ctx, closing(held, 1, []quota.Amount{1, 0, 1, 1, 1, 1}[:len(holds)]...))
			return err
		},
		"Renew": func() error {
			_, err := s.Renew(ctx, reservation.RenewRequest{Account: held.Account, ID: held.ID, Lease: time.Hour})
			return err
		},
		"Confirm": func() error {
			_, err := s.Confirm(ctx, confirming(closing(held, 1, []quota.Amount{1, 0, 1, 1, 1, 1}[:len(holds)]...)))
			return err
		},
		"Lookup": func() error { _, err := s.Lookup(ctx, held.Account, held.ID); return err },
		"Levels": func() error { _, _, err := s.Levels(ctx, held.Account, holds); return err },
		"Seed": func() error {
			_, err := s.Seed(ctx, reservation.SeedRequest{Account: held.Account, Counter: holds[2].Counter, Period: holds[2].Period, Ticket: 1})
			return err
		},
	}
}

// TestEveryValueHasALayout spoils the layout of one value after the other: the
// calls that need it refuse, and change nothing.
func TestEveryValueHasALayout(t *testing.T) {
	server := servers.NewRedis(t)
	admin := server.Client(t)
	clock := storetest.NewClock()
	s := open(t, patient(t, server.URL()), Config{Clock: clock.Now})
	ctx := within(t, time.Minute)
	holds := []reservation.Hold{tokens(4, quota.Bucket{Capacity: 1000, Refill: 7, PerMicros: 900_001}), slot(50), spend(4, 100)}
	holds = append(holds, tokens(4, slowBucket))
	holds[3].Scope = "user=7"
	every := quota.Limit{Kind: quota.KindSlidingCounter, Rate: quota.Rate{Amount: 1000, Every: 24 * time.Hour}}
	sliding := reservation.Hold{Counter: reservation.Counter{Limit: "sliding.00000001"}, Kind: every.Kind, Amount: 4, Window: every.Window()}
	cells := tokens(4, slowBucket)
	cells.Kind = quota.KindGCRA
	holds = append(holds, cells, sliding)

	spoilt := map[string]bool{}
	for name, needs := range map[string]string{
		"meta": "Reserve Refund Renew Confirm Seed", "bucket": "Reserve Refund Confirm Levels", "quota": "Reserve Refund Confirm Levels Seed",
		"gcra": "Reserve Refund Confirm Levels", "window": "Reserve Refund Confirm Levels", "record": "Refund Renew Confirm Lookup", "key": "Reserve", "scoped bucket": "Reserve Refund Confirm Levels",
	} {
		account := "spoilt " + name
		seed := asking(account, holds[2])
		seed.ID = reservation.NewID(clock.Now())
		ticket := mustReserve(t, s, seed, reservation.Unseeded).Tickets[0].Ticket
		if ok, err := s.Seed(ctx, reservation.SeedRequest{Account: account, Counter: holds[2].Counter, Period: holds[2].Period, Ticket: ticket}); err != nil || !ok {
			t.Fatalf("seed: %v, %v", ok, err)
		}
		held := asking(account, holds...)
		held.ID, held.Key = reservation.NewID(clock.Now()), "key"
		mustReserve(t, s, held, reservation.Granted)
		if name != "key" {
			held.Key = "" // or Reserve would replay before it reads the rest
		}
		p := s.account(account)
		field := map[string]string{"meta": "m", "bucket": "b" + holds[0].Limit, "quota": "q" + holds[2].Limit, "gcra": "g" + cells.Limit, "window": "c" + sliding.Limit, "record": "r" + string(held.ID[:])}[name]
		key := map[string]string{"key": p.idempotency("key"), "scoped bucket": p.own('b', holds[3].Limit, holds[3].Scope)}[name]
		var err error
		if field != "" {
			err = admin.HSet(ctx, p.hash(), field, spoil(admin.HGet(ctx, p.hash(), field).Val())).Err()
		} else {
			err = admin.SetArgs(ctx, key, spoil(admin.Get(ctx, key).Val()), redis.SetArgs{KeepTTL: true}).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		spoilt[name] = true
		before := snapshot(t, admin)
		for call, run := range calls(ctx, s, held, holds) {
			err := run()
			if strings.Contains(needs, call) {
				if !errors.Is(err, reservation.ErrNewerLayout) {
					t.Errorf("%s with a newer %s: error %v, want ErrNewerLayout", call, name, err)
				}
				if diff := cmp.Diff(before, snapshot(t, admin)); diff != "" {
					t.Fatalf("%s with a newer %s wrote:\n%s", call, name, diff)
				}
			}
			before = snapshot(t, admin)
		}
		admin.FlushAll(ctx)
	}
	if len(spoilt) != 8 {
		t.Errorf("%d kinds of value were spoilt", len(spoilt))
	}
}

// spoil gives a value the layout 2.
func spoil(value string) string { return "\x02" + value[1:] }

// snapshot is every key with its value.
func snapshot(tb testing.TB, client *redis.Client) map[string]any {
	tb.Helper()
	ctx := within(tb, 30*time.Second)
	all := map[string]any{}
	for _, key := range client.Keys(ctx, "*").Val() {
		switch client.Type(ctx, key).Val() {
		case "hash":
			fields := client.HGetAll(ctx, key).Val()
			all[key] = maps.Clone(fields)
		case "zset":
			all[key] = client.ZRangeWithScores(ctx, key, 0, -1).Val()
		default:
			all[key] = client.Get(ctx, key).Val()
		}
	}
	if len(all) == 0 {
		tb.Fatal("there are no keys")
	}
	return all
}
