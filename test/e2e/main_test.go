package e2e

import (
	"os"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	code := servers.Stopping(m).Run()
	broker.Remove()
	os.Exit(code)
}
