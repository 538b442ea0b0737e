package budget

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Usage is what a call really used. Make one with [Amounts], [Tokens],
// [ProviderUsage] or [Unused]; the zero Usage says that nothing is known.
type Usage struct {
	// Amounts per meter. They win over what Tokens come to.
	Amounts map[string]int64
	// Tokens by class; the classes do not overlap.
	Tokens *budgetv1.TokenClasses
	// Units are what was used besides tokens, or instead of them; Served is how
	// the provider served the call. Neither stands beside ProviderUsage.
	Units  *budgetv1.BilledUnits
	Served *budgetv1.ServedAs
	// ProviderUsage is the provider's own usage object, Provider whose it is
	// ("openai", "anthropic", "gemini").
	Provider      string
	ProviderUsage map[string]any
	// SeenText is the text that was seen of an answer that was cut before its
	// provider told the output, at most 1 MiB: the broker counts it. It stands beside
	// Tokens or ProviderUsage, which tell the input.
	SeenText string
	// Unused says that the call was not made at all.
	Unused bool
}

// Amounts is a usage in amounts per meter. A meter that was held and is not
// named counts as used in full.
func Amounts(amounts map[string]int64) Usage { return Usage{Amounts: amounts} }

// Tokens is a usage in token classes, priced by the broker.
func Tokens(classes *budgetv1.TokenClasses) Usage { return Usage{Tokens: classes} }

// ProviderUsage is a provider's own usage object.
func ProviderUsage(provider string, usage map[string]any) Usage {
	return Usage{Provider: provider, ProviderUsage: usage}
}

// Unused gives everything back: the call was not made.
func Unused() Usage { return Usage{Unused: true} }

// unknown is the usage of a call of which nobody can say what it used: every
// meter that was held counts in full.
func unknown(asked Request) Usage {
	requests := int64(1)
	if n, stated := asked.Amounts["requests"]; stated {
		requests = n
	}
	return Amounts(map[string]int64{"requests": requests})
}

func (u Usage) isZero() bool {
	return u.Amounts == nil && u.Tokens == nil && u.Units == nil && u.ProviderUsage == nil && !u.Unused
}

// callWeight is about what a call weighs that is kept, beside its text.
const callWeight = 512

// weight is about how many bytes of memory a usage keeps.
func (u Usage) weight() int {
	const number = 64 // an entry of a map, or a field
	return callWeight + number*len(u.Amounts) + len(u.SeenText) + len(u.Provider) +
		4*proto.Size(u.Tokens) + 4*proto.Size(u.Units) + 4*proto.Size(u.Served) + weightOf(u.ProviderUsage, 0)
}

// weightOf is the weight of a JSON value. What is nested deeper than any usage
// object counts as nothing: no message can be made of it either.
func weightOf(value any, depth int) int {
	const one, deepest = 64, 100
	if depth > deepest {
		return one
	}
	weight := one
	switch v := value.(type) {
	case string:
		weight += len(v)
	case map[string]any:
		for name, inner := range v {
			weight += len(name) + weightOf(inner, depth+1)
		}
	case []any:
		for _, inner := range v {
			weight += weightOf(inner, depth+1)
		}
	}
	return weight
}

func (u Usage) message(reservation string) (*budgetv1.RefundRequest, error) {
	request := &budgetv1.RefundRequest{ReservationId: reservation, Unused: u.Unused}
	if u.Unused {
		return request, nil
	}
	var err error
	request.Usage, err = u.told()
	return request, err
}

// told is a usage as messages have it.
func (u Usage) told() (*budgetv1.Usage, error) {
	m := &budgetv1.Usage{Amounts: u.Amounts, Tokens: u.Tokens, Units: u.Units, Served: u.Served, Provider: u.Provider, SeenText: u.SeenText}
	if u.ProviderUsage != nil {
		object, err := structpb.NewStruct(u.ProviderUsage)
		if err != nil {
			return nil, fmt.Errorf("provider usage: %w", err)
		}
		m.ProviderUsage = object
	}
	return m, nil
}
