package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/servers"
)

const (
	heldSlots  = 5
	heldPolicy = `
plans: {slow: {limits: [{name: slow, meter: in_flight, max: 5}]}}
accounts: {in-turn: {plan: slow}, leaving: {plan: slow}, crowd: {plan: slow}}
`
	heldLease = time.Hour
)

// held is what came of a call that waited for a slot.
type held struct {
	caller  int
	id      string
	granted time.Time // by Redis's clock
	err     error
}

// slot asks a broker of the fleet for a slot.
func (f *fleet) slot(ctx context.Context, tb testing.TB, broker, caller int, account string, wait time.Duration) held {
	tb.Helper()
	ask := &budgetv1.ReserveRequest{Account: account, Lease: durationpb.New(heldLease), MaxWait: durationpb.New(wait)}
	answer, err := f.client(tb, broker).Service().Reserve(ctx, connect.NewRequest(ask))
	if err != nil {
		return held{caller: caller, err: err}
	}
	return held{caller, answer.Msg.ReservationId, answer.Msg.ExpiresAt.AsTime().Add(-heldLease), nil}
}

// free gives a slot back, at another broker than it may have come from.
func (f *fleet) free(tb testing.TB, broker int, h held) {
	tb.Helper()
	if _, err := f.client(tb, broker).Service().Refund(context.Background(), connect.NewRequest(&budgetv1.RefundRequest{ReservationId: h.id, Unused: true})); err != nil {
		tb.Errorf("the Refund of caller %d: %v", h.caller, err)
	}
}

// fill takes all slots.
func (f *fleet) fill(tb testing.TB, broker int, account string) (holders []held) {
	tb.Helper()
	for i := range heldSlots {
		h := f.slot(tb.Context(), tb, broker, -1-i, account, 0)
		if h.err != nil {
			tb.Fatal(h.err)
		}
		holders = append(holders, h)
	}
	return holders
}

// waitAt has a caller wait at a broker, and comes back when the broker holds it.
func (f *fleet) waitAt(ctx context.Context, tb testing.TB, broker, caller int, account string, back chan<- held) {
	tb.Helper()
	before := f.holding(tb, broker)
	go func() { back <- f.slot(ctx, tb, broker, caller, account, 10*time.Minute) }()
	eventually(tb, time.Minute, fmt.Sprintf("broker %d holds caller %d", broker, caller), func() bool { return f.holding(tb, broker) > before })
}

// holding is how many calls a broker holds.
func (f *fleet) holding(tb testing.TB, broker int) int {
	tb.Helper()
	answer, err := http.Get(f.brokers[broker].URL + "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "budgetd_reservation_held_calls "); found {
			n, err := strconv.Atoi(value)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatal("no metric budgetd_reservation_held_calls")
	return 0
}

// TestSlotsInTurn: callers at three brokers wait for five slots. They get them in the
// order in which they came, all of them, and never more than five at once: nobody is
// granted while there is no slot left for all who came before.
func TestSlotsInTurn(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), heldPolicy, "--deadline", "2s")
	holders := f.fill(t, 0, "in-turn")
	const callers = 45
	back := make(chan held, callers)
	for i := range callers {
		f.waitAt(t.Context(), t, i%fleetSize, i, "in-turn", back)
	}
	// Who does not wait gets none while others do, also when there are some.
	stop, newcomer := make(chan struct{}), []held{}
	var newcomers sync.WaitGroup
	newcomers.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if h := f.slot(context.Background(), t, n%fleetSize, -100, "in-turn", 0); h.err == nil {
				newcomer = append(newcomer, h)
				f.free(t, n%fleetSize, h)
			}
		}
	})
	var now, most atomic.Int64
	for i, h := range holders {
		f.free(t, i%fleetSize, h)
	}
	var all []held
	var calls sync.WaitGroup
	for range callers {
		var h held
		select {
		case h = <-back:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d callers came back", len(all), callers)
		}
		if h.err != nil {
			t.Fatalf("caller %d: %v", h.caller, h.err)
		}
		all = append(all, h)
		if len(all) == callers {
			close(stop) // nobody waits any more
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		calls.Go(func() {
			time.Sleep(10 * time.Millisecond) // the call that the slot is for
			now.Add(-1)
			f.free(t, h.caller%fleetSize, h)
		})
	}
	calls.Wait()
	newcomers.Wait()
	slices.SortFunc(all, func(a, b held) int { return a.granted.Compare(b.granted) })
	for i, h := range all {
		// Where several slots are free at once, those who are next take them in any order.
		var passed []int
		for _, later := range all[i+1:] {
			if later.caller < h.caller {
				passed = append(passed, later.caller)
			}
		}
		if len(passed) >= heldSlots {
			t.Errorf("caller %d was granted before %v, who came first", h.caller, passed)
		}
	}
	if most.Load() > heldSlots || most.Load() < 2 {
		t.Errorf("%d calls ran at once, want %d at most and more than one", most.Load(), heldSlots)
	}
	for _, h := range newcomer {
		if last := all[callers-1].granted; h.granted.Before(last) {
			t.Errorf("a newcomer got a slot %s before the last who waited", last.Sub(h.granted))
		}
	}
	t.Logf("%d callers, %d at once, the last %s after the first", callers, most.Load(), all[callers-1].granted.Sub(all[0].granted))
}

