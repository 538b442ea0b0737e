package estimator

import "github.com/budgetd/budgetd/quota"

// PerMillion is a price: nano-USD per million tokens. $0.075 per million is
// 75,000,000.
type PerMillion int64

// PerThousand is a price: nano-USD per thousand things. $0.04 an image is
// 40,000,000,000. It may be [NoPrice].
type PerThousand int64

// PerHour is a price: nano-USD per hour, 3,600,000 ms. $0.006 a minute is
// 360,000,000. It may be [NoPrice].
type PerHour int64

// The highest prices that a catalogue may hold: what is above is a slip of the
// decimal point. The dearest published model costs $600 per million tokens,
// the dearest published video less than $1 a second.
const (
	MaxPerMillion  = 1_000 * PerMillion(quota.OneUSD)
	MaxPerThousand = 100_000 * PerThousand(quota.OneUSD) // $100 each
	MaxPerHour     = 36_000 * PerHour(quota.OneUSD)      // $10 a second
	NoPrice        = -1                                  // of a unit, or of tokens, that the source does not bill
)

// Rates is one complete set of prices, those of tokens 0 to [MaxPerMillion]. A
// catalogue fills a class that its source does not price with the dearest price
// that may sensibly stand in for it, never with 0.
//
// A unit that has no price is billed by the tokens of its call, as images in a
// prompt are, except that the catalogue prices every search: see [Price.Cost].
// A model that is billed by units alone has [NoPrice] in every class.
type Rates struct {
	Input          PerMillion
	InputAudio     PerMillion // Input where the source has none
	InputImage     PerMillion // Input where the source has none
	InputVideo     PerMillion // the dearer of InputImage and InputAudio where the source has none
	CacheRead      PerMillion // Input where the source has none
	CacheReadAudio PerMillion // InputAudio where the source has none
	CacheReadImage PerMillion // InputImage where the source has none
	CacheWrite     PerMillion // Input where the source has none
	CacheWrite1h   PerMillion // the dearer of CacheWrite and Input where the source has none
	Output         PerMillion // Input where the source has none (embeddings)
	OutputAudio    PerMillion // Output where the source has none
	OutputImage    PerMillion // Output where the source has none
	OutputVideo    PerMillion // the dearest of the other outputs where the source has none
	Reasoning      PerMillion // Output where the source has none

	Image   PerThousand
	Second  PerHour
	Page    PerThousand
	Search  PerThousand
	Request PerThousand
}

// tokens returns the prices of the classes, in their order.
func (r *Rates) tokens() [numberOfClasses]PerMillion {
	return [...]PerMillion{
		r.Input, r.InputAudio, r.InputImage, r.InputVideo,
		r.CacheRead, r.CacheReadAudio, r.CacheReadImage, r.CacheWrite, r.CacheWrite1h,
		r.Output, r.OutputAudio, r.OutputImage, r.OutputVideo, r.Reasoning,
	}
}

// classes returns where the prices of the classes are, in their order.
func (r *Rates) classes() [numberOfClasses]*PerMillion {
	return [...]*PerMillion{
		&r.Input, &r.InputAudio, &r.InputImage, &r.InputVideo,
		&r.CacheRead, &r.CacheReadAudio, &r.CacheReadImage, &r.CacheWrite, &r.CacheWrite1h,
		&r.Output, &r.OutputAudio, &r.OutputImage, &r.OutputVideo, &r.Reasoning,
	}
}

// units returns the prices of the units, in their order.
func (r *Rates) units() [numberOfUnits]int64 {
	return [...]int64{int64(r.Image), int64(r.Second), int64(r.Page), int64(r.Search), int64(r.Request)}
}

// dearest is, class by class and unit by unit, the dearer of two sets.
func (r Rates) dearest(o Rates) Rates {
	return Rates{
		Input:          max(r.Input, o.Input),
		InputAudio:     max(r.InputAudio, o.InputAudio),
		InputImage:     max(r.InputImage, o.InputImage),
		InputVideo:     max(r.InputVideo, o.InputVideo),
		CacheRead:      max(r.CacheRead, o.CacheRead),
		CacheReadAudio: max(r.CacheReadAudio, o.CacheReadAudio),
		CacheReadImage: max(r.CacheReadImage, o.CacheReadImage),
		CacheWrite:     max(r.CacheWrite, o.CacheWrite),
		CacheWrite1h:   max(r.CacheWrite1h, o.CacheWrite1h),
		Output:         max(r.Output, o.Output),
		OutputAudio:    max(r.OutputAudio, o.OutputAudio),
		OutputImage:    max(r.OutputImage, o.OutputImage),
		OutputVideo:    max(r.OutputVideo, o.OutputVideo),
		Reasoning:      max(r.Reasoning, o.Reasoning),
		Image:          max(r.Image, o.Image),
		Second:         max(r.Second, o.Second),
		Page:           max(r.Page, o.Page),
		Search:         max(r.Search, o.Search),
		Request:        max(r.Request, o.Request),
	}
}

// StatedRates are the prices that a source states, by class in the order of
// [TokenClasses] and by unit in that of [Units]; nil where it states none.
// Without a price of Input no class has one.
type StatedRates struct {
	Tokens [numberOfClasses]*PerMillion
	Units  [numberOfUnits]*int64 // PerThousand, or PerHour for seconds
}

// Complete fills what has no price as [Rates] documents.
func (s StatedRates) Complete() Rates {
	var r Rates
	for i, class := range r.classes() {
		if *class = r.standIn(i); s.Tokens[i] != nil {
			*class = *s.Tokens[i]
		}
	}
	unit := func(i int) int64 {
		if p := s.Units[i]; p != nil {
			return *p
		}
		return NoPrice
	}
	r.Image = PerThousand(unit(0))
	r.Second = PerHour(unit(1))
	r.Page = PerThousand(unit(2))
	r.Search = PerThousand(unit(3))
	r.Request = PerThousand(unit(4))
	return r
}

// standIn is the price of the i-th class where none is stated. It looks at the
// classes before that only.
func (r *Rates) standIn(i int) PerMillion {
	switch i {
	case 0:
		return NoPrice
	case 3:
		return max(r.InputImage, r.InputAudio)
	case 5:
		return r.InputAudio
	case 6:
		return r.InputImage
	case 8:
		return max(r.CacheWrite, r.Input)
	case 10, 11, 13:
		return r.Output
	case 12:
		return max(r.Output, r.OutputAudio, r.OutputImage)
	}
	return r.Input
}

// Stated is the shortest statement that completes to r.
func (r Rates) Stated() StatedRates {
	var s StatedRates
	tokens, units := r.tokens(), r.units()
	for i := range tokens {
		if tokens[i] != r.standIn(i) {
			s.Tokens[i] = &tokens[i]
		}
	}
	for i := range units {
		if units[i] != NoPrice {
			s.Units[i] = &units[i]
		}
	}
	return s
}

// State states the price of the class or unit that has the name. It reports
// false when none has it.
func (s *StatedRates) State(name string, nano int64) bool {
	for i := range classNames {
		if classNames[i] == name {
			price := PerMillion(nano)
			s.Tokens[i] = &price
			return true
		}
	}
	for i := range unitNames {
		if unitNames[i] == name {
			s.Units[i] = &nano
			return true
		}
	}
	return false
}
