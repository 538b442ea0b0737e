package estimator

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// DefaultMaxTextBytes is the bound of one call's text unless the config says
// otherwise: 4 MiB, about a million tokens.
const DefaultMaxTextBytes = 4 << 20

// MaxTextBytesBound is the highest bound that a config may set.
const MaxTextBytesBound = 64 << 20

// Ceiling prices models that neither the policy nor the catalogue knows.
type Ceiling struct {
	Input  PerMillion // every input class; 1 to MaxPerMillion
	Output PerMillion // output and reasoning; 1 to MaxPerMillion
}

// Config is what an estimator needs. The zero value is usable.
type Config struct {
	// Catalogue prices the models; nil is the embedded one.
	Catalogue *Catalogue

	// Policy gives the policy in force, whose prices stand before the
	// catalogue's; nil: there is none.
	Policy func() *quota.Policy

	// UnknownModel prices a model that neither the policy nor the catalogue
	// knows; nil refuses it with an [UnknownModelError]. Prices of zero are refused.
	UnknownModel *Ceiling

	// MaxTextBytes bounds the text of one call, in bytes of UTF-8, without
	// images; 0 is DefaultMaxTextBytes, at most MaxTextBytesBound.
	MaxTextBytes int

	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer

	// Now is read before and after an estimate, for its duration metric only;
	// nil leaves that metric empty.
	Now func() time.Time
}

// Estimator estimates calls. Of itself it never changes, but by what [Estimator.Learn]
// tells it and by [Estimator.Reprice], and it is safe for concurrent use; it loads an
// encoding when a call first needs it.
type Estimator struct {
	catalogue    atomic.Pointer[Catalogue]
	policy       func() *quota.Policy
	unknown      *Ceiling
	maxTextBytes int
	now          func() time.Time
	metrics      *metrics
	counting     *counting
	learner      family.Learner // of models counted by a rule
}

// New returns an estimator, or an error that names the field of the config at
// fault.
func New(cfg Config) (*Estimator, error) {
	e := &Estimator{policy: cfg.Policy, unknown: cfg.UnknownModel, maxTextBytes: cfg.MaxTextBytes, now: cfg.Now, counting: newCounting()}
	c := cfg.Catalogue
	if c == nil {
		var err error
		if c, err = EmbeddedCatalogue(); err != nil {
			return nil, err
		}
	}
	e.catalogue.Store(c)
	if u := cfg.UnknownModel; u != nil {
		for _, p := range []struct {
			field string
			price PerMillion
		}{{"unknown_model.input", u.Input}, {"unknown_model.output", u.Output}} {
			if p.price < 1 || p.price > MaxPerMillion {
				return nil, invalid(p.field, "%d nano-USD per million is not between 1 and %d", int64(p.price), int64(MaxPerMillion))
			}
		}
	}
	if e.maxTextBytes == 0 {
		e.maxTextBytes = DefaultMaxTextBytes
	}
	if e.maxTextBytes < 0 || e.maxTextBytes > MaxTextBytesBound {
		return nil, invalid("max_text_bytes", "%d is not between 1 and %d", e.maxTextBytes, MaxTextBytesBound)
	}
	var err error
	if e.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	return e, nil
}

// Catalogue returns the catalogue that prices the models.
func (e *Estimator) Catalogue() *Catalogue { return e.catalogue.Load() }

// Reprice makes another catalogue price the models, from the next call on. What
// was reserved before keeps the price that it pinned.
func (e *Estimator) Reprice(c *Catalogue) { e.catalogue.Store(c) }

// maxModelBytes bounds the names of a call.
const maxModelBytes = 256

// Estimate says what a call takes at most: input tokens, output ceiling and
// worst-case cost, at the price of reservations that are made at the instant. It fails with a [CallError], a [TooLargeError] or an
// [UnknownModelError]; nothing of the call is kept, whatever the outcome.
func (e *Estimator) Estimate(call Call, at time.Time) (Estimate, error) {
	return e.EstimateContext(context.Background(), call, at)
}

// EstimateContext is Estimate that is done before the context ends: few texts are
// counted at a time, and a call that still waits then, or whose text is not
// counted, fails with [ErrBusy]. The call that loads an encoding takes as long as
// it does, once a process.
func (e *Estimator) EstimateContext(ctx context.Context, call Call, at time.Time) (Estimate, error) {
	var began time.Time
	if e.now != nil {
		began = e.now()
	}
	out, err := e.estimate(ctx, call, at)
	method, _, _ := strings.Cut(out.Method, "/") // "caller", "tiktoken", "rule"
	if err != nil {
		method = "refused"
	}
	e.metrics.estimates.WithLabelValues(method).Inc()
	if e.now != nil {
		e.metrics.seconds.Observe(e.now().Sub(began).Seconds())
	}
	return out, err
}

