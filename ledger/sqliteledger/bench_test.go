package sqliteledger_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// BenchmarkAppend measures durable Appends of closings with three lines each
// over 16 accounts.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("closings=%d", size), func(b *testing.B) {
			l := open(b, fresh(b).path)
			defer l.Close()
			number, outcome := uint64(0), make([]byte, 200)
			for b.Loop() {
				closings := make([]ledger.Closing, size)
				for i := range closings {
					number++
					c := closing(0)
					c.Account, c.Outcome = fmt.Sprintf("account-%02d", number%16), outcome
					c.Labels = map[string]string{"model": "gpt-4o", "route": "chat"}
					binary.BigEndian.PutUint64(c.Reservation[:8], number*50)
					binary.BigEndian.PutUint64(c.Reservation[8:], number*0x9e3779b97f4a7c15)
					c.Lines = append(c.Lines,
						ledger.Line{Period: "m2026-11-01", Meter: quota.MeterCost, Amount: 2_340_000},
						ledger.Line{Period: "m2026-11-01", Meter: quota.MeterTokens, Amount: 1_100})
					closings[i] = c
				}
				if _, err := l.Append(b.Context(), closings); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "closings/s")
		})
	}
}
