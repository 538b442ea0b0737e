package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

// litellmClasses are the catalogue's names of what litellm prices per token.
var litellmClasses = map[string]string{
	"input_cost_per_token":                      "input",
	"input_cost_per_audio_token":                "input_audio",
	"input_cost_per_image_token":                "input_image",
	"cache_read_input_token_cost":               "cache_read",
	"cache_read_input_audio_token_cost":         "cache_read_audio",
	"cache_creation_input_token_cost":           "cache_write",
	"cache_creation_input_token_cost_above_1hr": "cache_write_1h",
	"output_cost_per_token":                     "output",
	"output_cost_per_audio_token":               "output_audio",
	"output_cost_per_image_token":               "output_image",
	"output_cost_per_video_token":               "output_video",
	"output_cost_per_reasoning_token":           "reasoning",
}

// litellmServices are the tiers that litellm marks at the end of a field.
var litellmServices = map[string]string{"_batches": "batch", "_flex": "flex", "_priority": "priority"}

var aboveTokens = regexp.MustCompile(`_above_(\d+)k_tokens$`)

// nano is a price of litellm, in nano-USD per so many.
func (l litellmModel) nano(field string, per int64) (int64, error) {
	price, stated := l.costs[field]
	if !stated {
		return 0, errors.New("no price")
	}
	return nano(price, per)
}

// addTo adds to a price what it does not state and litellm does: classes, tiers
// of services, searches. The input and output prices of both must be the same.
func (l litellmModel) addTo(price *catalogue.Price) {
	services := map[string]catalogue.Service{}
	tiers := map[string]map[int64]catalogue.Rates{}
	for _, field := range slices.Sorted(maps.Keys(l.costs)) {
		stem, service := field, ""
		for end, name := range litellmServices {
			if s, ok := strings.CutSuffix(field, end); ok {
				stem, service = s, name
			}
		}
		above := int64(0)
		if m := aboveTokens.FindStringSubmatch(stem); m != nil {
			stem = strings.TrimSuffix(stem, m[0])
			thousands, _ := strconv.ParseInt(m[1], 10, 32)
			above = thousands * 1000
		}
		class, known := litellmClasses[stem]
		n, err := l.nano(field, 1_000_000)
		if !known || err != nil || (n == 0 && service == "") {
			continue
		}
		switch {
		case service == "" && above == 0:
			if _, stated := price.Rates[class]; !stated {
				price.Rates[class] = n
			}
		case service == "":
			// Tiers of the usual service are genai-prices'.
		default:
			if services[service].Rates == nil {
				services[service] = catalogue.Service{Name: service, Rates: catalogue.Rates{}}
				tiers[service] = map[int64]catalogue.Rates{}
			}
			rates := services[service].Rates
			if above > 0 {
				if rates = tiers[service][above]; rates == nil {
					rates = catalogue.Rates{}
					tiers[service][above] = rates
				}
			}
			rates[class] = n
		}
	}
	for _, service := range services {
		service.Tiers = tiersOf(tiers[service.Name])
		price.Services = append(price.Services, service)
	}
	if _, stated := price.Rates["search"]; !stated {
		for _, each := range l.Searches { // of several sizes the dearest
			if n, err := nanoUp(each, 1000); err == nil && n > price.Rates["search"] {
				price.Rates["search"] = n
			}
		}
	}
	if factor, err := new(big.Rat).SetString(string(l.Specific["fast"])); err && factor.Sign() > 0 {
		price.Services = append(price.Services, scaled("fast", *price, factor))
	}
	slices.SortFunc(price.Services, func(a, b catalogue.Service) int { return strings.Compare(a.Name, b.Name) })
}

// scaled is a service that costs so many times the usual in every class of
// tokens, rounded up.
func scaled(name string, price catalogue.Price, factor *big.Rat) catalogue.Service {
	times := func(rates catalogue.Rates) catalogue.Rates {
		out := catalogue.Rates{}
		for class, n := range rates {
			if slices.Contains(catalogue.Classes[:], class) {
				out[class] = ceil(new(big.Rat).Mul(factor, new(big.Rat).SetInt64(n)))
			}
		}
		return out
	}
	service := catalogue.Service{Name: name, Rates: times(price.Rates)}
	for _, t := range price.Tiers {
		service.Tiers = append(service.Tiers, catalogue.Tier{Above: t.Above, Rates: times(t.Rates)})
	}
	return service
}

// supplement adds to the prices of an entry what litellm states of the same
// model, where the two agree about text, and the discounts that a provider
// documents for all its models.
func (imp *importer) supplement(s seller, m *catalogue.Model) {
	known := imp.known(s, *m)
	for i := range m.Prices {
		price := &m.Prices[i]
		for _, name := range append([]string{m.ID}, m.Names...) {
			l, ok := known[name]
			if !ok {
				continue
			}
			input, err := l.nano("input_cost_per_token", 1_000_000)
			output, errOut := l.nano("output_cost_per_token", 1_000_000)
			ours, writes := price.Rates["output"]
			if err != nil || input != price.Rates["input"] || (writes && (errOut != nil || output != ours)) {
				continue
			}
			l.addTo(price)
			break
		}
		for _, d := range discounts {
			has := func(s catalogue.Service) bool { return s.Name == d.service }
			if d.provider == s.id && m.Mode == catalogue.ModeChat && !slices.ContainsFunc(price.Services, has) {
				price.Services = append(price.Services, scaled(d.service, *price, d.factor))
				slices.SortFunc(price.Services, func(a, b catalogue.Service) int { return strings.Compare(a.Name, b.Name) })
			}
		}
	}
}

