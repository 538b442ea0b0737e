package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	code := servers.Stopping(m).Run()
	broker.Remove()
	os.Exit(code)
}

// read returns a file of the repository.
func read(tb testing.TB, path ...string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...)) // tests run in their package's directory
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
