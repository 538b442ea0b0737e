package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// TestAuditCommand follows an operator: the books are right, a counter in Redis
// is damaged and repaired, a row in PostgreSQL is damaged and put right as
// docs/operations.md says. Exit codes are what a scheduled job goes by.
func TestAuditCommand(t *testing.T) {
	redis := servers.NewRedis(t)
	f := startFleet(t, redis.URL(), "plans: {pro: {quotas: [{name: spend, meter: tokens, amount: 1000, period: year}]}}\naccounts: {acme: {plan: pro}}\n", append([]string{"--audit-rate", "0"}, patient...)...)
	client := f.client(t, 0)
	r, err := client.Reserve(context.Background(), budget.Request{Account: "acme", Amounts: map[string]int64{"tokens": 100}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Refund(context.Background(), r.ID, budget.Amounts(map[string]int64{"tokens": 40})); err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(f.key), 0o600); err != nil {
		t.Fatal(err)
	}
	audit := func(code int, want string, arguments ...string) {
		t.Helper()
		command := exec.Command(broker.Binary(t), append([]string{"audit", "--server", f.brokers[0].URL, "--key-file", keyFile}, arguments...)...)
		out, _ := command.CombinedOutput()
		if got := command.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Errorf("budgetd audit %s: exit code %d, want %d and %q:\n%s", strings.Join(arguments, " "), got, code, want, out)
		}
	}
	audit(0, "0 gaps, 0 repaired", "--json=false")
	audit(0, `"gaps":"0"`, "--json")

	const damage = `
		local field = redis.call('HKEYS', KEYS[1])
		for _, name in ipairs(field) do
			if string.sub(name, 1, 7) == 'qspend.' then
				local counter = {cmsgpack.unpack(redis.call('HGET', KEYS[1], name))}
				counter[9] = counter[9] + 7 -- held
				redis.call('HSET', KEYS[1], name, cmsgpack.pack(unpack(counter)))
				return 1
			end
		end
		return 0`
	db := redis.Client(t)
	keys, err := db.Keys(context.Background(), "*:a:acme").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys of the account: %v, %v", keys, err)
	}
	if n, err := db.Eval(context.Background(), damage, keys).Int(); err != nil || n != 1 {
		t.Fatalf("damage: %d, %v", n, err)
	}
	audit(1, "the engine counts 7 held and its records add up to 0", "--json=false")
	audit(0, "0 gaps, 1 repaired", "--json=false", "--repair")
	audit(0, "0 gaps, 0 repaired", "--json=false")

	conn, err := pgx.Connect(context.Background(), f.postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(statement string) {
		t.Helper()
		if tag, err := conn.Exec(context.Background(), statement); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %s, %v", statement, tag, err)
		}
	}
	exec(`UPDATE usage SET used = used + 5 WHERE account = 'acme' AND limit_id LIKE 'spend.%'`)
	audit(1, "the usage row says 45 and its entries add up to 40", "--json=false", "--repair")
	page := read(t, "docs", "operations.md")
	_, mending, found := strings.Cut(page, "```sql\n  UPDATE usage")
	mending, _, _ = strings.Cut(mending, "AND period")
	if !found {
		t.Fatal("docs/operations.md does not say how to put a row right")
	}
	exec("UPDATE usage" + mending)
	audit(0, "0 gaps", "--json=false")
}
