package servers_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/budgetd/budgetd/test/servers"
)

// The servers of this package's tests, shared ones included, leave no
// goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }
