package sdks

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/provider"
	"google.golang.org/protobuf/types/known/structpb"
)

// BenchmarkFirstByte measures the time to the first byte of a stream: at the
// provider itself, through the proxy, and what a Reserve and its answer take
// alone, in turn within one run. added-ms is what the proxy's median has above
// the sum of the other two.
func BenchmarkFirstByte(b *testing.B) {
	r := start(b)
	_, base := r.proxy(b)
	body := []byte(`{"model":"` + gpt + `","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":200,"messages":[{"role":"user","content":"` + prompt + `"}]}`)
	script := provider.Script{ID: "first byte", Pieces: words, Tokens: provider.Tokens{Input: promptTokens}}.String()
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		b.Fatal(err)
	}
	asked, err := structpb.NewStruct(object)
	if err != nil {
		b.Fatal(err)
	}
	firstByte := func(base, key string) time.Duration {
		request, err := http.NewRequest(http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set(provider.Header, script)
		began := time.Now()
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.ReadFull(answer.Body, make([]byte, 1)); err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer.StatusCode, err)
		}
		took := time.Since(began)
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			b.Fatal(err)
		}
		return took
	}
	ctx := context.Background()
	reserve := func() time.Duration {
		began := time.Now()
		reservation, err := r.client.Reserve(ctx, budget.Request{LLM: &budgetv1.LlmCall{Provider: "openai", ProviderRequest: asked}})
		took := time.Since(began)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.client.Refund(ctx, reservation.ID, budget.Unused()); err != nil {
			b.Fatal(err)
		}
		return took
	}
	var direct, through, alone []time.Duration
	for b.Loop() {
		direct = append(direct, firstByte(r.bases.openai, providerKey))
		alone = append(alone, reserve())
		through = append(through, firstByte(base.openai, r.key))
	}
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return times[len(times)/2].Seconds() * 1000
	}
	b.ReportMetric(median(direct), "direct-ms")
	b.ReportMetric(median(alone), "reserve-ms")
	b.ReportMetric(median(through), "proxy-ms")
	b.ReportMetric(median(through)-median(direct)-median(alone), "added-ms")
}
