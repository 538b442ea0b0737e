// Package family has the rules by which the tokens of a text are bounded for
// models whose tokenizer is not public, or not one of OpenAI's: one rule per
// family of models, with its source, how it was measured, and a learner that
// sharpens it by what providers really counted.
//
// # The rule
//
// The text is split by the pre-tokenizer of o200k_base, and each piece is
// counted by it. A piece then costs f times its tokens, where f depends on the
// class of its characters ([Class]) and on the family, no fewer than one token
// for so many bytes as the class allows (3 to 8), and no more than its bytes.
// Digits cost one token each, except where a family joins three. White space
// over one byte costs one token for 8 spaces, and one for each other byte. Two
// tokens are added to each text.
//
// The factors of a family are the lowest at which no text of the corpus (see
// package corpus) was under-counted, plus 0.2. What the rules do on the corpus is
// in [Measured].
//
// # What it is not
//
// A proof. Texts unlike the corpus may cost more than their ceiling, and a text
// of one bad character over and over may cost several times as much where a
// tokenizer first normalises it (the older Claude does). The broker charges what
// the provider counted, whatever was held.
package family

import (
	"strconv"
	"strings"
)

// Rule bounds the tokens of a text for one family of models.
type Rule struct {
	Family       string
	Factors      [classes]int64 // f of each class, in tenths: 15 is 1.5
	GroupsDigits bool           // three digits are one token, as in o200k_base
	Source       string         // where the factors come from, for people
}

// largest has the largest factor of each class of all measured families: for
// those that are not measured.
var largest = [classes]int64{Signs: 27, Words: 18, Pictures: 29, Cased: 23, EastAsian: 24, Letters: 59}

// rules are all families.
//
// Gemini: the Gemma 3 technical report (Google DeepMind, 2025) says that Gemma 3
// has the tokenizer of Gemini 2.0, and the Gemma 2 report that its vocabulary is
// Gemini's; Google's own local counter for Gemini (python-aiplatform) loads
// Gemma's. The factors hold for both generations.
//
// Claude: the tokenizer of the models before Claude 3 was published. Anthropic
// says in its README that it is no longer accurate since, and in the guide
// "Token counting" that from Claude Opus 4.7 on a newer tokenizer makes about 30
// percent more tokens than its forerunner of the same text (1.0 to 1.35 times,
// when it came out): 1.35 is used.
var rules = []Rule{
	{Family: "claude", Factors: largest, Source: "no public tokenizer: the largest factors of the measured families"},
	{Family: "claude-4.7", Factors: [classes]int64{Signs: 37, Words: 25, Pictures: 40, Cased: 32, EastAsian: 33, Letters: 80}, Source: "no public tokenizer: 1.35 times claude, the most that Anthropic states"},
	{Family: "claude-2", Factors: [classes]int64{Signs: 12, Words: 17, Pictures: 18, Cased: 23, EastAsian: 22, Letters: 59}, Source: "the published tokenizer of Claude 2 and before"},
	{Family: "gemini", Factors: gemma, Source: "the published tokenizer of Gemma, which is Gemini's"},
	{Family: "gemma", Factors: gemma, Source: "its published tokenizer"},
	{Family: "mistral", Factors: [classes]int64{Signs: 15, Words: 14, Pictures: 29, Cased: 15, EastAsian: 15, Letters: 48}, Source: "the published Tekken tokenizer, of Mistral Nemo and later"},
	{Family: "mistral-v3", Factors: largest, Source: "older SentencePiece tokenizers: the largest factors of the measured families"},
	{Family: "llama", Factors: [classes]int64{Signs: 12, Words: 14, Pictures: 17, Cased: 16, EastAsian: 13, Letters: 44}, GroupsDigits: true, Source: "the published tokenizer of Llama 3"},
	{Family: "llama-2", Factors: [classes]int64{Signs: 27, Words: 18, Pictures: 18, Cased: 18, EastAsian: 24, Letters: 38}, Source: "the published tokenizer of Llama 2"},
	{Family: "llama-4", Factors: largest, Source: "no measured tokenizer: the largest factors of the measured families"},
	{Family: "qwen", Factors: [classes]int64{Signs: 12, Words: 14, Pictures: 12, Cased: 16, EastAsian: 15, Letters: 35}, Source: "the published tokenizer of Qwen 3, which Qwen 2 and 2.5 share"},
	{Family: "deepseek", Factors: [classes]int64{Signs: 12, Words: 14, Pictures: 13, Cased: 16, EastAsian: 15, Letters: 21}, GroupsDigits: true, Source: "the published tokenizer of DeepSeek V3"},
	{Family: "grok", Factors: largest, Source: "no public tokenizer: the largest factors of the measured families"},
	{Family: "other", Factors: largest, Source: "unknown models: the largest factors of the measured families"},
}

var gemma = [classes]int64{Signs: 22, Words: 15, Pictures: 12, Cased: 12, EastAsian: 14, Letters: 16}

// Rules returns all rules, in the order of the table.
func Rules() []Rule { return append([]Rule(nil), rules...) }

// marks are what an id of a family contains, in lower case; the first that fits
// decides, so that a family of a certain version comes before the others.
var marks = []struct{ family, words string }{
	{"deepseek", "deepseek"}, // before those that it was distilled into: the larger vocabulary is not known from the id
	{"gemma", "gemma"},
	{"gemini", "gemini learnlm"},
	{"grok", "grok"},
	{"llama-2", "llama-2 llama2 codellama code-llama"},
	{"llama-4", "llama-4 llama4"},
	{"llama", "llama"},
	{"qwen", "qwen qwq"},
	{"mistral-v3", "mistral-7b mixtral mistral-embed mistral-tiny mistral-medium-2312 mistral-small-2402 mistral-small-2409 mistral-large-2402 mistral-large-2407 mistral-large-2411 codestral-2405 codestral-mamba mathstral"},
	{"mistral", "mistral codestral ministral pixtral magistral devstral voxtral"},
}

// Of returns the rule for a model id.
func Of(model string) Rule {
	model = strings.ToLower(model)
	if _, version, ok := strings.Cut(model, "claude"); ok {
		return named(claude(version))
	}
	if strings.Contains(model, "distill") {
		return named("other") // it has the tokenizer of the model that learned
	}
	for _, m := range marks {
		for word := range strings.FieldsSeq(m.words) {
			if strings.Contains(model, word) {
				return named(m.family)
			}
		}
	}
	return named("other")
}

// claude tells the three tokenizers apart by what follows "claude" in an id,
// such as "-3-5-sonnet-20241022", "-opus-4-7" or "-instant-1.2". Without a
// version it is the dearest.
func claude(version string) string {
	var numbers []int
	for _, text := range strings.FieldsFunc(version, func(c rune) bool { return c < '0' || c > '9' }) {
		if n, err := strconv.Atoi(text); err == nil && n < 100 { // more is a date
			numbers = append(numbers, n)
		}
	}
	switch {
	case strings.Contains(version, "instant"):
		return "claude-2"
	case len(numbers) == 0:
		return "claude-4.7"
	case numbers[0] < 3:
		return "claude-2"
	case numbers[0] > 4, numbers[0] == 4 && len(numbers) > 1 && numbers[1] >= 7:
		return "claude-4.7"
	}
	return "claude"
}

// named returns the rule of a family.
func named(family string) Rule {
	for _, r := range rules {
		if r.Family == family {
			return r
		}
	}
	return rules[len(rules)-1]
}
