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
	data := tb.TempDir()
	Apply(tb, policy, "--data", data)
	key = Key(tb, []string{account}, "--data", data)
	return Start(tb, "--data", data).URL, key, tb.end
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
