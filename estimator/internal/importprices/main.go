// Importprices writes the embedded price catalogue from the public ones.
//
//	go run ./estimator/internal/importprices [-as-of DATE] [-out DIR] SOURCES
//
// SOURCES holds genai-prices_v2_data.json, litellm_model_prices_*.json and
// models.dev_costs_*.json with their licences. Prices come from genai-prices;
// litellm adds service tiers, speeds, models that are billed by other units than
// tokens, each model's mode, context window and output maximum. What is refused,
// and where the three disagree, is listed in REPORT.md beside the
// catalogue, to be read before the result is committed. The output depends on
// the sources and the flags only.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

func main() {
	asOf := flag.String("as-of", "2026-12-01", "day whose prices are taken, where a source dates them")
	out := flag.String("out", "estimator/catalogue", "directory of the catalogue")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: importprices [-as-of DATE] [-out DIR] SOURCES")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *out, *asOf); err != nil {
		fmt.Fprintln(os.Stderr, "importprices:", err)
		os.Exit(1)
	}
}

func run(in, out, asOf string) error {
	day, err := time.Parse(time.DateOnly, asOf)
	if err != nil {
		return fmt.Errorf("-as-of: %w", err)
	}
	genaiData, err := os.ReadFile(filepath.Join(in, "genai-prices_v2_data.json"))
	if err != nil {
		return err
	}
	litellmData, err := readOnly(in, "litellm_model_prices_*.json")
	if err != nil {
		return err
	}
	devData, err := readOnly(in, "models.dev_costs_*.json")
	if err != nil {
		return err
	}
	sources := []catalogue.Source{genaiSource, litellmSource, devSource}
	for i, data := range [][]byte{genaiData, litellmData, devData} {
		sum := sha256.Sum256(data)
		sources[i].SHA256 = hex.EncodeToString(sum[:])
	}

	imp, err := newImporter(genaiData, litellmData, devData, day)
	if err != nil {
		return err
	}
	file := catalogue.File{
		Format:    catalogue.Format,
		AsOf:      asOf,
		Unit:      "nano-USD: per million tokens, per hour of seconds, per thousand of other units",
		Sources:   sources,
		Providers: imp.providers(),
	}
	if err := file.Check(); err != nil {
		return err
	}
	data, err := encode(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "prices.json"), data, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "REPORT.md"), imp.report.markdown(file.Version(data)), 0o644); err != nil {
		return err
	}
	for from, to := range map[string]string{
		"genai-prices_LICENSE": genaiSource.LicenceFile,
		"litellm_LICENSE":      litellmSource.LicenceFile,
		"models.dev_LICENSE":   devSource.LicenceFile,
	} {
		notice, err := os.ReadFile(filepath.Join(in, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, to), notice, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d models, %d refused, %d disagreements with litellm, %d with models.dev\n",
		file.Version(data), imp.kept, len(imp.report.refused), len(imp.report.disagree), len(imp.report.dev))
	return nil
}

// readOnly reads the one file of a directory that fits the pattern.
func readOnly(dir, pattern string) ([]byte, error) {
	matches, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(matches) != 1 {
		return nil, fmt.Errorf("%s: want one %s, found %d", dir, pattern, len(matches))
	}
	return os.ReadFile(matches[0])
}

// encode writes one model a line, so that a change of price is a change of one
// line.
func encode(f catalogue.File) ([]byte, error) {
	var b bytes.Buffer
	line := func(v any) error {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1)
		return nil
	}
	providers := f.Providers
	f.Providers = []catalogue.Provider{}
	head, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return nil, err
	}
	b.Write(bytes.TrimSuffix(head, []byte("[]\n}")))
	b.WriteString("[")
	for i, p := range providers {
		if i > 0 {
			b.WriteString(",")
		}
		models := p.Models
		p.Models = []catalogue.Model{}
		b.WriteString("\n")
		if err := line(p); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - len("]}"))
		for j, m := range models {
			if j > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n ")
			if err := line(m); err != nil {
				return nil, err
			}
		}
		b.WriteString("\n]}")
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), nil
}
