// Importprices writes the embedded price catalogue from the public ones.
//
//	go run ./estimator/internal/importprices [-as-of DATE] [-out DIR] SOURCES
//
// SOURCES holds genai-prices_v2_data.json and litellm_model_prices_*.json with
// their licences. Prices come from genai-prices; litellm adds each model's
// mode, context window and output maximum, and is compared with. What is
// refused, and where the two disagree, is listed in REPORT.md beside the
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
	matches, err := filepath.Glob(filepath.Join(in, "litellm_model_prices_*.json"))
	if err != nil || len(matches) != 1 {
		return fmt.Errorf("%s: want one litellm_model_prices_*.json, found %d", in, len(matches))
	}
	litellmData, err := os.ReadFile(matches[0])
	if err != nil {
		return err
	}
	sources := []catalogue.Source{genaiSource, litellmSource}
	for i, data := range [][]byte{genaiData, litellmData} {
		sum := sha256.Sum256(data)
		sources[i].SHA256 = hex.EncodeToString(sum[:])
	}

	imp, err := newImporter(genaiData, litellmData, day)
	if err != nil {
		return err
	}
	file := catalogue.File{
		Format:    catalogue.Format,
		AsOf:      asOf,
		Unit:      "nano-USD per million tokens",
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
	} {
		notice, err := os.ReadFile(filepath.Join(in, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, to), notice, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d models, %d refused, %d disagreements\n",
		file.Version(data), imp.kept, len(imp.report.refused), len(imp.report.disagree))
	return nil
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
