package memstore

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// TestAuditIsBounded: beyond its bound an audit shows the counters, and neither
// adds up nor repairs.
func TestAuditIsBounded(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	h := reservation.Hold{
		Counter: reservation.Counter{Limit: "spend"}, Kind: quota.KindQuota, Amount: 2, Max: 1,
		Period: quota.Account{TimeZone: "UTC"}.PeriodAt(quota.PeriodYear, now), OnExpiry: quota.ExpiryGiveBack,
	}
	request := reservation.AuditRequest{Account: "acme", Counters: []reservation.AuditCounter{{Counter: h.Counter, Period: h.Period}}, Repair: true}
	for i := range reservation.MaxAuditRecords + 1 {
		verdict, err := s.Restore(t.Context(), reservation.RestoreRequest{
			Account: "acme", ID: reservation.NewID(now), Holds: []reservation.Hold{h}, ExpiresAt: now.Add(time.Hour),
		})
		if err != nil || verdict != reservation.Restored {
			t.Fatalf("Restore: verdict %d, error %v", verdict, err)
		}
		if i < reservation.MaxAuditRecords-1 {
			continue
		}
		s.lookup(s.accounts["acme"], &h).held++ // a fault
		answer, err := s.Audit(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		row := answer.Counters[0]
		sum := quota.Amount(2 * (i + 1))
		tooMany := i == reservation.MaxAuditRecords
		if tooMany {
			sum = 0
		}
		if answer.Records != i+1 || answer.TooMany != tooMany || row.Held != quota.Amount(2*(i+1)+1) || row.HeldSum != sum || row.Repaired == tooMany {
			t.Errorf("%d records: %+v", i+1, answer)
		}
	}
}