func (e *Estimator) estimate(ctx context.Context, call Call, at time.Time) (Estimate, error) {
	if err := call.check(); err != nil {
		return Estimate{}, err
	}
	name, err := call.modelName()
	if err != nil {
		return Estimate{}, err
	}
	model, err := e.ModelAt(call.Provider, name, at)
	if err != nil {
		return Estimate{}, err
	}
	var busy error // once the context has ended no more is counted
	t := &tally{maxBytes: e.maxTextBytes, model: model, method: "caller"}
	out := Estimate{Provider: model.Provider, Model: model.ID, Price: model.Price, PriceVersion: model.Price.Version}
	if call.InputTokens == nil {
		out.Encoding = cmp.Or(model.Encoding, O200kBase)
		if !out.Encoding.Loaded() {
			// Once a process: the first call takes that time too.
			ctx = context.WithoutCancel(ctx)
		}
		by, err := counterOf(model)
		if err != nil {
			return Estimate{}, err
		}
		t.method = "tiktoken/" + string(out.Encoding)
		if model.Encoding == "" {
			t.method = "rule/" + model.Rule.Family
		}
		t.count = func(text string) (f Figures) {
			if busy == nil {
				f, busy = e.counting.figures(ctx, by, text)
			}
			return f
		}
	}
	out.Method = t.method
	if err := cmp.Or(t.readCall(call, model), busy); err != nil {
		return Estimate{}, err
	}
	if err := out.input(call, model, t); err != nil {
		return Estimate{}, err
	}
	e.applyLearned(&out, at)
	if err := out.output(call, model, t); err != nil {
		return Estimate{}, err
	}
	return out, out.price(model, t)
}

// check refuses a call that is contradictory or out of range.
func (c Call) check() error {
	given := 0
	for _, is := range []bool{c.Prompt != "", c.Messages != nil, c.ProviderRequest != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return invalid("llm", "give one of prompt, messages and provider_request")
	case given == 0 && c.InputTokens == nil:
		return invalid("llm", "give one of prompt, messages, provider_request and input_tokens")
	case c.InputTokens != nil && c.InputTokens.Amount().Check() != nil:
		return invalid("input_tokens", "%d is not between 0 and %d", int64(*c.InputTokens), int64(quota.MaxAmount))
	case c.MaxOutputTokens != nil && c.MaxOutputTokens.Amount().Check() != nil:
		return invalid("max_output_tokens", "%d is not between 0 and %d", int64(*c.MaxOutputTokens), int64(quota.MaxAmount))
	case c.N < 0 || c.N > MaxChoices:
		return invalid("n", "%d is not between 0 and %d", c.N, MaxChoices)
	}
	return nil
}

// modelName returns the model that the call or its body names.
func (c Call) modelName() (string, error) {
	inBody, err := stringAt(c.ProviderRequest, requestField, "model")
	if err != nil {
		return "", err
	}
	if inBody == "" { // Bedrock's own name for it
		if inBody, err = stringAt(c.ProviderRequest, requestField, "modelId"); err != nil {
			return "", err
		}
	}
	inBody = strings.TrimPrefix(inBody, "models/")
	asked := strings.TrimPrefix(c.Model, "models/")
	if asked != "" && inBody != "" && !strings.EqualFold(asked, inBody) {
		return "", invalid("model", "%.64q is not the provider request's model %.64q", c.Model, inBody)
	}
	return cmp.Or(asked, inBody), nil
}

// readCall fills the tally from whichever input the call has.
func (t *tally) readCall(call Call, model Model) error {
	switch {
	case call.ProviderRequest != nil:
		// A model that names its provider's layout when the call does not.
		f, err := requestLayout(cmp.Or(call.Provider, model.Provider))
		if err != nil {
			return err
		}
		t.asks(call.ProviderRequest)
		return t.read(f, call.ProviderRequest, model.Mode)
	case t.count == nil:
		return nil
	case call.Messages != nil:
		t.isChat = true
		for i, m := range call.Messages {
			field := at("messages", i)
			if err := t.item(field); err != nil {
				return err
			}
			t.messages++
			if m.Name != "" {
				t.names++
			}
			for _, part := range []struct{ field, text string }{
				{field + ".role", cmp.Or(m.Role, "user")}, {field + ".name", m.Name}, {field + ".content", m.Content},
			} {
				if err := t.text(part.field, part.text); err != nil {
					return err
				}
			}
		}
		return nil
	default:
		// A prompt reaches a chat model as one user message.
		if t.isChat = model.Mode == ModeChat; t.isChat {
			t.messages++
			if err := t.text("prompt", "user"); err != nil {
				return err
			}
		}
		return t.text("prompt", call.Prompt)
	}
}

// input sums up the parts.
func (e *Estimate) input(call Call, model Model, t *tally) error {
	if call.InputTokens != nil {
		t.add(KindStated, 1, exactly(*call.InputTokens), t.method)
	} else {
		t.addOverheads()
	}
	t.boundMedia()
	e.Parts = t.parts
	for _, part := range e.Parts {
		e.Input = e.Input.plus(part.Tokens)
	}
	if e.Input.Ceiling.Amount().Check() != nil {
		return invalid("llm", "the input comes to %d tokens, above %d", int64(e.Input.Ceiling), int64(quota.MaxAmount))
	}
	e.Exact = call.InputTokens == nil && model.Encoding != "" && e.Input.Floor == e.Input.Ceiling
	return nil
}

