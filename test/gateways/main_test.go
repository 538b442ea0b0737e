// Package gateways asks a real broker by the means of others: Envoy's messages
// over Google's gRPC, grpcurl, and nginx.
package gateways

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	broker.Remove()
	if tools.dir != "" {
		os.RemoveAll(tools.dir)
	}
	os.Exit(code)
}

// repository is the path of a file of the repository.
func repository(path ...string) string {
	return filepath.Join(append([]string{"..", ".."}, path...)...) // tests run in their package's directory
}

var tools struct {
	once sync.Once
	dir  string
	err  error
	text []byte
}

// grpcurl builds grpcurl from tools/go.mod and returns its path.
func grpcurl(tb testing.TB) string {
	tb.Helper()
	tools.once.Do(func() {
		if tools.dir, tools.err = os.MkdirTemp("", "budgetd-grpcurl-*"); tools.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", filepath.Join(tools.dir, "grpcurl"), "github.com/fullstorydev/grpcurl/cmd/grpcurl")
		build.Dir = repository("tools")
		tools.text, tools.err = build.CombinedOutput()
	})
	if tools.err != nil {
		tb.Fatalf("build grpcurl: %v\n%s", tools.err, tools.text)
	}
	return filepath.Join(tools.dir, "grpcurl")
}
