package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation/holdlab"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// TestForecastReachesTheOracle: within a tolerance a forecast lets through what
// knowing the output would, and never more than the tolerance above C + r*T. On
// the published traces each row is the one of docs/holds.md.
func TestForecastReachesTheOracle(t *testing.T) {
	written, err := os.ReadFile(filepath.Join("..", "..", "docs", "holds.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"code", "conv"} {
		calls, from, err := Trace(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []holdlab.Setup{
			{Way: holdlab.Learned, MaxTokens: 1024, Bucket: 60, Tolerance: 0.5},
			{Way: holdlab.Learned, MaxTokens: 4096, Bucket: 60, Tolerance: 0.5},
			{Way: holdlab.Learned, MaxTokens: 1024, Bucket: 10, Tolerance: 1},
		} {
			learned := run(t, calls, s)
			oracle := run(t, calls, holdlab.Setup{Way: holdlab.Oracle, MaxTokens: s.MaxTokens, Bucket: s.Bucket})
			line := row(name+", "+from, s, learned, oracle)
			t.Log(line)
			// Rates are whole tokens an hour and levels whole tokens: both round a little.
			if learned.Excess > s.Tolerance+1e-4 || learned.Debt > quota.Amount(s.Tolerance*float64(learned.Bucket)) {
				t.Errorf("the worst span passed by %.4f buckets, the debt was %d of %d", learned.Excess, learned.Debt, learned.Bucket)
			}
			if learned.Forecast == 0 || learned.Overruns == 0 {
				t.Errorf("%d forecasts and %d overruns: nothing was tried", learned.Forecast, learned.Overruns)
			}
			if share := learned.TokenShare(oracle); share < 0.999 {
				t.Errorf("%.4f of the oracle's tokens", share)
			}
			if share := learned.RequestShare(oracle); share < 0.99 {
				t.Errorf("%.4f of the oracle's requests", share)
			}
			if from == "published" && !strings.Contains(string(written), line) {
				t.Errorf("docs/holds.md has another row; make lab-holds prints the table")
			}
		}
	}
}

// TestLabSeesWhatIsOver: the measure of a span finds the way of holding that is
// known to pass the bound, and the one that is known to waste it.
func TestLabSeesWhatIsOver(t *testing.T) {
	calls, _, err := Trace("code")
	if err != nil {
		t.Fatal(err)
	}
	s := holdlab.Setup{MaxTokens: 4096, Bucket: 10}
	results := map[holdlab.Way]holdlab.Result{}
	for _, way := range []holdlab.Way{holdlab.Oracle, holdlab.Worst, holdlab.Maximum, holdlab.After} {
		s.Way = way
		results[way] = run(t, calls, s)
	}
	for _, way := range []holdlab.Way{holdlab.Oracle, holdlab.Worst, holdlab.Maximum} {
		if r := results[way]; r.Excess > 1e-4 || r.Debt > 0 || r.Overruns > 0 {
			t.Errorf("%s: %+v", way, r)
		}
	}
	if r := results[holdlab.After]; r.Excess < 0.5 || r.Debt == 0 {
		t.Errorf("charging after the call passed by %.3f buckets", r.Excess)
	}
	if worst, most := results[holdlab.Worst].TokenShare(results[holdlab.Oracle]), results[holdlab.Maximum].TokenShare(results[holdlab.Oracle]); most > worst/2 || worst > 0.99 {
		t.Errorf("the worst case lets %.3f through, the maximum at arrival %.3f", worst, most)
	}
}

// TestRedisDecidesAlike: the replay comes to the same on Redis, call by call, and
// leaves no key.
func TestRedisDecidesAlike(t *testing.T) {
	calls, _, err := Trace("code")
	if err != nil {
		t.Fatal(err)
	}
	server := servers.NewRedis(t)
	onRedis, err := OnRedis(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []holdlab.Setup{
		{Way: holdlab.Learned, MaxTokens: 1024, Bucket: 10, Tolerance: 0.5},
		{Way: holdlab.Worst, MaxTokens: 1024, Bucket: 10},
	} {
		want := run(t, calls[:1500], s)
		s.Engine = onRedis
		if got := run(t, calls[:1500], s); got != want {
			t.Errorf("%s: on Redis %+v, in memory %+v", s.Way, got, want)
		}
		if want.Requests == 1500 || s.Way == holdlab.Learned && want.Forecast == 0 {
			t.Errorf("%s: nothing was tried: %+v", s.Way, want)
		}
	}
	if keys, err := server.Client(t).Keys(t.Context(), "budgetd-lab-*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left are %q, %v", keys, err)
	}
}

func run(t *testing.T, calls []holdlab.Call, s holdlab.Setup) holdlab.Result {
	t.Helper()
	r, err := holdlab.Run(calls, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
