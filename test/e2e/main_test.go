package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { broker.Main(servers.Stopping(m)) }

// read returns a file of the repository.
func read(tb testing.TB, path ...string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...)) // tests run in their package's directory
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
