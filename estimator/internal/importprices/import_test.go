package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

const genai = `[{"id":"openai","models":[
 {"id":"good","match":{"or":[{"equals":"good"},{"equals":"good-latest"},{"starts_with":"good-2"}]},"prices":{"input_mtok":0.075,"output_mtok":{"base":0.3,"tiers":[{"start":1000,"price":0.6}]}}},
 {"id":"absurd","match":{"equals":"absurd"},"prices":{"input_mtok":1000.5,"output_mtok":1}},
 {"id":"free","match":{"equals":"free"},"prices":{"input_mtok":0,"output_mtok":1}},
 {"id":"fine-grained","match":{"equals":"fine-grained"},"prices":{"input_mtok":0.0000000001,"output_mtok":1}},
 {"id":"negative","match":{"equals":"negative"},"prices":{"input_mtok":-1,"output_mtok":1}},
 {"id":"silent","match":{"equals":"silent"},"prices":{"input_mtok":1}},
 {"id":"unpriced","match":{"equals":"unpriced"},"prices":{}},
 {"id":"speaker","match":{"equals":"speaker"},"prices":{"input_mtok":1,"output_mtok":1,"output_audio_mtok":9}},
 {"id":"loud-audio","match":{"equals":"loud-audio"},"prices":{"input_mtok":1,"output_mtok":1}},
 {"id":"dated","match":{"equals":"dated"},"prices":[{"prices":{"input_mtok":9,"output_mtok":9}},{"constraint":{"start_date":"2026-01-01"},"prices":{"input_mtok":2,"output_mtok":2}},{"constraint":{"start_date":"2027-01-01"},"prices":{"input_mtok":5,"output_mtok":5}}]},
 {"id":"by-hour","match":{"equals":"by-hour"},"prices":[{"prices":{"input_mtok":1,"output_mtok":4}},{"constraint":{"start_time":"00:30:00Z","end_time":"16:30:00Z"},"prices":{"input_mtok":2,"output_mtok":3}}]}
]}]`

const litellm = `{"sample_spec":{"mode":"x","litellm_provider":"one of","max_output_tokens":"words"},
 "good":{"litellm_provider":"openai","mode":"chat","max_output_tokens":50,"max_input_tokens":900,"input_cost_per_token":7.5e-08,"output_cost_per_token":3e-07,
  "input_cost_per_token_batches":3.75e-08,"provider_specific_entry":{"us":1.1,"fast":2.0},"search_context_cost_per_query":{"search_context_size_low":0.01,"search_context_size_high":0.03}},
 "painter":{"litellm_provider":"openai","mode":"image_generation","input_cost_per_image":0.04},
 "hd/1000-x-2000/painter":{"litellm_provider":"openai","mode":"image_generation","input_cost_per_image":0,"input_cost_per_pixel":4e-08},
 "listener":{"litellm_provider":"openai","mode":"audio_transcription","input_cost_per_second":0.0002833333333333333},
 "good-latest":{"litellm_provider":"openai","mode":"chat","max_output_tokens":60,"max_input_tokens":800,"input_cost_per_token":8e-08,"output_cost_per_token":3e-07},
 "good-2-big":{"litellm_provider":"openai","mode":"chat","max_output_tokens":70,"input_cost_per_token":1e-06,"output_cost_per_token":2e-06},
 "dated":{"litellm_provider":"openai","mode":"chat"}}`

