package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// TestAPIPageRunsAsPrinted runs the lines of docs/api.md in one shell, against a
// broker on Redis and PostgreSQL: every call of AdminService but
// one and all of BudgetService, as operators make them.
func TestAPIPageRunsAsPrinted(t *testing.T) {
	page := read(t, "docs", "api.md")
	script := "set -eu\n"
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		script += block[1]
	}
	for _, service := range []struct{ name, file string }{{"AdminService", "admin.proto"}, {"BudgetService", "service.proto"}} {
		definition := read(t, "proto", "budget", "v1", service.file)
		for _, rpc := range regexp.MustCompile(`rpc (\w+)\(\w+\) returns \((stream )?`).FindAllStringSubmatch(definition, -1) {
			if call := service.name + "/" + rpc[1]; rpc[2] == "" && !strings.Contains(script, "call "+call+" ") {
				t.Errorf("docs/api.md has no line for %s", call)
			}
		}
	}

	postgres := servers.FreshDatabase(t)
	broker.Apply(t, "plans: {free: {limits: [{name: requests, meter: requests, rate: 10/min}]}}\naccounts: {first: {plan: free}}\n", "--postgres", postgres, "--single-node")
	key := strings.TrimSpace(broker.Run(t, "key", "create", "operator", "--admin", "--json=false", "--postgres", postgres, "--single-node"))
	b := broker.Start(t, append([]string{"--redis", servers.SharedRedis(t).URL(), "--postgres", postgres, "--key-prefix", servers.Prefix(t)}, patient...)...)
	shell := exec.Command("sh", "-c", script)
	shell.Env = append(os.Environ(), "BUDGETD_SERVER="+b.URL, "BUDGETD_KEY="+key)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v; the last line is the answer at fault:\n%s", err, out)
	}
	for _, want := range []string{`"left":"50000000000"`, `"charged":{"cost":"90000000"`, `"givenBack":{"cost":"1000000000"`, `"used":"60000000"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no answer has %s:\n%s", want, out)
		}
	}
}
