package estimator

import (
	"math"
	"strings"

	"github.com/budgetd/budgetd/estimator/answer"
	"github.com/budgetd/budgetd/quota"
)

const usageField = "provider_usage"

// NormalizeUsage turns a provider's own usage object into disjoint classes, and
// keeps what else decides the price: searches, seconds, the service tier and
// the speed. The object is the provider's usage ("usage", "usageMetadata"), or
// the whole answer that holds it, whose tier then counts too.
//
//   - OpenAI chat completions, responses and all that serve their layout: the
//     prompt includes what was cached, written to a cache, sound and pictures;
//     the completion includes reasoning, sound and pictures (usageopenai.go has
//     the hosts that differ).
//   - Anthropic: input_tokens excludes cache reads and writes; of the latter,
//     cache_creation names the one-hour part; output_tokens includes thinking.
//   - Gemini: promptTokenCount includes cachedContentTokenCount;
//     toolUsePromptTokenCount comes on top; thoughtsTokenCount is outside
//     candidatesTokenCount. The details tell sound, pictures and video apart.
//   - Bedrock Converse: inputTokens excludes cacheReadInputTokens and
//     cacheWriteInputTokens.
//
// An absent count is zero, but an object without any count of its layout is
// refused, so that a wrong object never means "nothing was used". A count that
// is no whole number between 0 and quota.MaxAmount, and a part above its whole,
// are refused with a [CallError] that names the field.
func NormalizeUsage(provider string, usage map[string]any) (Use, error) {
	f, err := layoutOf(provider)
	if err != nil {
		return Use{}, err
	}
	u := usageReader{}
	u.normalize(f, usage)
	return u.use, u.finish(f)
}

// usageReader reads counts into a use and keeps the first error.
type usageReader struct {
	use    Use
	stated int // counts found
	err    error
}

// normalize reads a usage object, or the answer that holds one.
func (u *usageReader) normalize(f answer.Layout, usage map[string]any) {
	for _, key := range []string{"usage", "usageMetadata", "usage_metadata"} {
		if inner, ok := usage[key].(map[string]any); ok {
			u.served(usage)
			usage = inner
			break
		}
	}
	u.served(usage)
	switch f {
	case answer.Anthropic:
		u.anthropic(usage)
	case answer.Gemini:
		u.gemini(usage)
	case answer.Bedrock:
		u.extract(f, usage, usageField)
	default:
		u.openAI(usage)
	}
}

// finish says whether what was read is a use.
func (u *usageReader) finish(f answer.Layout) error {
	if u.err == nil && u.stated == 0 {
		u.err = invalid(usageField, "has none of the token counts of an %s usage object", f)
	}
	if u.err == nil {
		u.err = u.use.Check()
	}
	if u.err == nil {
		_, u.err = u.use.Tokens.Amounts() // every sum is in range
	}
	if u.err != nil {
		u.use = Use{}
	}
	return u.err
}

// served notes the tier and the speed that an answer or a usage object names.
func (u *usageReader) served(object map[string]any) {
	tier, _ := either(object, "service_tier", "serviceTier")
	if config, ok := tier.(map[string]any); ok { // Bedrock
		tier = config["type"]
	}
	if name := serviceName(tier); name != "" {
		u.use.Tier = name
	} else if traffic := serviceName(object["trafficType"]); traffic != "" { // Vertex AI
		u.use.Tier = strings.TrimPrefix(traffic, "on_demand_")
	}
	speed := object["speed"]
	if config, ok := object["performanceConfig"].(map[string]any); ok { // Bedrock
		speed = config["latency"]
	}
	if name := serviceName(speed); name != "" {
		u.use.Speed = name
	}
}

// serviceName is the name of a tier or a speed, or "". A name that can't be one
// is "other": the price takes it for the dearest.
func serviceName(value any) string {
	name, _ := value.(string)
	if !isServiceName(name) {
		return "other"
	}
	return strings.ToLower(name)
}

// count reads the first of the keys that is present.
func (u *usageReader) count(object map[string]any, field string, keys ...string) quota.Tokens {
	n, _ := u.maybe(object, field, keys...)
	return n
}

// maybe reads the first of the keys that is present, and says whether any is.
func (u *usageReader) maybe(object map[string]any, field string, keys ...string) (quota.Tokens, bool) {
	_, key := either(object, keys...)
	n, ok, err := tokensAt(object, field, key)
	u.keep(err)
	if ok {
		u.stated++
	}
	return n, ok
}

func (u *usageReader) keep(err error) {
	if err != nil && u.err == nil {
		u.err = err
	}
}

func (u *usageReader) object(object map[string]any, field string, keys ...string) (map[string]any, string) {
	value, key := either(object, keys...)
	out, err := asObject(value, field+"."+key)
	u.keep(err)
	return out, field + "." + key
}

// less takes a part out of its whole.
func (u *usageReader) less(whole, part quota.Tokens, field, of string) quota.Tokens {
	if part > whole {
		u.keep(invalid(field, "%d is more than the %d of %s, which include it", int64(part), int64(whole), of))
		return 0
	}
	return whole - part
}

// seconds reads a duration that may have a fraction, rounded up to milliseconds.
func (u *usageReader) seconds(object map[string]any, field, key string) Milliseconds {
	value, stated := object[key]
	if !stated || value == nil {
		return 0
	}
	f, ok := asFloat(value)
	if !ok || f < 0 || f > float64(quota.MaxAmount)/1000 {
		u.keep(invalid(field+"."+key, "must be a number between 0 and %d", int64(quota.MaxAmount)/1000))
		return 0
	}
	return Milliseconds(min(math.Ceil(f*1000), float64(quota.MaxAmount)))
}

// media are the parts of a count that have prices of their own.
type media struct{ audio, image, video quota.Tokens }

func (m media) sum() quota.Tokens { return m.audio + m.image + m.video }

// prompt shares out a prompt: what of it was cached and written, and what of it
// and of the cached part were sound, pictures and video. Where a provider does
// not say what of the cached part they were, as much of them as fits is taken
// not to be cached.
func (u *usageReader) prompt(whole, cached, written quota.Tokens, in, fromCache media, field string) {
	fresh := u.less(u.less(whole, cached, field, "prompt tokens"), written, field, "prompt tokens that were not cached")
	u.less(whole, in.sum(), field, "prompt tokens")
	u.less(cached, fromCache.sum(), field, "cached tokens")
	if u.err != nil {
		return
	}
	c := &u.use.Tokens
	take := func(all, known quota.Tokens) (now, before quota.Tokens) {
		now = min(max(all-known, 0), fresh)
		fresh -= now
		return now, max(all-now, known)
	}
	var audio, image quota.Tokens
	c.InputAudio, audio = take(in.audio, fromCache.audio)
	c.InputImage, image = take(in.image, fromCache.image)
	c.InputVideo, _ = take(in.video, fromCache.video) // has no price of its own in a cache
	c.CacheReadAudio = min(audio, cached)
	c.CacheReadImage = min(image, cached-c.CacheReadAudio)
	c.CacheRead = cached - c.CacheReadAudio - c.CacheReadImage
	c.Input, c.CacheWrite = fresh, written
}

// completion shares out what was generated, without reasoning.
func (u *usageReader) completion(whole quota.Tokens, out media, field string) {
	c := &u.use.Tokens
	c.Output = u.less(whole, out.sum(), field, "generated tokens")
	c.OutputAudio, c.OutputImage, c.OutputVideo = out.audio, out.image, out.video
}
