package estimator

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

var rewriteUses = flag.Bool("rewrite-uses", false, "draw the uses of catalogue/testdata anew, and list again where genai-prices differs")

const usesDir = "catalogue/testdata"

// pricedUse is one call of catalogue/testdata/uses.json.
type pricedUse struct {
	Provider string           `json:"provider"`
	Model    string           `json:"model"`
	At       time.Time        `json:"at"`
	Tokens   map[string]int64 `json:"tokens,omitempty"`
	Units    map[string]int64 `json:"units,omitempty"` // "second" in milliseconds
	Tier     string           `json:"tier,omitempty"`
	Speed    string           `json:"speed,omitempty"`
}

func (u pricedUse) use() Use {
	var tokens [numberOfClasses]quota.Tokens
	for i, name := range classNames {
		tokens[i] = quota.Tokens(u.Tokens[name])
	}
	var units [numberOfUnits]int64
	for i, name := range unitNames {
		units[i] = u.Units[name]
	}
	return Use{Tokens: TokenClassesOf(tokens), Units: UnitsOf(units), Tier: u.Tier, Speed: u.Speed}
}

func embeddedFile(t *testing.T) catalogue.File {
	t.Helper()
	file, err := catalogue.Decode(catalogue.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func readUses(t *testing.T) []pricedUse {
	t.Helper()
	path := filepath.Join(usesDir, "uses.json")
	if *rewriteUses {
		var b strings.Builder
		b.WriteString("[")
		for i, use := range drawUses(embeddedFile(t)) {
			line, err := json.Marshal(use)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s\n %s", map[bool]string{true: ","}[i > 0], line)
		}
		b.WriteString("\n]\n")
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var uses []pricedUse
	readJSON(t, path, &uses)
	return uses
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drawUses makes 200 uses: of every provider with every one of its services and
// on both sides of a tier's bound, then of the models that price what few do,
// then of any.
func drawUses(file catalogue.File) []pricedUse {
	const wanted = 200
	random := rand.New(rand.NewPCG(4, 200))
	var uses []pricedUse
	add := func(p catalogue.Provider, m catalogue.Model, price catalogue.Price, service string, above int64) {
		at, _ := time.Parse(time.DateOnly, file.AsOf)
		if price.From == "" && len(m.Prices) > 1 {
			at, _ = time.Parse(time.DateOnly, m.Prices[1].From)
			at = at.Add(-time.Second)
		} else if price.From != "" {
			at, _ = time.Parse(time.DateOnly, price.From)
		}
		use := pricedUse{Provider: p.ID, Model: m.ID, At: at.UTC(), Tokens: map[string]int64{}, Units: map[string]int64{}, Tier: service}
		if service == "fast" {
			use.Tier, use.Speed = "", service
		}
		if _, tokens := price.Rates["input"]; tokens {
			for _, class := range classNames {
				_, stated := price.Rates[class]
				if (stated && random.IntN(10) < 8) || random.IntN(10) == 0 {
					use.Tokens[class] = 1 + random.Int64N(9_999)
				}
			}
			use.Tokens["input"] = above + 1 + random.Int64N(9_999)
		}
		for _, unit := range unitNames {
			if _, stated := price.Rates[unit]; stated && (len(use.Tokens) == 0 || random.IntN(2) == 0) {
				use.Units[unit] = 1 + random.Int64N(29)
				if unit == "second" {
					use.Units[unit] = 1 + random.Int64N(600_000)
				}
			}
		}
		uses = append(uses, use)
	}
	seen := map[string]bool{}
	rare := func(price catalogue.Price) string {
		var names []string
		for name := range price.Rates {
			if name != "input" && name != "output" && name != "cache_read" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, "+")
	}
	for _, p := range file.Providers {
		for _, m := range p.Models {
			for _, price := range m.Prices {
				for _, service := range append([]catalogue.Service{{}}, price.Services...) {
					bounds := []int64{0}
					for _, tier := range price.Tiers {
						bounds = append(bounds, tier.Above)
					}
					for i, above := range bounds {
						for _, kind := range []string{fmt.Sprint(p.ID, "/", service.Name, "/", i), fmt.Sprint("rare ", rare(price), service.Name)} {
							if !seen[kind] && len(uses) < wanted {
								seen[kind] = true
								add(p, m, price, service.Name, above)
								break
							}
						}
					}
				}
			}
		}
	}
	for len(uses) < wanted {
		p := file.Providers[random.IntN(len(file.Providers))]
		m := p.Models[random.IntN(len(p.Models))]
		add(p, m, m.Prices[0], "", 0)
	}
	return uses
}

// exactPrice is the price of one class or unit of a use by the words of the
// catalogue's documentation, worked out from its data: what [Rates], [Tier] and
// [Service] say, by another way than the code's.
type exactPrice struct {
	file     catalogue.File
	provider catalogue.Provider
	price    catalogue.Price
	service  *catalogue.Service
	input    int64
}

func exactPriceOf(t *testing.T, file catalogue.File, u pricedUse) exactPrice {
	t.Helper()
	e := exactPrice{file: file}
	for _, class := range classNames[:numberOfInputs] {
		e.input += u.Tokens[class]
	}
	for _, e.provider = range file.Providers {
		if e.provider.ID != u.Provider {
			continue
		}
		for _, m := range e.provider.Models {
			if m.ID != u.Model {
				continue
			}
			for _, price := range m.Prices {
				if price.From <= u.At.Format(time.DateOnly) {
					e.price = price
				}
			}
			for i := range e.price.Services {
				if name := e.price.Services[i].Name; name == u.Tier || name == u.Speed {
					e.service = &e.price.Services[i]
				}
			}
			return e
		}
	}
	t.Fatalf("%s/%s is not in the catalogue", u.Provider, u.Model)
	return e
}

// standIns are what stands in for a class without a price, the dearest of them.
var standIns = map[string][]string{
	"input_audio": {"input"}, "input_image": {"input"}, "input_video": {"input_audio", "input_image"},
	"cache_read": {"input"}, "cache_read_audio": {"input_audio"}, "cache_read_image": {"input_image"},
	"cache_write": {"input"}, "cache_write_1h": {"cache_write", "input"},
	"output": {"input"}, "output_audio": {"output"}, "output_image": {"output"},
	"output_video": {"output", "output_audio", "output_image"}, "reasoning": {"output"},
}

// of is the price below the first bound, or of the dearest step that the input
// is above.
func (e exactPrice) of(name string) *big.Int {
	layers := []catalogue.Rates{e.price.Rates}
	if e.service != nil {
		layers = append(layers, e.service.Rates)
	}
	dearest := e.completed(name, layers)
	var bounds []int64
	for _, tier := range e.price.Tiers {
		bounds = append(bounds, tier.Above)
	}
	if e.service != nil {
		for _, tier := range e.service.Tiers {
			bounds = append(bounds, tier.Above)
		}
	}
	for _, bound := range bounds {
		if e.input <= bound {
			continue
		}
		above := slices.Clone(layers)
		for _, tier := range e.price.Tiers {
			if tier.Above <= bound {
				above = append(above, tier.Rates)
			}
		}
		if e.service != nil {
			for _, tier := range e.service.Tiers {
				if tier.Above <= bound {
					above = append(above, tier.Rates)
				}
			}
		}
		if step := e.completed(name, above); step.Cmp(dearest) > 0 {
			dearest = step
		}
	}
	return dearest
}

func (e exactPrice) completed(name string, layers []catalogue.Rates) *big.Int {
	for _, layer := range slices.Backward(layers) {
		if n, stated := layer[name]; stated {
			return big.NewInt(n)
		}
	}
	if name == "search" {
		return big.NewInt(e.dearestSearch())
	}
	dearest := new(big.Int)
	for _, other := range standIns[name] {
		if n := e.completed(other, layers); n.Cmp(dearest) > 0 {
			dearest = n
		}
	}
	return dearest
}

func (e exactPrice) dearestSearch() int64 {
	of := func(p catalogue.Provider) (most int64) {
		for _, m := range p.Models {
			for _, price := range m.Prices {
				if m.Mode != catalogue.ModeMedia {
					most = max(most, price.Rates["search"])
				}
			}
		}
		return most
	}
	most := of(e.provider)
	for _, p := range e.file.Providers {
		if most == 0 || of(e.provider) == 0 {
			most = max(most, of(p))
		}
	}
	return most
}

// exactCost is the cost of a use in nano-USD, as a fraction.
func exactCost(t *testing.T, file catalogue.File, u pricedUse) *big.Rat {
	t.Helper()
	e := exactPriceOf(t, file, u)
	cost := new(big.Rat)
	term := func(name string, n, per int64) {
		product := new(big.Int).Mul(big.NewInt(n), e.of(name))
		cost.Add(cost, new(big.Rat).SetFrac(product, big.NewInt(per)))
	}
	for class, n := range u.Tokens {
		term(class, n, 1_000_000)
	}
	for unit, n := range u.Units {
		term(unit, n, map[bool]int64{true: 3_600_000, false: 1_000}[unit == "second"])
	}
	return cost
}

func roundedUp(r *big.Rat) int64 {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.Int64()
}

// TestTwoHundredUses prices calls of every provider, service, class and unit of
// the catalogue, and holds each against exact rational arithmetic.
func TestTwoHundredUses(t *testing.T) {
	file, c := embeddedFile(t), embeddedFor(t)
	uses := readUses(t)
	seen := map[string]bool{}
	for i, u := range uses {
		m, ok := c.LookupAt(u.Provider, u.Model, u.At)
		if !ok || m.ID != u.Model {
			t.Fatalf("use %d: %s/%s was found as %s, %t", i, u.Provider, u.Model, m.ID, ok)
		}
		got, err := m.Price.Cost(u.use())
		if want := roundedUp(exactCost(t, file, u)); err != nil || int64(got) != want {
			t.Errorf("use %d of %s/%s: %d nano-USD, %v; want %d: %+v", i, u.Provider, u.Model, got, err, want, u)
		}
		seen[u.Provider], seen["service "+u.Tier], seen["service "+u.Speed] = true, true, true
		for class := range u.Tokens {
			seen[class] = true
		}
		for unit := range u.Units {
			seen[unit] = true
		}
		for _, tier := range m.Price.Tiers {
			if total, err := u.use().Tokens.TotalInput(); err == nil && total > tier.Above {
				seen["above a bound"] = true
			}
		}
		if u.At.Format(time.DateOnly) != file.AsOf {
			seen["another day"] = true
		}
	}
	want := append(slices.Concat(classNames[:], unitNames[:]), "above a bound", "another day")
	for _, p := range file.Providers {
		want = append(want, p.ID)
		for _, m := range p.Models {
			for _, price := range m.Prices {
				for _, s := range price.Services {
					want = append(want, "service "+s.Name)
				}
			}
		}
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("no use has %s", name)
		}
	}
	if len(uses) < 200 {
		t.Errorf("%d uses, want 200", len(uses))
	}
}

// genaiPrices is what catalogue/testdata/genai.mjs wrote.
type genaiPrices struct {
	Package, Version string
	Prices           []struct {
		Model  string                     `json:"model"`
		USD    json.Number                `json:"usd"`
		Prices map[string]json.RawMessage `json:"prices"`
		Error  string                     `json:"error"`
	}
}

// genaiKeys are the names that genai-prices has for what the catalogue prices.
var genaiKeys = map[string]string{
	"input": "input_mtok", "input_audio": "input_audio_mtok", "input_image": "input_image_mtok", "input_video": "input_video_mtok",
	"cache_read": "cache_read_mtok", "cache_read_audio": "cache_audio_read_mtok", "cache_read_image": "cache_image_read_mtok",
	"cache_write": "cache_write_mtok", "cache_write_1h": "cache_write_1h_mtok",
	"output": "output_mtok", "output_audio": "output_audio_mtok", "output_image": "output_image_mtok", "output_video": "output_video_mtok",
	"reasoning": "output_reasoning_mtok", "request": "requests_kcount", "search": "web_searches_kcount", "second": "audio_hours", "page": "input_document_kpages",
}

// TestAgainstGenaiPrices holds the costs of the uses against those of the npm
// package, and differences.md against where they differ, with the reasons. A
// difference that none of the reasons explains fails.
func TestAgainstGenaiPrices(t *testing.T) {
	file, uses := embeddedFile(t), readUses(t)
	var theirs genaiPrices
	readJSON(t, filepath.Join(usesDir, "genai.json"), &theirs)
	if len(theirs.Prices) != len(uses) {
		t.Fatalf("%d prices of %d uses: run genai.mjs again", len(theirs.Prices), len(uses))
	}
	var rows strings.Builder
	counts := map[string]int{}
	for i, u := range uses {
		e := exactPriceOf(t, file, u)
		ours, their := roundedUp(exactCost(t, file, u)), theirs.Prices[i]
		shown := "-"
		var reasons []string
		if their.Error != "" {
			reasons = []string{"missing"}
		} else {
			usd, ok := new(big.Rat).SetString(their.USD.String())
			if !ok {
				t.Fatalf("use %d: %q is no price", i, their.USD)
			}
			usd.Mul(usd, new(big.Rat).SetInt64(1_000_000_000))
			shown = usd.FloatString(3)
			// Theirs is a sum of floating-point numbers, ours is rounded up.
			gap := new(big.Rat).Sub(new(big.Rat).SetInt64(ours), usd)
			slack := new(big.Rat).Add(big.NewRat(1, 100), new(big.Rat).Mul(usd, big.NewRat(1, 1<<50)))
			if gap.Cmp(new(big.Rat).Neg(slack)) >= 0 && gap.Cmp(new(big.Rat).Add(slack, big.NewRat(1, 1))) <= 0 {
				counts["equal"]++
				continue
			}
			reasons = differences(u, e, their.Prices)
		}
		if len(reasons) == 0 {
			t.Errorf("use %d of %s/%s: %d nano-USD, genai-prices %s, and nothing explains it: %+v", i, u.Provider, u.Model, ours, shown, u)
		}
		for _, reason := range reasons {
			counts[reason]++
		}
		fmt.Fprintf(&rows, "| %d | %s | %s | %d | %s | %s |\n", i, u.Provider, u.Model, ours, shown, strings.Join(reasons, ", "))
	}
	text := fmt.Sprintf(differencesHead, theirs.Package, theirs.Version, len(uses), counts["equal"], len(uses)-counts["equal"]) + rows.String()
	path := filepath.Join(usesDir, "differences.md")
	if *rewriteUses {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile(path)
	if err != nil || string(listed) != text {
		t.Errorf("%s does not list the differences as they are (%v); run this test with -rewrite-uses and read what changed", path, err)
	}
	if counts["equal"] < len(uses)/3 {
		t.Errorf("only %d of %d costs are equal: %v", counts["equal"], len(uses), counts)
	}
}

const differencesHead = `# Where genai-prices has another cost

The uses of uses.json by the catalogue, and by the npm package %s
%s as genai.mjs ran it. Of %d uses %d cost the same, rounded up to the nano-USD,
and %d differ. The reasons:

- missing: the package has no price for the model, or refuses the use
- service: the package has no service tiers and speeds, and prices the usual one
- data: the package's data are newer, and have another price of a class that was used, or none
- stand-in: no source has a price of a class that was used; the catalogue takes the dearest that may stand in, the package that of the class around it
- hour: the model has two prices by the time of day, and the catalogue takes the dearer
- unit: the package does not bill a unit that the catalogue has a price of, or counts one request whatever was used
- bound: one of them has a price above a number of input tokens that the other has not, or not for this class

| use | provider | model | nano-USD | genai-prices | why |
| ---: | --- | --- | ---: | ---: | --- |
`

// differences names what explains another cost of a use, in the words of
// differencesHead.
func differences(u pricedUse, e exactPrice, theirs map[string]json.RawMessage) []string {
	reasons := map[string]bool{}
	if u.Tier != "" || u.Speed != "" {
		reasons["service"] = true
	}
	byHour := slices.ContainsFunc(e.price.Services, func(s catalogue.Service) bool { return s.Name == "off-peak" })
	if byHour {
		reasons["hour"] = true
	}
	for name, n := range u.Tokens {
		their, priced := theirs[genaiKeys[name]]
		our, stated := e.price.Rates[name]
		switch {
		case n == 0:
		case !stated && !priced:
			if _, written := e.price.Rates["output"]; standInDiffers(name) || (!written && slices.Contains(classNames[numberOfInputs:], name)) {
				reasons["stand-in"] = true
			}
		case stated != priced:
			reasons["data"] = true
		case strings.HasPrefix(string(their), "{") != e.hasTier(name):
			reasons["bound"] = true
		default:
			var tiered struct{ Base json.Number }
			number := json.Number(their)
			if strings.HasPrefix(string(their), "{") && json.Unmarshal(their, &tiered) == nil {
				number = tiered.Base
			}
			dollars, ok := new(big.Rat).SetString(number.String())
			if !ok || dollars.Mul(dollars, new(big.Rat).SetInt64(1_000_000_000)).Cmp(new(big.Rat).SetInt64(our)) != 0 {
				reasons["data"] = reasons["data"] || !byHour
			}
		}
	}
	if theirs["requests_kcount"] != nil && u.Units["request"] != 1 {
		reasons["unit"] = true
	}
	for name := range u.Units {
		their, priced := theirs[genaiKeys[name]]
		if !priced {
			reasons["unit"] = true
			continue
		}
		dollars, ok := new(big.Rat).SetString(string(their))
		if !ok || dollars.Mul(dollars, new(big.Rat).SetInt64(1_000_000_000)).Cmp(new(big.Rat).SetInt(e.of(name))) != 0 {
			reasons["data"] = true
		}
	}
	var out []string
	for reason, is := range reasons {
		if is {
			out = append(out, reason)
		}
	}
	slices.Sort(out)
	return out
}

// standInDiffers says whether the catalogue puts another class in the place of
// one without a price than the package, which takes the nearest class around it.
func standInDiffers(name string) bool {
	switch name {
	case "input_audio", "input_image", "cache_read", "cache_write", "output_audio", "output_image", "reasoning":
		return false
	}
	return true
}

func (e exactPrice) hasTier(name string) bool {
	return slices.ContainsFunc(e.price.Tiers, func(t catalogue.Tier) bool { _, stated := t.Rates[name]; return stated })
}