func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"genai-prices_v2_data.json": genai, "litellm_model_prices_2026-01-01.json": litellm,
		"models.dev_costs_2026-01-01.json": `{"openai":{"good":{"cost":{"input":0.1,"output":0.3}}}}`, "models.dev_LICENSE": "MIT three",
		"genai-prices_LICENSE": "MIT one", "litellm_LICENSE": "MIT two",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestImport(t *testing.T) {
	in, out := sources(t), t.TempDir()
	if err := run(in, out, "2026-06-01"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, "prices.json"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := catalogue.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]catalogue.Model{}
	for _, m := range file.Providers[0].Models {
		got[m.ID] = m
	}
	good := got["good"]
	price := good.Prices[0]
	if price.Rates["input"] != 75_000_000 || price.Rates["output"] != 300_000_000 || price.Rates["search"] != 30_000_000_000 ||
		len(price.Tiers) != 1 || price.Tiers[0].Above != 1000 || price.Tiers[0].Rates["output"] != 600_000_000 {
		t.Errorf("good: %+v", good)
	}
	if good.MaxOutput != 70 || good.ContextWindow != 900 || good.Mode != "chat" || strings.Join(good.Names, " ") != "good-latest" || len(good.Rules) != 1 || good.Rules[0].StartsWith != "good-2" {
		t.Errorf("good: %+v", good)
	}
	if big := got["good-2-big"]; len(big.Prices) != 1 || big.Prices[0].Rates["input"] != 1_000_000_000 || big.MaxOutput != 70 {
		t.Errorf("a name that only a prefix covers has no entry of its own: %+v", big)
	}
	if services := price.Services; len(services) != 2 || services[0].Name != "batch" || services[0].Rates["input"] != 37_500_000 ||
		services[1].Name != "fast" || services[1].Rates["output"] != 600_000_000 || services[1].Tiers[0].Rates["output"] != 1_200_000_000 {
		t.Errorf("services of good: %+v", services)
	}
	if d := got["dated"]; len(d.Prices) != 3 || d.Prices[1].From != "2026-01-01" || d.Prices[1].Rates["input"] != 2_000_000_000 || d.Prices[2].From != "2027-01-01" {
		t.Errorf("dated: %+v", d)
	}
	if h := got["by-hour"].Prices[0]; h.Rates["input"] != 2_000_000_000 || h.Rates["output"] != 4_000_000_000 || h.Services[0].Name != "off-peak" || h.Services[0].Rates["input"] != 1_000_000_000 {
		t.Errorf("by-hour is not the dearest of each class: %+v", h)
	}
	if s := got["speaker"].Prices[0]; s.Rates["output_audio"] != 9_000_000_000 {
		t.Errorf("speaker: %+v", s)
	}
	// The dearest size of a picture, and a price of a second rounded up.
	if p := got["painter"]; p.Mode != catalogue.ModeMedia || p.Prices[0].Rates["image"] != 80_000_000_000 {
		t.Errorf("painter: %+v", p)
	}
	if l := got["listener"].Prices[0].Rates; len(l) != 1 || l["second"] != 1_020_000_000 {
		t.Errorf("listener: %+v", l)
	}
	if len(got) != 7 {
		t.Errorf("%d entries: %v", len(got), got)
	}
	report, err := os.ReadFile(filepath.Join(out, "REPORT.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| openai | absurd | input_mtok: 1000.5 is negative or absurd",
		"| openai | free | zero input price on a chat model",
		"| openai | fine-grained | input_mtok: 0.0000000001 is no whole number of nano-USD",
		"| openai | negative | input_mtok: -1 is negative",
		"| openai | silent | ", "| openai | unpriced | no prices", "| openai | loud-audio | bills more than text", "| openai | good | $0.075 / $0.3 | $0.1 / $0.3 |",
		"| openai | dated | another price is announced from 2027-01-01",
		"| openai | good-latest | $0.075 / $0.3 | $0.08 / $0.3 | genai-prices |",
		"| openai | good-2-big | $0.075 / $0.3 | $1 / $2 | litellm (genai-prices has the name by a prefix only) |",
	} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	if notice, err := os.ReadFile(filepath.Join(out, "LICENSE-litellm")); err != nil || string(notice) != "MIT two" {
		t.Errorf("%q, %v", notice, err)
	}

	again := t.TempDir()
	if err := run(in, again, "2026-06-01"); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(filepath.Join(again, "prices.json")); err != nil || !bytes.Equal(data, second) {
		t.Errorf("a second import differs (%v)", err)
	}
}

func TestImportRefuses(t *testing.T) {
	if err := run(sources(t), t.TempDir(), "June"); err == nil {
		t.Error("a date of June was taken")
	}
	if err := run(t.TempDir(), t.TempDir(), "2026-06-01"); err == nil {
		t.Error("no sources were taken")
	}
}

func TestDecisionsNameKnownSellers(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sellers {
		known[s.id] = true
	}
	for _, d := range decisions {
		if !known[d.provider] || d.reason == "" {
			t.Errorf("decision %+v", d)
		}
	}
}

func TestNanoIsExact(t *testing.T) {
	for text, want := range map[string]int64{"3": 3_000_000_000, "0.075": 75_000_000, "0.0028": 2_800_000, "1000": 1_000_000_000_000} {
		if got, err := nano(json.Number(text), 1); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := nano("7.5e-08", 1_000_000); err != nil || got != 75_000_000 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestNewImporterRefusesOtherFiles(t *testing.T) {
	for _, tt := range [][3]string{{"{}", "{}", "{}"}, {"[]", "[]", "{}"}, {"[]", "{}", "[]"}} {
		if _, err := newImporter([]byte(tt[0]), []byte(tt[1]), []byte(tt[2]), time.Time{}); err == nil {
			t.Errorf("%v was taken", tt)
		}
	}
}
