package broker

import (
	"log"
	"os"
	"slices"
	"testing"
)

// ForExample starts a broker with a policy, for an example, which has no
// testing.TB. It returns where the broker is, a key of the policy's account, and
// what ends it all.
func ForExample(policy, account string) (url, key string, stop func()) {
	tb := &exampleTB{}
	b, key := StartWith(tb, policy, []string{account})
	return b.URL, key, tb.end
}

// exampleTB is the testing.TB of an example: what fails ends the process.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                      {}
func (*exampleTB) Failed() bool                 { return false }
func (*exampleTB) Fatal(args ...any)            { log.Fatal(args...) }
func (*exampleTB) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }
func (tb *exampleTB) Cleanup(f func())          { tb.cleanups = append(tb.cleanups, f) }

func (tb *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "budgetd-example-*")
	if err != nil {
		log.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (tb *exampleTB) end() {
	for _, cleanup := range slices.Backward(tb.cleanups) {
		cleanup()
	}
}