// output finds the ceiling of what may be generated.
func (e *Estimate) output(call Call, model Model, t *tally) error {
	choices := max(int64(call.N), t.choices, 1)
	if choices > MaxChoices {
		return invalid("n", "%d choices are more than %d", choices, MaxChoices)
	}
	choices *= max(t.prompts, 1)
	e.N = int(choices)
	if model.Mode == ModeEmbedding {
		return nil
	}
	switch {
	case call.MaxOutputTokens != nil && t.maxOutput != nil:
		e.MaxOutputTokens = max(*call.MaxOutputTokens, *t.maxOutput)
	case call.MaxOutputTokens != nil:
		e.MaxOutputTokens = *call.MaxOutputTokens
	case t.maxOutput != nil:
		e.MaxOutputTokens = *t.maxOutput
	case model.MaxOutput > 0:
		e.MaxOutputTokens, e.Unbounded = model.MaxOutput, outputField(call, model)
	default:
		return invalid("max_output_tokens", "is required, or %s: the catalogue knows no output maximum for %.64q", outputField(call, model), model.ID)
	}
	if choices > 1 && int64(e.MaxOutputTokens) > int64(quota.MaxAmount)/choices {
		return invalid("max_output_tokens", "%d for each of %d choices is above %d in all", int64(e.MaxOutputTokens), choices, int64(quota.MaxAmount))
	}
	e.Output = upTo(e.MaxOutputTokens * quota.Tokens(choices))
	return nil
}

// price forms the worst case: each part of the input at the dearest class that
// it can meet, all output at the dearest that the call can be answered in,
// rounded up once. A tier or a speed that the call asks for may be served or
// not, so the dearer price counts.
//
// Input can be dearer than its price only where it is written to a cache. An
// Anthropic body that has no cache_control writes nothing; one with it is
// priced at the cache write of the life that it states. Of any other call the
// default cache life is assumed, which is what providers that cache by
// themselves charge.
func (e *Estimate) price(model Model, t *tally) error {
	rates := model.Price.RatesFor(e.Input.Ceiling).dearest(model.Price.RatesServed(e.Input.Ceiling, t.tier, t.speed))
	if rates.Input == NoPrice && (e.Input.Ceiling > 0 || e.Output.Ceiling > 0) {
		return invalid("model", "%.64q is not billed by tokens: state 0 for both, reserve amounts, and report units", model.ID)
	}
	written := Line{}
	switch t.cacheWrite {
	case cacheWriteUnknown, cacheWriteDefault:
		written = Line{Class: "cache_write", Price: rates.CacheWrite}
	case cacheWrite1h:
		written = dearestLine(Line{Class: "cache_write", Price: rates.CacheWrite}, Line{Class: "cache_write_1h", Price: rates.CacheWrite1h})
	}
	input := Line{Class: "input", Price: rates.Input}
	image := Line{Class: "input_image", Price: rates.InputImage}
	audio := Line{Class: "input_audio", Price: rates.InputAudio}
	video := Line{Class: "input_video", Price: rates.InputVideo}
	for _, part := range e.Parts {
		var line Line
		switch part.Kind {
		case KindImages, KindPages:
			line = dearestLine(input, image, written)
		case KindAudio:
			line = dearestLine(audio, written)
		case KindVideo, KindStored:
			line = dearestLine(input, image, audio, video, written)
		default:
			line = dearestLine(input, written)
		}
		e.addLine(line, part.Tokens.Ceiling)
	}
	output := dearestLine(Line{Class: "output", Price: rates.Output}, Line{Class: "reasoning", Price: rates.Reasoning})
	if t.makesAudio {
		output = dearestLine(output, Line{Class: "output_audio", Price: rates.OutputAudio})
	}
	if t.makesImages {
		output = dearestLine(output, Line{Class: "output_image", Price: rates.OutputImage})
	}
	e.addLine(output, e.Output.Ceiling)
	var total sum
	for _, line := range e.Lines {
		total.addTokens(line.Tokens, line.Price)
	}
	e.OutputPrice = max(output.Price, 0) // NoPrice where no tokens are billed
	var err error
	if e.Cost, err = total.roundedUp(); err != nil {
		return err
	}
	e.CostRest = int64((uint64(e.Cost)*sumUnit - total.lo) / perToken) // exact modulo 2^64: below sumUnit
	return nil
}

// dearestLine returns the dearest of classes that tokens may be billed as, the
// first of equal ones.
func dearestLine(lines ...Line) Line {
	out := lines[0]
	for _, line := range lines[1:] {
		if line.Price > out.Price {
			out = line
		}
	}
	return out
}

// addLine adds tokens of a class.
func (e *Estimate) addLine(line Line, tokens quota.Tokens) {
	if tokens == 0 {
		return
	}
	for i := range e.Lines {
		if e.Lines[i].Class == line.Class {
			e.Lines[i].Tokens += tokens
			return
		}
	}
	line.Tokens = tokens
	e.Lines = append(e.Lines, line)
}
