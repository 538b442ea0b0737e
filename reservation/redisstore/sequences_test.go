package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/reservation/storetest"
	"github.com/budgetd/budgetd/test/servers"
)

// TestSequences plays the property suite on one Redis. Each worker has a database
// of its own there.
func TestSequences(t *testing.T) {
	const workers = 4
	server := servers.NewRedis(t)
	database := 0
	storetest.RunSequences(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
		url := fmt.Sprintf("%s/%d", strings.TrimSuffix(server.URL(), "/0"), database)
		database++
		s := open(tb, patient(tb, url), Config{Clock: clock.Now})
		return storetest.Engine{
			Store: s,
			LoseData: func() {
				if err := s.client.FlushDB(tb.Context()).Err(); err != nil {
					tb.Errorf("flush the database: %v", err)
				}
			},
		}
	}, storetest.Sequences{Count: sequences, Workers: workers, LookEvery: 3})
}
