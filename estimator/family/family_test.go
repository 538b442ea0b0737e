package family

import (
	"strings"
	"testing"
)

func TestFamilyOfAModel(t *testing.T) {
	for model, want := range map[string]string{
		"claude-3-5-sonnet-20241022":                "claude",
		"claude-sonnet-4-5":                         "claude",
		"claude-4-sonnet":                           "claude",
		"claude-opus-4-20250514":                    "claude",
		"anthropic.claude-3-7-sonnet-20250219-v1:0": "claude",
		"claude-opus-4-6":                           "claude",
		"claude-opus-4-7":                           "claude-4.7",
		"claude-opus-4-10":                          "claude-4.7",
		"claude-sonnet-5":                           "claude-4.7",
		"claude-fable-5":                            "claude-4.7",
		"claude-newest":                             "claude-4.7",
		"claude-2.1":                                "claude-2",
		"claude-v1":                                 "claude-2",
		"claude-instant":                            "claude-2",
		"anthropic.claude-instant-v1":               "claude-2",
		"gemini-2.5-flash":                          "gemini",
		"google/gemma-3-27b-it":                     "gemma",
		"x-ai/grok-4":                               "grok",
		"Meta-Llama-3.1-70B-Instruct":               "llama",
		"llama-2-13b-chat":                          "llama-2",
		"codellama-34b":                             "llama-2",
		"llama-4-maverick":                          "llama-4",
		"Qwen2.5-72B-Instruct":                      "qwen",
		"qwq-32b":                                   "qwen",
		"deepseek-chat":                             "deepseek",
		"deepseek-r1-distill-llama-70b":             "other",
		"mistral-small-latest":                      "mistral",
		"open-mixtral-8x7b":                         "mistral-v3",
		"mistral-large-2407":                        "mistral-v3",
		"codestral-latest":                          "mistral",
		"command-r":                                 "other",
		"":                                          "other",
	} {
		if got := Of(model).Family; got != want {
			t.Errorf("%q is of %q, want %q", model, got, want)
		}
	}
	for _, m := range marks {
		if got := named(m.family).Family; got != m.family {
			t.Errorf("%q has no rule", m.family)
		}
	}
}

// Families that nothing was measured for are not taken to be better than any
// that was.
func TestUnmeasuredFamiliesTakeTheLargestFactors(t *testing.T) {
	rows, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	var largestMeasured [classes]int64
	measured := map[string]bool{}
	for _, row := range rows {
		if row.Tokenizer != "" {
			measured[row.Family] = true
			for class, factor := range named(row.Family).Factors {
				largestMeasured[class] = max(largestMeasured[class], factor)
			}
		}
	}
	for _, r := range Rules() {
		for class, factor := range r.Factors {
			if !measured[r.Family] && factor < largestMeasured[class] {
				t.Errorf("%s: the factor %d of class %d is below the largest measured one, %d", r.Family, factor, class, largestMeasured[class])
			}
			if want := (135*named("claude").Factors[class] + 99) / 100; r.Family == "claude-4.7" && factor != want {
				t.Errorf("%s: the factor of class %d is %d, want 1.35 times that of claude, %d", r.Family, class, factor, want)
			}
		}
		if !measured[r.Family] && r.GroupsDigits {
			t.Errorf("%s: joins digits, and nothing was measured", r.Family)
		}
	}
	if len(measured) < 7 {
		t.Errorf("only %d families are measured", len(measured))
	}
}

func TestClassOfAPiece(t *testing.T) {
	for _, tt := range []struct {
		want   Class
		pieces string
	}{
		{Signs, "==== (); \x00 -"},
		{Words, "word WORD 'tis x2 a"},
		{Pictures, "😀 ❤️ — “ 1️⃣ ═══"},
		{Cased, "größe слово λόγος Việt é"},
		{EastAsian, "今天 カタカナ 한국어 。 Ａ 𠀀 ｶﾞ"},
		{Letters, "कल عربي ไทย ⴰⵣ 𒀀 שׁ"},
		{digits, "1 123 ٣ ² 一二½"},
	} {
		for piece := range strings.FieldsSeq(tt.pieces) {
			want := tt.want
			switch piece {
			case "1️⃣":
				want = digits // the pre-tokenizer parts the digit from what encloses it
			case "一二½":
				want = EastAsian
			}
			if got := classOf(piece); got != want {
				t.Errorf("%q is of class %d, want %d", piece, got, want)
			}
		}
	}
	for _, piece := range []string{"  ", "\r\n", "\u3000\u3000", " \n"} {
		if got := classOf(piece); got != blank {
			t.Errorf("%q is of class %d, want white space", piece, got)
		}
	}
}

// A text never counts more than its bytes and what is added to each text,
// whatever the counter says, and adding pieces takes no memory.
func TestSumIsBounded(t *testing.T) {
	pieces := []string{"a", "word", " größe", "今天天气", "कल", "😀", "12345", "½", "      ", "\r\n\r\n", "================", "\x00", "\u3000\u3000"}
	for _, r := range Rules() {
		var sum Sum
		size := 0
		for _, piece := range pieces {
			for tokens := 1; tokens <= len(piece); tokens++ {
				sum.Add(r, piece, tokens)
				size += len(piece)
				if got := int(sum.Ceiling()); got > size+perText || got < 1 {
					t.Errorf("%s: %d tokens of %d bytes after %q", r.Family, got, size, piece)
				}
			}
		}
		if n := testing.AllocsPerRun(10, func() {
			for _, piece := range pieces {
				sum.Add(r, piece, 1)
			}
		}); n != 0 {
			t.Errorf("%s: %g allocations", r.Family, n)
		}
	}
}
