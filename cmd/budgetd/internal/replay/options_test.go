package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

func goodOptions() Options {
	return Options{Speed: 60, Concurrency: 64, MaxTokens: 4096, Lease: 10 * time.Second, Workers: 4}
}

func TestOptionsAreBounded(t *testing.T) {
	good := goodOptions()
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		option string
		change func(*Options)
	}{
		{"speed", func(o *Options) { o.Speed = 0 }},
		{"speed", func(o *Options) { o.Speed = MaxSpeed + 1 }},
		{"concurrency", func(o *Options) { o.Concurrency = 0 }},
		{"max-tokens", func(o *Options) { o.MaxTokens = 0 }},
		{"max-tokens", func(o *Options) { o.MaxTokens = trace.MaxRequestTokens + 1 }},
		{"workers", func(o *Options) { o.Workers = 0 }},
		{"kill", func(o *Options) { o.Kill = million + 1 }},
		{"slots", func(o *Options) { o.Slots = -1 }},
		{"requests", func(o *Options) { o.Requests = -1 }},
		{"lease", func(o *Options) { o.Lease = time.Millisecond }},
		{"lease", func(o *Options) { o.Lease = 25 * time.Hour }},
		{"max-wait", func(o *Options) { o.MaxWait = -time.Second }},
		{"max-wait", func(o *Options) { o.MaxWait = 2 * time.Hour }},
		{"redis", func(o *Options) { o.Redis = "redis://localhost" }},
		{"limit", func(o *Options) { o.Server, o.Limit = "http://localhost", &quota.Rate{} }},
		{"slots", func(o *Options) { o.Server, o.Slots = "http://localhost", 1 }},
		{"postgres", func(o *Options) { o.Server, o.Postgres = "http://localhost", "postgres://localhost" }},
	} {
		o := goodOptions()
		c.change(&o)
		err := o.validate()
		var option *OptionError
		if !errors.As(err, &option) || option.Option != c.option {
			t.Errorf("%+v: %v; want an error of --%s", o, err, c.option)
		}
	}
}

// The policy of a run's own broker is one that brokers take, and no month of
// its account ends soon after the start.
func TestBrokerPolicy(t *testing.T) {
	bucket := quota.Limit{Name: "tokens", Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 600_000_000, Every: time.Minute}, Burst: 10_000_000}
	for day := time.Date(2024, 1, 1, 23, 59, 0, 0, time.UTC); day.Year() == 2024; day = day.AddDate(0, 0, 1) {
		c := BrokerConfig{Run: "0123456789", Bucket: &bucket, Slots: 64, Now: day}
		text, err := policyfile.Marshal(c.policy())
		if err != nil {
			t.Fatal(err)
		}
		document, err := policyfile.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		policy, err := document.Policy(1)
		if err != nil {
			t.Fatal(err)
		}
		limits, err := policy.Limits(c.account())
		if err != nil || len(limits) != 4 || limits[1].Limit.Max != 64 {
			t.Fatalf("limits %v, %v; want a bucket, 64 slots and two quotas", limits, err)
		}
		period := policy.Accounts[c.account()].PeriodAt(quota.PeriodMonth, day)
		if left := period.End.Sub(day); left < 10*24*time.Hour {
			t.Errorf("a month ends %v after a start on %v", left, day)
		}
	}
}

func TestKeysAreKeys(t *testing.T) {
	d := &driver{options: Options{Run: "r", Seed: 1<<64 - 1}, names: []string{plainName("/x/" + strings.Repeat("ü ", 200) + ".csv")}}
	key := d.key(trace.Request{Line: 1<<63 - 1})
	if len(key) > 256 {
		t.Errorf("a key of %d bytes; brokers take 256", len(key))
	}
	for _, c := range []byte(key) {
		if c < 0x20 || c > 0x7e {
			t.Errorf("key %q is not printable ASCII", key)
		}
	}
}

// A broker's log is searched for its address, whatever else is in it.
func TestBrokerLog(t *testing.T) {
	l := &brokerLog{serving: make(chan string, 1)}
	l.read(strings.NewReader("budgetd: trouble\n\n" +
		`{"msg":"serving","url":"http://127.0.0.1:1"}` + "\n" + strings.Repeat("x", 200_000) + "\nlast"))
	if got := <-l.serving; got != "http://127.0.0.1:1" {
		t.Errorf("serving %q", got)
	}
	if tail := l.tail(); !strings.HasPrefix(tail, "budgetd: trouble") || !strings.HasSuffix(tail, "last") {
		t.Errorf("kept %.100q", tail)
	}
}
