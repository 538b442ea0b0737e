package estimator

import (
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// The figures of OpenAI's function counting for GPT-4o and later: the OpenAI
// Cookbook, "How to count tokens with tiktoken", part 7.
const (
	functionStart  = 7
	propertiesOnce = 3
	perProperty    = 3
	enumOnce       = -3
	perEnumValue   = 3
)

// functionTokens is what a function's declaration is likely to cost on OpenAI's
// models: its name and description, and those, type and values of each of its
// parameters. Parameters within parameters are not in the Cookbook; they are
// counted like those of the first level. ok is false for what is no function.
func (t *tally) functionTokens(tool map[string]any) (n quota.Tokens, ok bool) {
	function, _ := tool["function"].(map[string]any)
	if function == nil {
		function = tool // the responses API has no level between
	}
	name, _ := function["name"].(string)
	if name == "" {
		return 0, false
	}
	n = functionStart + t.count(name+":"+sentence(function["description"])).Expected
	parameters, _ := function["parameters"].(map[string]any)
	return n + t.propertyTokens(parameters, 0), true
}

func (t *tally) propertyTokens(schema map[string]any, depth int) quota.Tokens {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 || depth > maxDepth {
		return 0
	}
	n := quota.Tokens(propertiesOnce)
	for key, value := range properties {
		property, _ := value.(map[string]any)
		kind, _ := property["type"].(string)
		n += perProperty + t.count(key+":"+kind+":"+sentence(property["description"])).Expected
		if values, _ := property["enum"].([]any); len(values) > 0 {
			n += enumOnce
			for _, value := range values {
				text, _ := value.(string)
				n += perEnumValue + t.count(text).Expected
			}
		}
		n += t.propertyTokens(property, depth+1)
		if items, _ := property["items"].(map[string]any); items != nil {
			n += t.propertyTokens(items, depth+1)
		}
	}
	return n
}

// sentence is a description without the full stop at its end.
func sentence(value any) string {
	text, _ := value.(string)
	return strings.TrimSuffix(text, ".")
}