// TestWaitersThatGo: those who hang up, those of a broker that is killed and those of one
// that stops hold nobody up.
func TestWaitersThatGo(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), heldPolicy, "--deadline", "2s")
	holders := f.fill(t, 2, "leaving")
	back := make(chan held, 20)
	for i := range 3 { // the first three die with their broker
		f.waitAt(t.Context(), t, 0, i, "leaving", back)
	}
	gone, hangUp := context.WithCancel(t.Context())
	for i := 3; i < 6; i++ {
		f.waitAt(gone, t, 1, i, "leaving", back)
	}
	for i := 6; i < 9; i++ { // their broker stops
		f.waitAt(t.Context(), t, 1, i, "leaving", back)
	}
	f.waitAt(t.Context(), t, 2, 9, "leaving", back)
	hangUp()
	eventually(t, 10*time.Second, "the callers that hung up are gone", func() bool { return f.holding(t, 1) == 3 })
	began := time.Now()
	f.brokers[1].Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a broker with held calls took %s to stop", took)
	}
	for range 6 {
		h := <-back
		if want := map[bool]connect.Code{true: connect.CodeCanceled, false: connect.CodeUnavailable}[h.caller < 6]; connect.CodeOf(h.err) != want {
			t.Errorf("caller %d: %v, want %v", h.caller, h.err, want)
		}
	}
	f.brokers[0].Kill()
	for range 3 {
		<-back
	}
	began = time.Now()
	f.free(t, 2, holders[0])
	h := <-back
	if took := time.Since(began); h.err != nil || h.caller != 9 || took > 10*time.Second {
		t.Fatalf("caller %d after %s: %v; want the grant of caller 9 when the places of the dead end, in 3 s", h.caller, took, h.err)
	}
}

// TestHeldCallsDoNotPoll measures what a hundred callers that wait cost Redis.
func TestHeldCallsDoNotPoll(t *testing.T) {
	redis := servers.NewRedis(t)
	f := startFleet(t, redis.URL(), heldPolicy, "--deadline", "2s")
	client := redis.Client(t)
	counts := func() (scripts, commands float64) {
		info := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
		for name, values := range info {
			var calls float64
			fmt.Sscanf(values, "calls=%f", &calls)
			commands += calls
			if name == "cmdstat_evalsha" {
				scripts = calls
			}
		}
		return scripts, commands
	}
	const span = 5 * time.Second
	measure := func() (scripts, commands float64) {
		scripts0, commands0 := counts()
		time.Sleep(span) // what is measured is a rate
		scripts, commands = counts()
		return (scripts - scripts0) / span.Seconds(), (commands - commands0) / span.Seconds()
	}
	holders := f.fill(t, 0, "crowd")
	scripts0, commands0 := measure()
	const callers = 100
	back := make(chan held, callers)
	for i := range callers {
		f.waitAt(t.Context(), t, i%fleetSize, i, "crowd", back)
	}
	scripts, commands := measure()
	t.Logf("three brokers without callers: %.0f scripts and %.0f commands a second, those in scripts included", scripts0, commands0)
	t.Logf("%d callers wait: %.0f scripts and %.0f commands a second", callers, scripts, commands)
	if scripts-scripts0 > 1.5*callers {
		t.Errorf("%d callers that wait cost %.0f scripts a second more, want one each", callers, scripts-scripts0)
	}

	// A slot that comes free costs an ask of each broker, and one of the next of who got it.
	before, _ := counts()
	began := time.Now()
	h := holders[0]
	const turns = 50
	for range turns {
		f.free(t, 0, h)
		if h = <-back; h.err != nil {
			t.Fatal(h.err)
		}
	}
	took := time.Since(began)
	after, _ := counts()
	each := (after - before - scripts*took.Seconds()) / turns
	t.Logf("%d slots came free one after the other in %s: %.1f scripts each beside those of the waiting, the Refund included; %s from a Refund to the next grant", turns, took.Round(time.Millisecond), each, (took / turns).Round(10*time.Microsecond))
	if each > 15 {
		t.Errorf("a slot that comes free costs %.1f scripts", each)
	}
}

// TestClientWaitsForASlot: the Go client waits for a slot beyond its deadline of one
// Reserve, and keeps its place from one to the next.
func TestClientWaitsForASlot(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), heldPolicy)
	holders := f.fill(t, 0, "crowd")
	type outcome struct {
		*budget.Reservation
		err error
	}
	first := make(chan outcome, 1)
	c := f.client(t, 1, budget.WithDeadline(time.Second))
	go func() {
		r, err := c.Reserve(t.Context(), budget.Request{Account: "crowd", MaxWait: time.Minute})
		first <- outcome{r, err}
	}()
	eventually(t, time.Minute, "the client's call is held", func() bool { return f.holding(t, 1) == 1 })
	second := make(chan held, 1)
	f.waitAt(t.Context(), t, 2, 2, "crowd", second)
	time.Sleep(2500 * time.Millisecond) // more than two of its deadlines
	f.free(t, 0, holders[0])
	if o := <-first; o.err != nil || o.ID == "" {
		t.Fatalf("the client: %v, want the slot that came free", o.err)
	}
	select {
	case h := <-second:
		t.Fatalf("who came second got a slot too: %+v", h)
	default:
	}
	f.free(t, 0, holders[1])
	if h := <-second; h.err != nil {
		t.Fatal(h.err)
	}
}
