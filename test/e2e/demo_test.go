package e2e

import (
	"context"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/test/broker"
)

// TestDemoWorkedExample follows the worked example by curl's means on the demo
// broker: 10,000 tokens refilling at 10,000 a minute.
func TestDemoWorkedExample(t *testing.T) {
	b := broker.Start(t, "--demo", "--data", t.TempDir())
	start := time.Now()
	// What refilled since the start, at most: the broker's clock goes on.
	refilled := func() float64 { return time.Since(start).Seconds() * 10_000 / 60 }

	status, header, first := post(t, b.URL, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":4000},"lease":"60s"}`)
	if status != http.StatusOK {
		t.Fatalf("Reserve 4,000: %d %v", status, first)
	}
	hold := first["holds"].([]any)[0].(map[string]any)
	if hold["limit"] != "tokens" || hold["meter"] != "tokens" || hold["amount"] != "4000" || hold["remaining"] != "6000" {
		t.Errorf("hold %v, want 4,000 of tokens with 6,000 left", hold)
	}
	if got := header.Get("RateLimit"); !strings.HasPrefix(got, `"tokens";r=6000;`) {
		t.Errorf("RateLimit: %s", got)
	}

	status, header, refusal := post(t, b.URL, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":7000}}`)
	if status != http.StatusTooManyRequests || refusal["code"] != "resource_exhausted" {
		t.Fatalf("Reserve 7,000: %d %v", status, refusal)
	}
	wait, err := strconv.Atoi(header.Get("Retry-After"))
	if low := int(math.Ceil(6 - refilled()*60/10_000)); err != nil || wait < low || wait > 6 {
		t.Errorf("Retry-After %q, want %d to 6", header.Get("Retry-After"), low)
	}
	if header.Get("Budget-Limited-By") != "tokens" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers of a refusal: %v", header)
	}

	status, _, receipt := post(t, b.URL, "demo", "Refund", `{"reservationId":"`+first["reservationId"].(string)+`","usage":{"amounts":{"tokens":1600}}}`)
	if status != http.StatusOK || receipt["charged"].(map[string]any)["tokens"] != "1600" || receipt["givenBack"].(map[string]any)["tokens"] != "2400" {
		t.Fatalf("Refund: %d %v", status, receipt)
	}
	left, err := strconv.ParseFloat(receipt["holds"].([]any)[0].(map[string]any)["remaining"].(string), 64)
	if err != nil || left < 8400 || left > 8400+refilled() {
		t.Errorf("%v left after the Refund, want 8,400 and at most %v that refilled", left, refilled())
	}
	if status, _, answer := post(t, b.URL, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":7000}}`); status != http.StatusOK {
		t.Errorf("Reserve 7,000 after the Refund: %d %v", status, answer)
	}
}

// TestReadmeCommands runs the commands of the README's first screen as they
// are printed, against the demo broker.
func TestReadmeCommands(t *testing.T) {
	calls := regexp.MustCompile(`(?s)curl -s localhost:8080/budget\.v1\.BudgetService/(\w+).*?-d '(.*?)'`).FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(calls) < 2 || calls[0][1] != "Reserve" || calls[1][1] != "Refund" {
		t.Fatalf("the README has no curl of Reserve followed by one of Refund: %q", calls)
	}
	b := broker.Start(t, "--demo", "--data", t.TempDir())
	status, _, first := post(t, b.URL, "demo", "Reserve", calls[0][2])
	if status != http.StatusOK {
		t.Fatalf("Reserve as printed: %d %v", status, first)
	}
	body := regexp.MustCompile(`"reservationId":"[^"]*"`).ReplaceAllString(calls[1][2], `"reservationId":"`+first["reservationId"].(string)+`"`)
	if status, _, answer := post(t, b.URL, "demo", "Refund", body); status != http.StatusOK {
		t.Errorf("Refund as printed: %d %v", status, answer)
	}
}

// TestReadmeTeam runs the README's lines for a team, and those for who looks after
// the books, in one shell as they are printed, with the plans of docs/policy.md.
func TestReadmeTeam(t *testing.T) {
	nextYear := time.Now().AddDate(1, 0, 0).Format(time.DateOnly)
	dated := strings.NewReplacer("2027-03-01", nextYear, "127.0.0.1:8080", "$BUDGETD_LISTEN")
	plans := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "docs", "policy.md"))
	readme := read(t, "README.md")
	var lines string
	for _, heading := range []string{"For a team", "Who spent what"} {
		_, section, _ := strings.Cut(readme, "\n## "+heading+"\n")
		lines += regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(section)[1]
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plans.yaml"), []byte(dated.Replace(plans[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	address := broker.FreeAddress(t)
	// The broker goes when the shell does.
	shell := exec.Command("sh", "-euc", "trap 'kill $!; wait' EXIT\n"+dated.Replace(lines)+"BUDGETD_KEY=$(cat data/admin-key) budgetd audit\n")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "BUDGETD_LISTEN="+address, "BUDGETD_SERVER=http://"+address,
		"PATH="+filepath.Dir(broker.Binary(t))+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{`"amount":"4000"`, `"gaps":"0"`, `"name":"top-up"`, `"done":true`, `"reservations":[{`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s was not printed:\n%s", want, out)
		}
	}
}

// TestEmbeddedKeepsWhatItAcknowledged kills the single broker after Refunds and
// starts another on its data.
func TestEmbeddedKeepsWhatItAcknowledged(t *testing.T) {
	data := t.TempDir()
	b := broker.Start(t, "--demo", "--data", data)
	c := newClient(t, b.URL, "demo")
	request := budget.Request{Account: "demo", Amounts: map[string]int64{"tokens": 100, "cost": 1_000_000_000}}
	const calls = 20
	for range calls {
		r, err := c.Reserve(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Refund(context.Background(), r.ID, budget.Amounts(map[string]int64{"tokens": 10, "cost": 500_000_000})); err != nil {
			t.Fatal(err)
		}
	}
	open, err := c.Reserve(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	b.Kill()

	b = broker.Start(t, "--demo", "--data", data)
	c = newClient(t, b.URL, "demo")
	view := overview(t, c, "demo")
	if got := view.Totals["tokens"]; got != calls*10 {
		t.Errorf("the ledger holds %d tokens after kill -9, want %d", got, calls*10)
	}
	if spend := limitOf(t, view, "spend"); spend.Used != calls*500_000_000 {
		t.Errorf("the quota shows %d used after kill -9, want %d", spend.Used, calls*500_000_000)
	}
	// What was open is forgotten by the engine, and its Refund counts once.
	for range 2 {
		if _, err := c.Refund(context.Background(), open.ID, budget.Amounts(map[string]int64{"tokens": 7, "cost": 1})); err != nil {
			t.Fatal(err)
		}
	}
	if got := overview(t, c, "demo").Totals["tokens"]; got != calls*10+7 {
		t.Errorf("the ledger holds %d tokens after the Refund, want %d", got, calls*10+7)
	}
	b.Stop()
}
