package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// withKey sends a key along.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func (f *fleet) admin(n int) budgetv1connect.AdminServiceClient {
	return budgetv1connect.NewAdminServiceClient(&http.Client{Transport: withKey(f.key)}, f.brokers[n%len(f.brokers)].URL)
}

// A pin that is set through one broker counts on all of them within seconds and
// without a restart, a file that is applied on top of it does not undo it, a broker
// that starts later knows it, and its release brings the file's mode, with the
// counters as they stood.
func TestPinsOnAFleet(t *testing.T) {
	const policy = "plans: {pro: {limits: [{name: tokens, meter: tokens, rate: 1/day, burst: %d}]}}\naccounts: {acme: {plan: pro}}\n"
	f := startFleet(t, servers.SharedRedis(t).URL(), fmt.Sprintf(policy, 1000), patient...)
	ctx := context.Background()
	reserve := func(n int, tokens int) error {
		_, err := f.client(t, n).Service().Reserve(ctx, connect.NewRequest(&budgetv1.ReserveRequest{
			Account: "acme", Amounts: map[string]int64{"tokens": int64(tokens)}, Lease: durationpb.New(time.Hour),
		}))
		return err
	}
	everywhere := func(what string, mode budgetv1.LimitMode, of int64) {
		t.Helper()
		for n := range f.brokers {
			var limit *budgetv1.LimitStatus
			eventually(t, 10*time.Second, fmt.Sprintf("%s: broker %d has %s and 400 left of %d", what, n, mode, of), func() bool {
				limit = limitOf(t, overview(t, f.client(t, n), "acme"), "tokens")
				return limit.Mode == mode && limit.LimitAmount == of && limit.Remaining == 400
			})
			if err := reserve(n, 5000); (err == nil) != (mode != budgetv1.LimitMode_LIMIT_MODE_ENFORCE) {
				t.Errorf("%s: broker %d answers %v", what, n, err)
			}
		}
	}
	if err := reserve(0, 600); err != nil {
		t.Fatal(err)
	}
	everywhere("at first", budgetv1.LimitMode_LIMIT_MODE_ENFORCE, 1000)
	_, err := f.admin(0).SwitchLimits(ctx, connect.NewRequest(&budgetv1.SwitchLimitsRequest{
		All: true, Mode: budgetv1.LimitMode_LIMIT_MODE_OFF, Pin: true, PinFor: durationpb.New(time.Hour), Reason: "INC-42",
	}))
	if err != nil {
		t.Fatal(err)
	}
	everywhere("pinned", budgetv1.LimitMode_LIMIT_MODE_OFF, 1000)

	// CI applies a file, straight to the database.
	broker.Apply(t, fmt.Sprintf(policy, 2000), "--postgres", f.postgres, "--single-node")
	f.add(t, patient...)
	everywhere("applied", budgetv1.LimitMode_LIMIT_MODE_OFF, 2000)
	pins, err := f.admin(fleetSize).ListPins(ctx, connect.NewRequest(&budgetv1.ListPinsRequest{}))
	if err != nil || len(pins.Msg.Pins) != 1 || pins.Msg.Pins[0].Reason != "INC-42" || pins.Msg.Pins[0].PinnedBy != "e2e" || pins.Msg.Pins[0].Idle {
		t.Errorf("the broker that started later: %v, %v", pins, err)
	}
	if log := f.brokers[1].Log(); !strings.Contains(log, "limits are pinned") || !strings.Contains(log, "INC-42") {
		t.Errorf("the log of another broker says nothing:\n%s", log)
	}

	if _, err := f.admin(2).UnpinLimits(ctx, connect.NewRequest(&budgetv1.UnpinLimitsRequest{All: true})); err != nil {
		t.Fatal(err)
	}
	everywhere("released", budgetv1.LimitMode_LIMIT_MODE_ENFORCE, 2000)
	if err := reserve(1, 400); err != nil {
		t.Errorf("what was left: %v", err)
	}
}
