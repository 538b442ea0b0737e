package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
)

// asker is an account that asks for 10 units so many times a second.
type asker struct{ asks, from, to float64 }

// playAskers plays askers for a minute on a limit of 1,000 a second, and returns Jain's index of
// what each was admitted of its max-min share, the burst at the beginning included, and what all were admitted.
func playAskers(t *testing.T, askers []asker, fair bool) (jain float64, all int) {
	t.Helper()
	clock := storetest.NewClock()
	s, err := New(Config{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	got, asked := make([]float64, len(askers)), make([]float64, len(askers))
	const tick, seconds = 1000, 60
	for step := range seconds * tick {
		now := float64(step) / tick
		for _, i := range random.Perm(len(askers)) {
			a := askers[i]
			if now < a.from || now >= a.to || random.Float64() >= a.asks/tick {
				continue
			}
			asked[i] += 10
			answer, err := s.Reserve(context.Background(), reservation.ReserveRequest{
				Account: fmt.Sprint("account-", i), ID: reservation.NewID(clock.Now()), Retention: time.Second,
				Settle: &reservation.Settlement{},
				Holds: []reservation.Hold{{
					Counter: reservation.Counter{Pool: "org", Limit: "tokens"}, Kind: quota.KindBucket, Amount: 10, Fair: fair,
					Bucket: quota.Bucket{Capacity: 1000, Refill: 1, PerMicros: 1000}, OnExpiry: quota.ExpiryGiveBack,
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if answer.Verdict == reservation.Granted {
				got[i] += 10
				all += 10
			}
		}
		clock.Add(time.Second / tick)
	}
	// Each asker asks for a fifth of what is there or more.
	var sum, squares float64
	for i := range got {
		part := got[i] / min(asked[i], (askers[i].to-askers[i].from)*1000/5)
		sum += part
		squares += part * part
	}
	return sum * sum / (float64(len(got)) * squares), all
}

// A fair limit gives each account its share whoever asks most often, and no less in all.
func TestFairness(t *testing.T) {
	for name, askers := range map[string][]asker{
		"a batch account and four steady ones": {{900, 0, 60}, {20, 0, 60}, {20, 0, 60}, {20, 0, 60}, {20, 0, 60}},
		"five that ask as often as they can":   {{900, 0, 60}, {300, 0, 60}, {100, 0, 60}, {600, 0, 60}, {50, 0, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			fair, inAll := playAskers(t, askers, true)
			unfair, without := playAskers(t, askers, false)
			t.Logf("Jain's index %.3f, without %.3f; admitted %d, without %d", fair, unfair, inAll, without)
			if fair < 0.95 || unfair > 0.7 || float64(inAll) < 0.95*float64(without) {
				t.Errorf("Jain's index %.3f, without %.3f; admitted %d, without %d", fair, unfair, inAll, without)
			}
		})
	}
}