// mediaModes are litellm's modes of models that are billed by other units.
var mediaModes = map[string]bool{
	"image_generation": true, "video_generation": true, "audio_transcription": true, "ocr": true, "rerank": true,
}

// media returns the seller's models that only litellm has and that are billed by
// the image, second, page or search.
func (imp *importer) media(s seller, have []catalogue.Model) []catalogue.Model {
	taken := map[string]bool{}
	for _, m := range have {
		for _, name := range append([]string{m.ID}, m.Names...) {
			taken[strings.ToLower(name)] = true
		}
	}
	var out []catalogue.Model
	for _, key := range slices.Sorted(maps.Keys(imp.litellm)) {
		l := imp.litellm[key]
		if !mediaModes[l.Mode] || !slices.Contains(s.sells, l.Provider) {
			continue
		}
		id := key
		for _, prefix := range s.litellm {
			if rest, ok := strings.CutPrefix(key, prefix); ok && prefix != "" {
				id = rest
				break
			}
		}
		if strings.Contains(id, "/") || taken[strings.ToLower(id)] || lacksUnit(l) {
			continue // a size or quality of another model, or billed by tokens
		}
		taken[strings.ToLower(id)] = true
		m := catalogue.Model{ID: id, Mode: catalogue.ModeMedia, Prices: []catalogue.Price{{Rates: catalogue.Rates{}}}}
		rates := m.Prices[0].Rates
		for unit, price := range imp.unitPrices(key, id, l) {
			rates[unit] = price
		}
		if n, err := l.nano("input_cost_per_token", 1_000_000); err == nil && n > 0 {
			rates["input"] = n
			l.addTo(&m.Prices[0])
		}
		if err := m.Check(); err != nil {
			imp.report.refuse(s.id, id, err.Error())
			continue
		}
		imp.report.note(s.id, id, "from litellm alone: genai-prices does not have it")
		out = append(out, m)
	}
	return out
}

// litellmUnits are litellm's fields of one unit: the catalogue's name, and how
// many of litellm's the catalogue's price is for.
var litellmUnits = map[string]struct {
	unit string
	per  int64
}{
	"input_cost_per_image":             {"image", 1000},
	"output_cost_per_image":            {"image", 1000},
	"input_cost_per_second":            {"second", 3600},
	"output_cost_per_second":           {"second", 3600},
	"output_cost_per_second_1080p":     {"second", 3600},
	"output_cost_per_video_per_second": {"second", 3600},
	"ocr_cost_per_page":                {"page", 1000},
	"annotation_cost_per_page":         {"page", 1000},
	"input_cost_per_query":             {"search", 1000},
}

func lacksUnit(l litellmModel) bool {
	for field := range litellmUnits {
		if n, err := nanoUp(l.costs[field], 1); err == nil && n > 0 {
			return false
		}
	}
	return true
}

var pixels = regexp.MustCompile(`(\d+)-x-(\d+)/`)

// unitPrices are the prices of units, the dearest of all that litellm has for
// the model: of input and output, and of every size and quality.
func (imp *importer) unitPrices(key, id string, l litellmModel) catalogue.Rates {
	rates := catalogue.Rates{}
	take := func(l litellmModel) {
		for field, u := range litellmUnits {
			if n, err := nanoUp(l.costs[field], u.per); err == nil && n > 0 {
				rates[u.unit] = max(rates[u.unit], n)
			}
		}
	}
	take(l)
	for other, variant := range imp.litellm {
		if !strings.HasSuffix(other, "/"+id) || other == key || variant.Provider != l.Provider || rates["image"] == 0 {
			continue
		}
		take(variant)
		if size := pixels.FindStringSubmatch(other); size != nil {
			w, _ := strconv.ParseInt(size[1], 10, 32)
			h, _ := strconv.ParseInt(size[2], 10, 32)
			if n, err := nanoUp(variant.costs["input_cost_per_pixel"], w*h*1000); err == nil {
				rates["image"] = max(rates["image"], n)
			}
		}
	}
	return rates
}

// nanoUp turns dollars for one into nano-USD for so many, rounded up: litellm
// writes prices of a minute as decimals of a second.
func nanoUp(dollars json.Number, per int64) (int64, error) {
	r, ok := new(big.Rat).SetString(dollars.String())
	if !ok || r.Sign() < 0 {
		return 0, fmt.Errorf("%q is no price", dollars)
	}
	r.Mul(r, new(big.Rat).SetInt64(1_000_000_000))
	return ceil(r.Mul(r, new(big.Rat).SetInt64(per))), nil
}

// ceil rounds up to a whole number. Prices are far below 2^63; what is absurd is
// refused by the catalogue's own check.
func ceil(r *big.Rat) int64 {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.Int64()
}
